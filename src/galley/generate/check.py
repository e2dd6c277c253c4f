"""Prove on the loaded model which way of generating is exact for it; no list of families is trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from galley.generate.forward import Causal, OneByOne, Rows, Slots, Way

# Largest difference of next-token scores, relative to their spread. Rounding gives 1e-6 in float32. In bfloat16 it
# gives up to 0.12 on random tokens (SmolLM2-135M, the whole sequence anew against its own cache); a token too many or
# too few, or a position off by one, gave 0.24 at least and mostly more than 0.4.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_HALF = 0.18


LEAST_SHARED = 8
"""Tokens that prompts must share for computing them apart to pay."""


def choose_way(model: Causal, *, vocab: int, dtype: torch.dtype, windowed: bool) -> Way:
    """The fastest way that gives the scores of the whole sequence computed anew, on a few tokens.

    Args:
        model: the loaded model, in evaluation mode.
        vocab: token ids are below this.
        dtype: type of the weights, which decides what rounding may explain.
        windowed: whether tokens see only a window of those before them.
    """
    tolerance = _TOLERANCE.get(dtype, _TOLERANCE_HALF)
    plain = OneByOne(model, cached=False)
    if not model.has_cache:
        return plain
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocab, (3, 16), generator=random).tolist()
    tokens[1][:2] = tokens[0][:2]
    expected = _separate(plain, tokens)
    # A shared beginning, here of a single token, is computed once by the same code as a long one.
    sharing = Slots(model, least_shared=1)
    if not windowed and _agrees(lambda: _joined(sharing, tokens), expected, tolerance):
        return Slots(model, least_shared=LEAST_SHARED)
    padding = Slots(model, least_shared=None)
    if _agrees(lambda: _joined(padding, tokens), expected, tolerance):
        return padding
    cached = OneByOne(model, cached=True)
    if _agrees(lambda: _separate(cached, tokens), expected, tolerance):
        return cached
    return plain


def _agrees(scores: Callable[[], Tensor], expected: Tensor, tolerance: float) -> bool:
    """Whether the scores are the expected ones, up to rounding. A model that refuses the way does not agree."""
    try:
        difference = scores() - expected
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        return False
    spread = expected - expected.mean(-1, keepdim=True)
    return bool((difference.norm(dim=-1) <= tolerance * spread.norm(dim=-1)).all())


_PROMPTS = (5, 9, 12)  # lengths of the prompts in the check
_STEPS = 3  # then so many tokens each, of which the first row makes only one before it leaves


def _joined(way: Slots, tokens: Sequence[Sequence[int]]) -> Tensor:
    """Scores along a schedule with everything that continuous batching does: pad, leave, join, go on."""
    first, second, third = (list(ids) for ids in tokens)
    a, b, c = _PROMPTS
    scores, rows = way.start([first[:a], second[:b]])
    out = [scores]
    out.append(rows.step(torch.tensor([first[a], second[b]])))
    rows.keep([1])
    scores, new = way.start([third[:c]])
    out.append(scores)
    rows.join(new)
    out.extend(rows.step(torch.tensor([second[b + 1 + n], third[c + n]])) for n in range(_STEPS))
    return torch.cat(out)


def _separate(way: Way, tokens: Sequence[Sequence[int]]) -> Tensor:
    """The same scores, every row alone, in the same order."""
    first, second, third = (_alone(way, ids, prompt) for ids, prompt in zip(tokens, _PROMPTS, strict=True))
    out = [first[0], second[0], first[1], second[1], third[0]]
    for n in range(_STEPS):
        out += [second[2 + n], third[1 + n]]
    return torch.stack(out)


def _alone(way: Way, ids: Sequence[int], prompt: int) -> list[Tensor]:
    rows: Rows
    scores, rows = way.start([ids[:prompt]])
    out = [scores[0]]
    out += [rows.step(torch.tensor([token]))[0] for token in ids[prompt : prompt + _STEPS + 1]]
    return out
