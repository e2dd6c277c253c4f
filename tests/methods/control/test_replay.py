"""Replay memory against a slow, obvious implementation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import NStepReplayBuffer

from galley import checkpoint
from galley.data.environments import Step
from galley.data.environments.layout import ActionLayout, Leaf, ObservationLayout, action_layout, observation_layout
from galley.methods.control.replay import ReplayMemory, num_bytes
from galley.methods.control.sum_tree import SumTree

pytestmark = pytest.mark.unit

VECTOR = ObservationLayout((Leaf("", "vector", (2,), 0, 2),), "float32")
PIXELS = observation_layout(spaces.Box(0, 255, (4, 4, 1), np.uint8))
DISCRETE = ActionLayout("discrete", (3,), (0.0,), (2.0,), ())
BOX = action_layout(spaces.Box(-1, 1, (2,), np.float32))


def play(script: list[list[str]], seed: int = 0) -> list[tuple[Any, Any, Step]]:
    """Steps whose every number is different, with each copy's events: `go`, `die`, `cut`, `both`; idle after an end
    for copies of odd number, as native environments are, and reset at once for even ones."""
    random = np.random.default_rng(seed)
    copies = len(script[0])
    now = random.random((copies, 2)).astype(np.float32)
    idle = np.zeros(copies, np.bool_)
    steps = []
    for events in script:
        events_ = ["go" if idle[i] else event for i, event in enumerate(events)]
        terminated = np.array([event in ("die", "both") for event in events_])
        truncated = np.array([event in ("cut", "both") for event in events_])
        over = terminated | truncated
        following = random.random((copies, 2)).astype(np.float32)
        finals = following.copy()
        resets = over & (np.arange(copies) % 2 == 0)
        following[resets] = random.random((int(resets.sum()), 2))
        actions = random.integers(0, 3, copies)
        rewards = random.standard_normal(copies).astype(np.float32)
        step = Step(
            following, rewards, terminated, truncated, finals if over.any() else None, idle if idle.any() else None, ()
        )
        steps.append((now, actions, step))
        now, idle = following, over & (np.arange(copies) % 2 == 1)
    return steps


def obvious(steps: list[tuple[Any, Any, Step]], gamma: float, n: int) -> list[tuple[Any, ...]]:
    """All complete rows, copy by copy: each step looks ahead until its episode ends or n steps are summed up."""
    rows = []
    for copy in range(len(steps[0][0])):
        own = [(o[copy], a[copy], s, copy) for o, a, s in steps if s.idle is None or not s.idle[copy]]
        for start, (seen, action, _, _) in enumerate(own):
            total, factor = 0.0, 1.0
            for k, (_, _, step, _) in enumerate(own[start : start + n], 1):
                total += factor * float(step.rewards[copy])
                factor *= gamma
                over = step.terminated[copy] or step.truncated[copy]
                if over or k == n:
                    discount = 0.0 if step.terminated[copy] else factor
                    rows.append((seen, action, total, step.successors[copy], discount))
                    break
    return rows


def as_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    seen, action, reward, successor, discount = row
    numbers = (*map(float, seen), float(action), float(reward), *map(float, successor), float(discount))
    return tuple(round(x, 5) for x in numbers)


def everything(memory: ReplayMemory) -> list[tuple[Any, ...]]:
    """The rows of the memory, through its state."""
    columns = [memory.state()["rows"][c] for c in ("observations", "actions", "rewards", "successors", "discounts")]
    return [tuple(column[i].numpy() for column in columns) for i in range(len(memory))]


EVENTS = st.sampled_from(["go", "go", "go", "go", "die", "cut", "both"])


@settings(max_examples=80, deadline=None)
@given(data=st.data(), copies=st.integers(1, 4), n=st.integers(1, 4), length=st.integers(1, 25))
def test_rows_are_those_of_the_obvious_implementation(data: st.DataObject, copies: int, n: int, length: int) -> None:
    script = data.draw(st.lists(st.lists(EVENTS, min_size=copies, max_size=copies), min_size=length, max_size=length))
    steps = play(script)
    memory = ReplayMemory(1000, copies, VECTOR, DISCRETE, gamma=0.9, n_step=n, seed=0)
    for seen, actions, step in steps:
        memory.add(seen, actions, step)
    expected = np.array(sorted(as_key(row) for row in obvious(steps, 0.9, n))).reshape(-1, 7)
    got = np.array(sorted(as_key(row) for row in everything(memory))).reshape(-1, 7)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max(initial=0.0) < 3e-5


@settings(max_examples=30, deadline=None)
@given(capacity=st.integers(4, 12), length=st.integers(1, 40), copies=st.integers(1, 4))
def test_the_newest_rows_are_kept_in_a_ring(capacity: int, length: int, copies: int) -> None:
    steps = play([["go"] * copies] * length)
    memory = ReplayMemory(capacity, copies, VECTOR, DISCRETE, gamma=0.9, seed=0)
    for seen, actions, step in steps:
        memory.add(seen, actions, step)
    rewards = np.concatenate([step.rewards for _, _, step in steps])
    kept = memory.state()["rows"]["rewards"].numpy()
    assert len(memory) == min(capacity, length * copies)
    assert sorted(kept) == sorted(rewards[-capacity:])


def test_n_step_rows_equal_stable_baselines() -> None:
    steps = play([[event] for event in ("go", "go", "cut", "go", "go", "go", "die", "go", "cut")])
    memory = ReplayMemory(100, 1, VECTOR, DISCRETE, gamma=0.9, n_step=3, seed=0)
    theirs = NStepReplayBuffer(
        100, spaces.Box(-1, 2, (2,)), spaces.Discrete(3), device="cpu", n_envs=1, n_steps=3, gamma=0.9
    )
    for seen, actions, step in steps:
        memory.add(seen, actions, step)
        infos = [{"TimeLimit.truncated": bool(step.truncated[0])}]
        theirs.add(seen, step.successors, actions, step.rewards, step.terminated | step.truncated, infos)
    rows = theirs._get_samples(np.arange(len(steps)))
    discounts = (1 - rows.dones) * rows.discounts
    assert rows.discounts is not None
    ours = memory.state()["rows"]
    order = [int((ours["observations"] == seen).all(1).nonzero()[0, 0]) for seen in rows.observations]
    for name, expected in (
        ("rewards", rows.rewards[:, 0]),
        ("discounts", discounts[:, 0]),
        ("successors", rows.next_observations),
    ):
        assert torch.allclose(ours[name][order], expected.float(), atol=1e-6), name


def test_minibatches_have_their_shapes_and_come_from_all_rows() -> None:
    memory = ReplayMemory(50, 2, VECTOR, BOX, gamma=0.5, seed=1)
    random = np.random.default_rng(0)
    for seen, _, step in play([["go", "go"]] * 10):
        memory.add(seen, random.random((2, 2)).astype(np.float32), step)
    many = memory.sample_many(32, 40)
    shapes = {name: tuple(rows.shape) for name, rows in many.items()}
    assert shapes == {
        "observations": (40, 32, 2),
        "actions": (40, 32, 2),
        "rewards": (40, 32),
        "successors": (40, 32, 2),
        "discounts": (40, 32),
        "weights": (40, 32),
        "indices": (40, 32),
    }
    assert set(many["indices"].flatten().tolist()) == set(range(20))
    assert set(many["weights"].flatten().tolist()) == {1.0}
    assert set(many["discounts"].flatten().tolist()) == {0.5}
    one = memory.sample(5)
    rows = memory.state()["rows"]
    assert torch.equal(one["successors"], rows["successors"][one["indices"]])


def test_pixels_stay_bytes() -> None:
    memory = ReplayMemory(10, 1, PIXELS, DISCRETE, gamma=0.9, n_step=2, seed=0)
    picture = np.arange(16, dtype=np.uint8)[None]
    over = np.array([False])
    for shift in range(3):
        memory.add(
            picture + shift,
            np.array([1]),
            Step(picture + shift + 1, np.ones(1, np.float32), over, over, None, None, ()),
        )
    batch = memory.sample(4)
    assert batch["observations"].dtype == torch.uint8
    assert torch.equal(batch["successors"].int() - batch["observations"].int(), torch.full((4, 16), 2, dtype=torch.int))


@settings(max_examples=40, deadline=None)
@given(
    capacity=st.integers(1, 70),
    changes=st.lists(st.lists(st.tuples(st.integers(0, 69), st.floats(0, 1e6)), min_size=1, max_size=9), max_size=20),
)
def test_sums_are_exact_and_equal_a_tree_made_anew(capacity: int, changes: list[list[tuple[int, float]]]) -> None:
    tree, plain = SumTree(capacity), np.zeros(capacity)
    for change in changes:
        indices = np.array([index % capacity for index, _ in change])
        tree.set(indices, np.array([value for _, value in change]))
        for index, (_, value) in zip(indices, change, strict=True):
            plain[index] = value
    assert np.array_equal(tree.priorities(np.arange(capacity)), plain)
    assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    anew = SumTree(capacity)
    anew.fill(plain)
    assert np.array_equal(anew._nodes, tree._nodes)
    if plain.sum() > 0:
        assert (plain[tree.sample(200, np.random.default_rng(0))] > 0).all()


def prioritised(rows: int = 64) -> ReplayMemory:
    memory = ReplayMemory(rows, 1, VECTOR, DISCRETE, gamma=0.9, priority_exponent=0.5, seed=3)
    for seen, actions, step in play([["go"]] * rows):
        memory.add(seen, actions, step)
    return memory


def test_rows_are_drawn_in_proportion_to_their_errors() -> None:
    memory = prioritised()
    errors = torch.linspace(0.0, -9.0, 64)
    memory.update_priorities(torch.arange(64), errors)
    batch = memory.sample_many(64, 400, 0.4)
    drawn = torch.bincount(batch["indices"].flatten(), minlength=64) / (64 * 400)
    shares = (errors.abs() + 1e-6) ** 0.5
    shares = shares / shares.sum()
    assert torch.allclose(drawn, shares, atol=0.003)
    weights = (64 * shares[batch["indices"]]) ** -0.4
    expected = weights / weights.max(dim=1, keepdim=True).values
    assert torch.allclose(batch["weights"], expected.float(), rtol=1e-4)


def test_a_new_row_has_the_highest_priority_so_far() -> None:
    memory = prioritised()
    memory.update_priorities(torch.arange(64), torch.full((64,), 0.01))
    memory.update_priorities(torch.tensor([5]), torch.tensor([100.0]))
    seen, actions, step = play([["go"]])[0]
    memory.add(seen, actions, step)  # takes the place of row 0
    drawn = torch.bincount(memory.sample(4000)["indices"], minlength=64) / 4000
    assert drawn[0] == pytest.approx(float(drawn[5]), abs=0.01)
    assert drawn[0] > 0.3


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.0), (3, 0.6)])
def test_a_loaded_memory_continues_to_the_bit(n: int, alpha: float, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    script = [[str(random.choice(["go", "go", "go", "die", "cut"])) for _ in range(3)] for _ in range(60)]
    steps = play(script)

    def memory(seed: int) -> ReplayMemory:
        return ReplayMemory(100, 3, VECTOR, DISCRETE, gamma=0.9, n_step=n, priority_exponent=alpha, seed=seed)

    def go_on(memory: ReplayMemory, steps: list[Any]) -> list[Any]:
        seen_rows = []
        for seen, actions, step in steps:
            memory.add(seen, actions, step)
            if len(memory) < 10:
                continue
            batch = memory.sample(8, 0.5)
            memory.update_priorities(batch["indices"], batch["rewards"])
            seen_rows.append(batch)
        return seen_rows

    for cut in (20, 50):  # before and after the ring is full
        first, second = memory(0), memory(7)
        go_on(first, steps[:cut])
        checkpoint.save(tmp_path, first.state())
        second.load_state(checkpoint.load(tmp_path))
        assert (tmp_path / "state.safetensors").stat().st_size < 100 * len(first) + 6000
        expected, got = go_on(first, steps[cut:]), go_on(second, steps[cut:])
        assert expected
        for one, other in zip(expected, got, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.0), (3, 0.6)])
@pytest.mark.parametrize("observations", [VECTOR, PIXELS])
def test_bytes_are_known_beforehand(observations: ObservationLayout, n: int, alpha: float) -> None:
    memory = ReplayMemory(1000, 4, observations, BOX, gamma=0.9, n_step=n, priority_exponent=alpha, seed=0)
    held = sum(column.nbytes for column in memory._columns.values())
    held += 0 if memory._tree is None else memory._tree._nodes.nbytes
    held += 0 if memory._windows is None else sum(kept.nbytes for kept in memory._windows._kept().values())
    assert num_bytes(1000, 4, observations, BOX, n_step=n, priority_exponent=alpha) == held


def test_an_empty_memory_gives_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        ReplayMemory(10, 1, VECTOR, DISCRETE, gamma=0.9, seed=0).sample(1)
