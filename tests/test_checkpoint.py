"""State round trips: every bit of every tensor, every plain value, and what is shared stays shared."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from galley import checkpoint
from galley.base import GalleyError

pytestmark = pytest.mark.unit

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64,
]  # fmt: skip

keys = st.one_of(st.text(max_size=6), st.integers(), st.sampled_from(["$tensor", "$dict", "a.b", "", "#2"]))
plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=6), st.just(-0.0)
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any dtype and any bits, from none to three axes, sometimes not contiguous, sometimes a view."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    count = math.prod(shape)
    size = torch.empty((), dtype=dtype).element_size()
    raw = draw(st.binary(min_size=count * size, max_size=count * size))
    if dtype is torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    tensor = torch.frombuffer(bytearray(raw), dtype=dtype) if count else torch.empty(0, dtype=dtype)
    tensor = tensor.reshape(shape)
    if draw(st.booleans()):
        tensor = tensor.mT if tensor.ndim >= 2 else tensor
    if draw(st.booleans()) and tensor.ndim:
        tensor = torch.cat([tensor, tensor])[: tensor.shape[0]]
    return tensor


states = st.recursive(
    st.one_of(plain, tensors()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()) if tensor.numel() else b""


def same(left: Any, right: Any) -> bool:
    """Equal in type, structure and every bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        return bool(left.dtype == right.dtype and left.shape == right.shape and bits(left) == bits(right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float):
        return bool(left.hex() == right.hex())
    return bool(left == right)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(keys, states, max_size=4))
def test_any_state_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, state: dict[Any, Any]) -> None:
    folder = tmp_path_factory.mktemp("state")
    checkpoint.save(folder, state)
    loaded = checkpoint.load(folder)
    assert same(state, loaded), (state, loaded)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    state = {"nan": math.nan, "inf": [math.inf, -math.inf], "tensor": torch.tensor([math.nan, -0.0])}
    checkpoint.save(tmp_path, state)
    loaded = checkpoint.load(tmp_path)
    assert math.isnan(loaded["nan"])
    assert loaded["inf"] == [math.inf, -math.inf]
    assert bits(loaded["tensor"]) == bits(state["tensor"])  # type: ignore[arg-type]


def test_shared_tensors_are_stored_once_and_stay_shared(tmp_path: Path) -> None:
    shared = torch.randn(1000, 100)
    checkpoint.save(tmp_path, {"embedding": shared, "head": shared.detach(), "other": shared.clone()})
    loaded = checkpoint.load(tmp_path)
    assert loaded["embedding"] is loaded["head"]
    assert loaded["other"] is not loaded["head"]
    assert (tmp_path / "state.safetensors").stat().st_size < 2.1 * shared.numel() * 4


def test_overlapping_views_and_other_dtypes_of_one_storage(tmp_path: Path) -> None:
    whole = torch.arange(16, dtype=torch.float32)
    state = {"whole": whole, "part": whole[4:8], "bytes": whole.view(torch.uint8), "rows": whole.view(4, 4)}
    checkpoint.save(tmp_path, state)
    assert same(state, checkpoint.load(tmp_path))


def test_the_file_does_not_follow_what_happens_later(tmp_path: Path) -> None:
    weight = torch.zeros(4)
    checkpoint.save(tmp_path, {"weight": weight})
    weight.fill_(9)
    loaded = checkpoint.load(tmp_path)
    assert torch.equal(loaded["weight"], torch.zeros(4))
    loaded["weight"].add_(1)
    assert torch.equal(checkpoint.load(tmp_path)["weight"], torch.zeros(4))


def test_a_real_optimiser_and_all_random_states(tmp_path: Path) -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    state: dict[str, Any] = {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
    }
    expected = (torch.rand(3), random.random())
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    checkpoint.save(tmp_path, state)
    torch.rand(5)
    random.random()
    loaded = checkpoint.load(tmp_path)
    assert same(state, loaded)
    torch.optim.AdamW(model.parameters()).load_state_dict(loaded["optimizer"])
    torch.set_rng_state(loaded["torch"])
    random.setstate(loaded["python"])
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]


def test_the_files_are_readable_without_galley_and_hold_no_pickle(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    checkpoint.save(tmp_path, {"engine": {"weights": {"lora_A.weight": torch.ones(2)}}, "step": 3})
    assert set(load_file(tmp_path / "state.safetensors")) == {"engine.weights.lora_A.weight"}
    assert json.loads((tmp_path / "state.json").read_text())["state"]["step"] == 3
    assert {path.name for path in tmp_path.iterdir()} == {"state.safetensors", "state.json"}


def test_other_values_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"'set' \(at engine\.seen\)"):
        checkpoint.save(tmp_path, {"engine": {"seen": {1}}})


def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        checkpoint.load(tmp_path)
    assert caught.value.code == "checkpoint-missing"
    checkpoint.save(tmp_path, {"a": torch.ones(3)})
    (tmp_path / "state.safetensors").write_bytes(b"nonsense")
    with pytest.raises(GalleyError) as caught:
        checkpoint.load(tmp_path)
    assert caught.value.code == "run-damaged"
    checkpoint.save(tmp_path, {"a": torch.ones(3)})
    (tmp_path / "state.json").write_text('{"format": 99, "state": {}}')
    with pytest.raises(GalleyError) as caught:
        checkpoint.load(tmp_path)
    assert caught.value.code == "checkpoint-mismatch"
