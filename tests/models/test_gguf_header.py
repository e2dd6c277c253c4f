"""Our reader of GGUF headers against the gguf package's, and against damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.models import resolve
from galley.models.gguf_header import _TYPES, LONGEST_KEPT_ARRAY, read_gguf_header
from models import hub_folders

pytestmark = pytest.mark.tiny


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hub_folders.gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", hub_folders.model("llama"))


def test_fields_and_tensors_equal_the_gguf_package(packed: Path) -> None:
    from gguf import GGUFReader

    theirs = GGUFReader(packed)
    ours = read_gguf_header(packed)
    for name, entry in theirs.fields.items():
        value = entry.contents()
        if isinstance(value, list) and len(value) > LONGEST_KEPT_ARRAY:
            assert name not in ours.fields
        elif not name.startswith("GGUF."):
            assert ours.fields[name] == value, name
    assert {tensor.name: tuple(tensor.shape) for tensor in theirs.tensors} == {
        name: tensor.shape for name, tensor in ours.tensors.items()
    }
    for tensor in theirs.tensors:
        assert ours.tensors[tensor.name].bytes == tensor.n_bytes
        assert ours.data_start + ours.tensors[tensor.name].offset == tensor.data_offset


def test_type_table_equals_the_gguf_package() -> None:
    from gguf import GGML_QUANT_SIZES

    for kind, (_, block, block_bytes) in _TYPES.items():
        assert GGML_QUANT_SIZES[kind] == (block, block_bytes), kind


def test_spec_of_a_gguf_equals_the_model(packed: Path, cache_folder: Path) -> None:
    spec = resolve(str(packed))
    module = hub_folders.model("llama")
    assert spec.num_parameters == sum(weight.numel() for weight in module.parameters())
    assert (spec.family, spec.kind, spec.source, spec.folder) == ("llama", "decoder", "gguf", None)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (2, 4, 2, 8)
    assert (spec.vocab_size, spec.max_positions) == (len(hub_folders.tokenizer()), 128)
    assert not spec.tied_embeddings
    assert spec.has_chat_template


def _fields() -> Any:
    number = st.integers(-(2**31), 2**31 - 1)
    scalar = st.one_of(number, st.booleans(), st.text(max_size=20), st.floats(width=32, allow_nan=False))
    lists = st.one_of(
        st.lists(number, min_size=1, max_size=100), st.lists(st.text(max_size=9), min_size=1, max_size=100)
    )
    return st.dictionaries(
        st.from_regex(r"[a-z]{1,8}\.[a-z]{1,8}", fullmatch=True), st.one_of(scalar, lists), max_size=8
    )


@settings(max_examples=40, deadline=None)
@given(fields=_fields())
def test_any_metadata_is_read_back(fields: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    from gguf import GGUFWriter

    path = tmp_path_factory.mktemp("any") / "any.gguf"
    writer = GGUFWriter(path, "test")
    for name, value in fields.items():
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_int32(name, value)
            case float():
                writer.add_float32(name, value)
            case str():
                writer.add_string(name, value)
            case list():
                writer.add_array(name, value)
    writer.add_tensor("x", np.zeros((2, 3), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf_header(path)
    for name, value in fields.items():
        if value != "" and not (isinstance(value, list) and len(value) > LONGEST_KEPT_ARRAY):
            assert header.fields[name] == value
    assert header.tensors["x"].shape == (3, 2)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_one_clear_error_or_harmless(
    data: st.DataObject, packed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(packed.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        header_bytes = read_gguf_header(packed).data_start
        for _ in range(data.draw(st.integers(1, 8))):
            content[data.draw(st.integers(0, header_bytes - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damage") / "damaged.gguf"
    path.write_bytes(content)
    found: GalleyError | None = None
    try:
        read_gguf_header(path)
    except GalleyError as error:
        found = error
    assert found is None or (found.code == "model-invalid" and str(path) in found.message)


def test_a_cut_file_is_never_accepted(packed: Path, tmp_path: Path) -> None:
    content = packed.read_bytes()
    for kept in (0, 3, 24, 1000, len(content) // 2, len(content) - 1):
        path = tmp_path / "cut.gguf"
        path.write_bytes(content[:kept])
        with pytest.raises(GalleyError):
            read_gguf_header(path)
