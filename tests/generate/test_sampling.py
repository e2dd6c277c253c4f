"""Filters against transformers' own, draws against the distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from galley.generate import Sampling
from galley.generate.sampling import choose, filtered, penalised, uniform

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-20, 1e-7, 1e-5])
def test_a_temperature_near_0_takes_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([[1e4, -3e4, 9e3], [0.0, 5.0, -1.0]])
    assert choose(logits, Sampling(temperature=temperature), [(0, 0), (1, 0)], [[], []]) == [0, 1]


def _logits(seed: int, rows: int = 5, vocab: int = 40) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def _processors(asked: Sampling) -> Any:
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    chosen: list[Any] = [TemperatureLogitsWarper(asked.temperature)]
    if asked.top_k:
        chosen.append(TopKLogitsWarper(asked.top_k))
    if asked.top_p < 1:
        chosen.append(TopPLogitsWarper(asked.top_p))
    if asked.min_p:
        chosen.append(MinPLogitsWarper(asked.min_p))
    return LogitsProcessorList(chosen)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.floats(0.2, 2.0),
    top_k=st.sampled_from([0, 1, 3, 39, 40, 100]),
    top_p=st.sampled_from([0.05, 0.3, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.5]),
)
def test_filters_keep_what_transformers_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    asked = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = _logits(seed)
    expected = _processors(asked)(torch.zeros(5, 1, dtype=torch.long), logits.clone())
    torch.testing.assert_close(filtered(logits / temperature, asked), expected)


@given(st.integers(0, 100), st.floats(1.0, 2.0))
@settings(max_examples=20, deadline=None)
def test_the_repetition_penalty_is_that_of_transformers(seed: int, penalty: float) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = _logits(seed)
    seen = torch.randint(40, (5, 7), generator=torch.Generator().manual_seed(seed))
    expected = RepetitionPenaltyLogitsProcessor(penalty)(seen, logits.clone())
    torch.testing.assert_close(penalised(logits, penalty, seen.tolist()), expected)


def test_draws_follow_the_filtered_distribution() -> None:
    asked = Sampling(temperature=0.7, top_k=12, seed=3)
    logits = _logits(0, rows=1)
    count = 20_000
    draws = choose(logits.expand(count, -1), asked, [(row, 4) for row in range(count)], [])
    probs = filtered(logits / asked.temperature, asked).double().softmax(-1)[0]
    kept = probs > 0
    observed = torch.bincount(torch.tensor(draws), minlength=40)
    assert int(observed[~kept].sum()) == 0
    assert stats.chisquare(observed[kept].numpy(), (probs[kept] * count).numpy()).pvalue > 1e-4


def test_random_numbers_are_uniform_and_independent_over_rows_and_steps() -> None:
    grid = torch.tensor([[uniform(7, row, step) for step in range(100)] for row in range(100)], dtype=torch.float64)
    assert stats.kstest(grid.flatten().numpy(), "uniform").pvalue > 1e-3
    for a, b in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:]), (grid, grid.T)):
        assert abs(float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])) < 0.03
    assert uniform(7, 1, 2) == uniform(7, 1, 2) != uniform(8, 1, 2)


def test_zero_temperature_takes_the_likeliest() -> None:
    logits = _logits(1)
    assert choose(logits, Sampling(), [(0, 0)] * 5, []) == logits.argmax(-1).tolist()
