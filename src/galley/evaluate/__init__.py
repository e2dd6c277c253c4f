"""What a finished run is worth: base against tuned model on unseen rows, and proof that it is what was trained."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
