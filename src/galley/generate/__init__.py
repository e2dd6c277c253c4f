"""The one decoder: KV cache, continuous batching, sampling; used by rollouts, the verdict, `chat` and `serve` alike."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
