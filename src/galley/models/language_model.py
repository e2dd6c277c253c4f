"""From a model's spec and the plan's decisions to a causal language model that is ready to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from galley.models import adapters
from galley.models.base import LanguageModel, ModelSettings
from galley.models.creation import create
from galley.models.loading import LoadPrecision, Note, load
from galley.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import nn


def language_model(spec: ModelSpec, settings: ModelSettings, note: Note) -> LanguageModel:
    """Load or create the model, add its adapter, and choose the path on which it runs.

    Args:
        spec: what the model is.
        settings: the plan's decisions.
        note: hears (kind, message) of decisions and fall-backs.

    Raises:
        GalleyError: from loading and adapting.
    """
    from galley.models.decoder import Decoder

    module, tokenizer = _module(spec, settings, note)
    module = adapters.apply(
        settings.tuning,
        module,
        rank=settings.rank,
        alpha=settings.alpha,
        dropout=settings.dropout,
        targets=settings.targets,
        seed=settings.seed,
        on_note=note,
    )
    general = Decoder(
        spec,
        module,
        tokenizer,
        packing=settings.packing,
        compile=settings.compile,
        checkpointing=settings.checkpointing,
        on_note=note,
    )
    return _faster(general, settings, note) if settings.fast_path else general


def _module(spec: ModelSpec, settings: ModelSettings, note: Note) -> tuple[nn.Module, Any]:
    """The plan says in which precision weights are held; new weights are created in it."""
    tokenizer, precision = settings.tokenizer, cast(LoadPrecision, settings.precision)
    if spec.source == "random":
        assert tokenizer is not None, "a model of random weights needs a tokenizer"
        module = create(spec, vocab_size=len(tokenizer), tokenizer=tokenizer, seed=settings.seed, precision=precision)
        return module.to(settings.device), tokenizer
    return load(
        spec,
        precision=precision,
        device=settings.device,
        tokenizer=tokenizer,
        offered={"vocab_size": len(tokenizer)} if tokenizer is not None else None,
        quantise=adapters.registry.get(settings.tuning).quantises_base,
        seed=settings.seed,
        on_note=note,
    )


def _faster(general: LanguageModel, settings: ModelSettings, note: Note) -> LanguageModel:
    """The hand-written step, if the model has its shape and both agree on it."""
    from galley.models.fast.llama import FastLlama
    from galley.models.proof import disagreement

    fast = FastLlama.build(general, shared_prefix=settings.shared_prefix)
    if isinstance(fast, str):
        note("model", f"runs on the general path: {fast}")
        return general
    difference, allowed = disagreement(fast, general)
    if not difference <= allowed:
        fast.unlink()
        note("fallback", f"the fast path differs by {difference:.1g} from the general one, which is used instead")
        return general
    note(
        "model",
        f"runs on the fast path, which agrees with the general one ({difference:.1g} apart, {allowed:.1g} is rounding)",
    )
    return fast
