"""From scores to tokens: filters in the usual order, then one draw per row from that row's own random stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from galley.generate.settings import Sampling

_NEVER = float("-inf")


def choose(
    logits_RV: Tensor, settings: Sampling, draws: Sequence[tuple[int, int]], seen: Sequence[Sequence[int]]
) -> list[int]:
    """The next token of each row.

    Args:
        logits_RV: scores of the next token, float32.
        settings: how to choose.
        draws: number of each row in the whole job, and of the token in its row: these decide its randomness,
            whatever the row is batched with.
        seen: tokens of each row so far, prompt included; read only for a repetition penalty.
    """
    logits_RV = penalised(logits_RV, settings.repetition_penalty, seen)
    if settings.greedy:
        return [int(token) for token in logits_RV.argmax(-1)]
    numbers = [uniform(settings.seed, row, step) for row, step in draws]
    uniform_R1 = torch.tensor(numbers, dtype=torch.float64, device=logits_RV.device)[:, None]
    # The inverse of the cumulative distribution in double precision: one number per row and token decides.
    cumulative_RV = filtered(logits_RV / settings.temperature, settings).double().softmax(-1).cumsum(-1)
    tokens_R1 = torch.searchsorted(cumulative_RV, uniform_R1 * cumulative_RV[:, -1:], right=True)
    return [int(token) for token in tokens_R1[:, 0]]


def penalised(logits_RV: Tensor, penalty: float, seen: Sequence[Sequence[int]]) -> Tensor:
    """Make tokens that a row already has less likely (Source: CTRL, https://arxiv.org/abs/1909.05858, section 4.1)."""
    if penalty == 1.0:
        return logits_RV
    logits_RV = logits_RV.clone()
    for row, ids in enumerate(seen):
        index = torch.tensor(sorted(set(ids)), device=logits_RV.device)
        scores = logits_RV[row, index]
        logits_RV[row, index] = torch.where(scores < 0, scores * penalty, scores / penalty)
    return logits_RV


def filtered(logits_RV: Tensor, settings: Sampling) -> Tensor:
    """The scores with -inf for tokens that top-k, top-p or min-p rule out; the likeliest always stays."""
    if 0 < settings.top_k < logits_RV.shape[-1]:
        least_R1 = logits_RV.topk(settings.top_k).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, _NEVER)
    if settings.top_p < 1.0:
        ascending = logits_RV.sort(descending=False)
        cumulative_RV = ascending.values.softmax(-1).cumsum(-1)
        out_RV = cumulative_RV <= 1 - settings.top_p
        out_RV[:, -1] = False
        logits_RV = logits_RV.masked_fill(out_RV.scatter(1, ascending.indices, out_RV), _NEVER)
    if settings.min_p > 0.0:
        probs_RV = logits_RV.softmax(-1)
        logits_RV = logits_RV.masked_fill(probs_RV < settings.min_p * probs_RV.amax(-1, keepdim=True), _NEVER)
    return logits_RV


def uniform(seed: int, row: int, step: int) -> float:
    """A number in [0, 1) that only these three determine (Source: SplitMix64, https://doi.org/10.1145/2660193.2660195)."""
    state = 0
    for part in (seed, row, step):
        state = _mix((state + part + 0x9E3779B97F4A7C15) & _WORD)
    return (state >> 12) / 2**52


_WORD = 2**64 - 1


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
