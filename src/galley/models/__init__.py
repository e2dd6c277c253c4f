"""Models: what a reference means, how weights are loaded, adapted, saved and merged, and how methods see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from galley.models.base import Model as Model
    from galley.models.base import ModelSettings as ModelSettings
    from galley.models.creation import create as create
    from galley.models.decoder import Decoder as Decoder
    from galley.models.fingerprint import weights_fingerprint as weights_fingerprint
    from galley.models.language_model import language_model as language_model
    from galley.models.loading import load as load
    from galley.models.loading import load_tokenizer as load_tokenizer
    from galley.models.loading import materialise as materialise
    from galley.models.merging import merge as merge
    from galley.models.references import resolve as resolve
    from galley.models.results import LoadedResult as LoadedResult
    from galley.models.results import load_result as load_result
    from galley.models.saving import save as save
    from galley.models.spec import ModelKind as ModelKind
    from galley.models.spec import ModelSpec as ModelSpec
    from galley.models.tokenizer_training import train_tokenizer as train_tokenizer
    from galley.models.tokenizers import tokenizer_for as tokenizer_for
    from galley.models.user_module import source_hash as source_hash
    from galley.models.user_module import user_module as user_module

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Model", "ModelSettings"],
        "creation": ["create"],
        "decoder": ["Decoder"],
        "fingerprint": ["weights_fingerprint"],
        "language_model": ["language_model"],
        "loading": ["load", "load_tokenizer", "materialise"],
        "merging": ["merge"],
        "references": ["resolve"],
        "results": ["LoadedResult", "load_result"],
        "saving": ["save"],
        "spec": ["ModelKind", "ModelSpec"],
        "tokenizer_training": ["train_tokenizer"],
        "tokenizers": ["tokenizer_for"],
        "user_module": ["source_hash", "user_module"],
    },
)
