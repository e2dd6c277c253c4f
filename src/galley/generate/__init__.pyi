from .chat import ChatSession as ChatSession
from .generator import Generator as Generator
from .opening import open_chat as open_chat
from .settings import Generation as Generation
from .settings import Sampling as Sampling

__all__ = ["ChatSession", "Generation", "Generator", "Sampling", "open_chat"]
