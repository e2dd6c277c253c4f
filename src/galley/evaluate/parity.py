"""The result is what was trained: outputs of the trained model in memory against those of the saved one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from galley.data.examples import Conversation, Document, Labelled
from galley.runs.parity import Parity

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.examples import Example

__all__ = ["ROWS", "Parity", "TrainedOutputs", "compare_with", "merged", "record"]

ROWS = 6
"""Held-out rows whose outputs are compared."""
_NEW_TOKENS = 16
_DOCUMENT_TOKENS = 48


@dataclass(frozen=True)
class TrainedOutputs:
    """What the trained model said before it left memory.

    Args:
        rows: token ids of a prompt with the greedy answer to it, or of a text; one tuple each.
        starts: where each answer begins (1 for texts).
        logits: of the tokens from there on, [N, V] float32, one tensor a row.
    """

    rows: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    logits: tuple[Tensor, ...]


def record(
    module: nn.Module, tokenizer: Any, examples: Sequence[Example], *, device: str = "cpu"
) -> TrainedOutputs | None:
    """Answer a few held-out rows with the trained model that is still in memory.

    Args:
        module: the trained causal language model.
        tokenizer: its tokenizer.
        examples: held-out rows.
        device: where the module lives.

    Returns:
        None for rows that language models do not answer, and when there are none.
    """
    from galley.data.encoder import TextEncoder
    from galley.data.template import Template
    from galley.evaluate.questions import questions
    from galley.generate import Generator, Sampling

    if tokenizer is None or not examples or isinstance(examples[0], Labelled):
        return None
    asked = questions(examples[:ROWS], tokenizer)
    if isinstance(examples[0], Document):
        encoder = TextEncoder(tokenizer)
        rows = [(*encoder.opening_ids, *encoder.encode(row.expected[:1000]))[:_DOCUMENT_TOKENS] for row in asked]
        starts = [1] * len(rows)
    else:
        generator = Generator(module, tokenizer, device=device)
        stops = Template(tokenizer).stop_ids if isinstance(examples[0], Conversation) else ()
        room = (generator.context or 1 << 30) - _NEW_TOKENS
        asked = [row for row in asked if 0 < len(row.ids) <= room]
        settings = generator.with_stop_ids(Sampling(max_new_tokens=_NEW_TOKENS), stops)
        answers = generator.generate([row.ids for row in asked], settings)
        rows = [(*row.ids, *answer.ids) for row, answer in zip(asked, answers, strict=True)]
        starts = [len(row.ids) for row in asked]
    pairs = [(ids, start) for ids, start in zip(rows, starts, strict=True) if len(ids) > start]
    if not pairs:
        return None
    logits = tuple(_logits(module, ids, start, device) for ids, start in pairs)
    return TrainedOutputs(tuple(ids for ids, _ in pairs), tuple(start for _, start in pairs), logits)


def compare_with(outputs: TrainedOutputs, module: nn.Module, *, device: str = "cpu") -> Parity:
    """The module's logits on the same rows against the recorded ones."""
    difference, same, total = 0.0, 0, 0
    for ids, start, trained_NV in zip(outputs.rows, outputs.starts, outputs.logits, strict=True):
        other_NV = _logits(module, ids, start, device)
        difference = max(difference, float((other_NV - trained_NV).abs().max()))
        same += int((other_NV.argmax(-1) == trained_NV.argmax(-1)).sum())
        total += len(trained_NV)
    return Parity(difference, same / total)


def _logits(module: nn.Module, ids: Sequence[int], start: int, device: str) -> Tensor:
    """Scores of the tokens from `start` on, given those before each, [N, V] float32."""
    import torch

    from galley.models.network import Inputs, Network
    from galley.models.proof import evaluating

    keep_N = torch.arange(start - 1, len(ids) - 1, device=device)
    with torch.no_grad(), evaluating(module):
        logits_1NV = Network(module).logits(Inputs(torch.tensor([list(ids)], device=device)), keep_N)
    return logits_1NV[0].float().cpu()


def merged(outputs: TrainedOutputs, module: nn.Module, *, device: str = "cpu") -> Parity:
    """The same after merging the adapter into the weights in memory, which stay merged.

    Args:
        outputs: of the trained model.
        module: a PeftModel; its weights are changed.
        device: where it lives.
    """
    module.merge_adapter()  # type: ignore[operator]
    return compare_with(outputs, module, device=device)
