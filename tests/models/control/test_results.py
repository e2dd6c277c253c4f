"""Saved and reloaded policies: the same actions to the bit, and clear errors for everything damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file

from galley.base import GalleyError
from galley.models.control.results import Policy, load_policy, save_policy
from models.control.policies import ACTED, OBSERVED, decision, observations

pytestmark = pytest.mark.tiny


def equal(one: Any, other: Any) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    ("observed", "acted"),
    [*(("vector", acted) for acted in ACTED), *((observed, "logits-multi") for observed in OBSERVED)],
)
def test_a_reloaded_policy_acts_the_same_to_the_bit(observed: str, acted: str, tmp_path: Path) -> None:
    made = decision(observed, acted)
    save_policy(tmp_path, made, method="ppo")
    before = torch.get_rng_state()
    reloaded = load_policy(tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert reloaded.spec == made.spec
    _, stacked = observations(observed, 64)
    flat = torch.from_numpy(made.spec.observations.flatten_many(stacked, 64))
    with torch.inference_mode():
        assert torch.equal(made.outputs(made.normalised(flat)), reloaded.outputs(reloaded.normalised(flat)))
        assert torch.equal(made(flat), reloaded(flat))


@pytest.mark.parametrize("acted", ACTED)
def test_actions_are_the_environments_own(acted: str) -> None:
    space = ACTED[acted][1]
    policy = Policy(decision("vector", acted, seed=1))
    single, stacked = observations("vector", 60)
    actions = [policy.act(one) for one in single]
    assert all(space.contains(np.asarray(a, space.dtype) if isinstance(space, spaces.Box) else a) for a in actions)
    assert len({str(a) for a in actions}) > 1
    np.testing.assert_allclose(policy.act(stacked), np.stack(actions), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("observed", OBSERVED)
def test_observations_one_by_one_stacked_and_flat(observed: str) -> None:
    policy = Policy(decision(observed, "squashed"))
    single, stacked = observations(observed, 12)
    together = policy.act(stacked)
    assert together.shape == (12, 2, 2)
    np.testing.assert_allclose(np.stack([policy.act(one) for one in single]), together, rtol=1e-4, atol=1e-5)
    if observed != "multi-discrete":  # whose flat rows look like observations
        flat = policy.decision.spec.observations.flatten_many(stacked, 12)
        np.testing.assert_array_equal(policy.act(flat), together)


def test_normalisation_is_part_of_what_is_saved(tmp_path: Path) -> None:
    made = decision("vector", "squashed")
    save_policy(tmp_path, made, method="sac")
    observation = np.array([3.0, -1, 2, 0.5, 1], np.float32)
    right = Policy.open(tmp_path).act(observation)
    made.get_buffer("shift").zero_()
    assert not equal(Policy(made).act(observation), right)


@pytest.mark.parametrize("shape", [(4,), (6,), (3, 4), (2, 3, 5)])
def test_other_observations_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(GalleyError, match="not what this policy was trained on") as caught:
        Policy(decision("vector", "logits")).act(np.zeros(shape, np.float32))
    assert caught.value.code == "environment-invalid"


def test_a_missing_part_of_an_observation_is_named() -> None:
    with pytest.raises(GalleyError, match="goal"):
        Policy(decision("dict", "logits")).act({"place": 1})


def test_drawn_actions_follow_the_distribution() -> None:
    policy = Policy(decision("vector", "logits"), seed=3)
    observation = np.ones(5, np.float32)
    seen = torch.from_numpy(observation)[None]
    made = policy.decision
    expected = made.outputs(made.normalised(seen)).softmax(1)[0].detach().numpy()
    drawn = policy.act(np.tile(observation, (20_000, 1)), sampled=True)
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, expected, atol=0.015)


def test_drawn_numbers_have_the_saved_deviation(tmp_path: Path) -> None:
    made = decision("vector", "mean")
    save_policy(tmp_path, made, method="ppo")
    policy = Policy.open(tmp_path, seed=1)
    rows = np.ones((20_000, 5), np.float32)
    drawn = policy.act(rows, sampled=True)
    assert drawn[:, 1].std() == pytest.approx(np.exp(0.5), rel=0.03)
    assert drawn[:, 1].mean() == pytest.approx(float(policy.act(rows[0])[1]), abs=0.05)
    assert np.abs(drawn[:, 0]).max() <= np.float32(0.1)
    again = Policy.open(tmp_path, seed=1).act(rows, sampled=True)
    assert equal(drawn, again)


@pytest.mark.parametrize("acted", ["values", "quantiles", "squashed"])
def test_nothing_is_drawn_where_there_is_no_distribution(acted: str) -> None:
    with pytest.raises(GalleyError, match="without a distribution") as caught:
        Policy(decision("vector", acted)).act(np.zeros(5, np.float32), sampled=True)
    assert caught.value.code == "model-unsupported"


def test_a_policy_with_memory_remembers_and_forgets(tmp_path: Path) -> None:
    made = decision("vector", "squashed", lstm=6)
    save_policy(tmp_path, made, method="recurrent-ppo")
    policy = Policy.open(tmp_path)
    _, stacked = observations("vector", 10)
    steps = np.stack([stacked, stacked[::-1], 2 * stacked])
    with torch.inference_mode():  # the whole sequence at once is the oracle
        features = torch.stack([made.normalised(torch.from_numpy(step)) for step in steps.copy()])
        outputs, _ = made.memory(features)  # type: ignore[misc]
        right = torch.stack([made.best(made.from_features(step)) for step in outputs]).numpy()
    acted = np.stack([policy.act(step) for step in steps])
    np.testing.assert_allclose(acted.reshape(3, 10, 4), right.reshape(3, 10, 4), rtol=1e-4, atol=1e-5)
    over = np.arange(10) < 4
    policy.reset(over)
    after = policy.act(steps[0])
    np.testing.assert_allclose(after[over], acted[0][over], rtol=1e-4, atol=1e-5)
    assert np.abs(after[~over] - acted[0][~over]).max(axis=(1, 2)).min() > 1e-4
    with pytest.raises(GalleyError, match="remembers 10 rows"):
        policy.act(steps[0][:3])
    policy.reset()
    assert policy.act(steps[0][:3]).shape == (3, 2, 2)


def test_the_folder_of_a_run_will_do(tmp_path: Path) -> None:
    save_policy(tmp_path / "result", decision("vector", "logits"), method="ppo")
    assert Policy.open(tmp_path).act(np.zeros(5)) in range(4)
    with pytest.raises(GalleyError) as caught:
        Policy.open(tmp_path / "elsewhere")
    assert caught.value.code == "run-unfinished"


def spoil_shape(folder: Path) -> None:
    weights = load_file(folder / "policy.safetensors")
    weights["body.0.weight"] = torch.zeros(16, 9)
    save_file(weights, folder / "policy.safetensors")


def spoil_name(folder: Path) -> None:
    weights = load_file(folder / "policy.safetensors")
    del weights["shift"]
    save_file(weights, folder / "policy.safetensors")


def spoil_type(folder: Path) -> None:
    weights = load_file(folder / "policy.safetensors")
    save_file({k: v.double() for k, v in weights.items()}, folder / "policy.safetensors")


def change(**values: Any) -> Any:
    def spoil(folder: Path) -> None:
        facts = json.loads((folder / "policy.json").read_text())
        facts.update(values)
        (folder / "policy.json").write_text(json.dumps(facts))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda f: (f / "policy.json").unlink(), "run-damaged", "policy.json"),
        (lambda f: (f / "policy.json").write_text("{"), "run-damaged", "policy.json"),
        (lambda f: (f / "policy.json").write_text("[1]"), "run-damaged", "does not describe a policy"),
        (change(format=2), "model-invalid", "has the format 2; this Galley reads 1"),
        (change(decision={"rule": "logits"}), "model-invalid", "no policy that can be built"),
        (lambda f: (f / "policy.safetensors").unlink(), "run-damaged", "policy.safetensors"),
        (lambda f: (f / "policy.safetensors").write_bytes(b"abc"), "run-damaged", "policy.safetensors"),
        (spoil_shape, "model-invalid", r"body.0.weight is \[16, 9\] float32, should be \[16, 5\] float32"),
        (spoil_name, "model-invalid", "shift is not there"),
        (spoil_type, "model-invalid", "float64, should be"),
    ],
)
def test_damage_is_a_clear_error(spoil: Any, code: str, words: str, tmp_path: Path) -> None:
    save_policy(tmp_path, decision("vector", "logits"), method="ppo")
    spoil(tmp_path)
    with pytest.raises(GalleyError, match=words) as caught:
        load_policy(tmp_path)
    assert caught.value.code == code
    assert caught.value.hint
