"""Choose the fastest layout that is proven exact for a loaded model, and know up to which document length."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from galley.data.batch import TokenBatch
from galley.models import document_attention
from galley.models.layouts import Face, Layout, Packed, Padded, Single, document_lengths
from galley.models.network import Network
from galley.models.proof import Proof


@dataclass(frozen=True)
class LayoutChoice:
    """Layouts by preference, each with the longest document that it is exact for; the last takes any."""

    layouts: tuple[tuple[Layout, float], ...]

    @property
    def name(self) -> str:
        """Of the layout for documents of ordinary length."""
        return self.layouts[0][0].name

    def of(self, batch: TokenBatch) -> Layout:
        """The layout for these documents."""
        longest = max(document_lengths(batch), default=0)
        return next(layout for layout, limit in self.layouts if longest <= limit)


def choose_layouts(network: Network, face: Face, *, packing: bool, on_note: Callable[[str, str], None]) -> LayoutChoice:
    """Prove layouts on a few tokens, from the fastest down: packed, padded, one document at a time.

    Args:
        network: the model, in evaluation mode.
        face: the part of it that will run.
        packing: whether to try to pack.
        on_note: hears why documents are not packed.
    """
    proof = Proof(network, face)
    window, same_rotary = _attention_window(network.config), _same_rotary_up_to(network.config)
    found: list[tuple[Layout, float]] = []
    why = "the plan says so"
    if packing:
        told = Packed(by_length=True)
        if _tell_documents(network, lambda: not proof.objection(told)):
            found.append((told, min(window, same_rotary)))
        if window < math.inf or not found:
            masked = Packed(by_length=False)
            why = proof.objection(masked)
            if not why:
                found.append((masked, same_rotary))
    if not found:
        padded = Padded()
        padded_why = proof.objection(padded)
        if not padded_why:
            found.append((padded, same_rotary))
        then = f"nor padded, since {padded_why}; they run one at a time" if padded_why else "they are padded instead"
        on_note("fallback" if packing else "model", f"documents are not packed, since {why}; {then}")
    return LayoutChoice((*found, (Single(), math.inf)))


def _tell_documents(network: Network, works: Callable[[], bool]) -> bool:
    """Switch a model that runs SDPA to attention per document for good, if that works."""
    inner = network.inner
    known = ("sdpa", document_attention.NAME)
    if not isinstance(inner, PreTrainedModel) or inner.config._attn_implementation not in known:
        return False
    with _quiet("transformers"):
        inner.set_attn_implementation(document_attention.NAME)
    if inner.config._attn_implementation == document_attention.NAME:
        if works():
            return True
        inner.set_attn_implementation("sdpa")
    return False


def forget_documents(network: Network) -> None:
    """Switch a model that was switched to attention per document back to SDPA."""
    inner = network.inner
    if isinstance(inner, PreTrainedModel) and inner.config._attn_implementation == document_attention.NAME:
        with _quiet("transformers"):
            inner.set_attn_implementation("sdpa")


@contextmanager
def _quiet(logger_name: str) -> Iterator[None]:
    logger = logging.getLogger(logger_name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _attention_window(config: Any) -> float:
    """The longest document in which every token sees all before it, by what the config says."""
    said = config.to_dict() if config is not None else {}
    names = ("sliding_window", "attention_chunk_size", "attention_window_size")
    return min((float(said[name]) for name in names if isinstance(said.get(name), int)), default=math.inf)


def _same_rotary_up_to(config: Any) -> float:
    """The longest document that does not change the rotary frequencies of its neighbours.

    With `dynamic` and `longrope` scaling the longest position of a call decides the frequencies of all of it.
    """
    said = config.to_dict() if config is not None else {}
    rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
    nested = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    limit = said.get("original_max_position_embeddings") or said.get("max_position_embeddings") or 0
    moving = [r for r in nested if r.get("rope_type", r.get("type")) in ("dynamic", "longrope")]
    return float(min(r.get("original_max_position_embeddings") or limit for r in moving)) if moving else math.inf
