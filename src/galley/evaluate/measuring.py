"""What a model does on held-out rows: its answers, its losses, its classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from galley.evaluate.contestants import Contestant
from galley.evaluate.questions import Question
from galley.generate import Generator, Sampling

if TYPE_CHECKING:
    from galley.data.batch import TokenBatch
    from galley.data.tokens import TokenSamples
    from galley.models.loading import Note

Done = Callable[[], None]
"""Called once for each row that is done."""

_BATCH_ROWS = 32
_BATCH_TOKENS = 2048  # computed at once: enough for good matrix products, little memory


def answers(
    contestant: Contestant,
    rows: Sequence[Question],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    device: str,
    note: Note,
    done: Done,
) -> list[str]:
    """Greedy answers to the rows' prompts.

    Args:
        contestant: the model.
        rows: with prompts that leave room in its context.
        max_new_tokens: longest answer.
        stop_ids: tokens that end an answer, beside the model's own.
        device: where the model lives.
        note: told when rows cannot be answered together.
        done: called for each answer.
    """
    generator = Generator(contestant.module, contestant.tokenizer, device=device)
    if generator.way != "together":
        note("fallback", f"answers are generated {generator.way}: padding or caching would change them")
    settings = generator.with_stop_ids(Sampling(max_new_tokens=max_new_tokens), stop_ids)
    given = generator.generate([row.ids for row in rows], settings, on_done=lambda _number, _answer: done())
    return [answer.text for answer in given]


def losses(
    contestant: Contestant, samples: TokenSamples, *, device: str, note: Note, done: Done
) -> list[tuple[float, int]]:
    """For each encoded row: the sum of -log p over its learned tokens, and their number."""
    from galley.data.packing import split_rows, token_batch
    from galley.models.decoder import Decoder

    decoder = Decoder(contestant.spec, contestant.module, contestant.tokenizer, on_note=note)
    out: dict[int, tuple[float, int]] = {}
    parts = split_rows(samples.lengths, range(len(samples)), max_rows=len(samples), max_tokens=_BATCH_TOKENS)
    for part in parts:
        batch = token_batch(samples, part)
        with torch.no_grad():
            logprobs_N = decoder.token_logprobs(batch.to(torch.device(device))).double().cpu()
        for row, measured in zip(part, _by_document(batch, logprobs_N), strict=True):
            out[row] = measured
            done()
    return [out[row] for row in range(len(samples))]


def classes(contestant: Contestant, samples: Any, *, device: str, done: Done) -> list[str]:
    """The likeliest class of each encoded row, by name."""
    from galley.models.classifier import Classifier

    model = Classifier(contestant.spec, contestant.module, contestant.tokenizer, contestant.labels)
    order = sorted(range(len(samples)), key=lambda row: int(samples.lengths[row]))
    out: dict[int, str] = {}
    for start in range(0, len(order), _BATCH_ROWS):
        part = order[start : start + _BATCH_ROWS]
        with torch.no_grad():
            chosen_B = model.class_logits(samples.batch(part).to(torch.device(device))).argmax(-1).tolist()
        for row, number in zip(part, chosen_B, strict=True):
            out[row] = contestant.labels[number]
            done()
    return [out[row] for row in range(len(samples))]


def _by_document(batch: TokenBatch, logprobs_N: torch.Tensor) -> list[tuple[float, int]]:
    ends_D = torch.tensor(batch.bounds[1:])
    document_N = torch.searchsorted(ends_D, batch.target_index_N, right=True)
    sums_D = torch.zeros(batch.num_rows, dtype=torch.float64).index_add_(0, document_N, -logprobs_N)
    counts_D = torch.bincount(document_N, minlength=batch.num_rows)
    return list(zip(sums_D.tolist(), counts_D.tolist(), strict=True))
