from __future__ import annotations

import re

import pytest

from galley.base import GalleyError
from galley.recipe import Recipe, load
from galley.recipe.expected import section_of
from galley.recipe.foreign import KEYS, NOTES, VALUES
from recipe.methods_for_tests import MadeUpMethods

pytestmark = pytest.mark.unit

ISSUE = """num_train_epochs cutoff_len per_device_train_batch_size gradient_accumulation_steps lora_r learning_rate
max_seq_length dataset base_model sequence_len micro_batch_size lora_target warmup_ratio output_dir"""


def our_keys() -> set[str]:
    keys = set(Recipe.model_fields)
    for name, field in Recipe.model_fields.items():
        section = section_of(field.annotation)
        keys |= {f"{name}.{key}" for key in (section.model_fields if section is not None else ())}
    return keys


def test_every_pointer_points_at_a_key_that_exists() -> None:
    assert set(KEYS.values()) <= our_keys()
    named = {word for note in NOTES.values() for word in re.findall(r"\b[a-z_]+\.[a-z_]+\b", note)}
    assert {word for word in named if word.partition(".")[0] in Recipe.model_fields} <= our_keys()


def test_no_pointer_hides_a_key_of_ours_at_the_top() -> None:
    assert not (set(KEYS) | set(NOTES)) & set(Recipe.model_fields)
    assert not set(KEYS) & set(NOTES)
    assert len(KEYS) + len(NOTES) > 120


@pytest.mark.parametrize("key", sorted({*KEYS, *NOTES, *ISSUE.split()}))
def test_each_renamed_key_gets_a_pointed_hint(key: str) -> None:
    with pytest.raises(GalleyError) as caught:
        load({"task": "chat", "model": "m", "data": "d", key: 1}, methods=MadeUpMethods())
    (line,) = caught.value.message.splitlines()[1:]
    told = line.partition(f"{key}: ")[2]
    assert told.startswith(("is called ", "belongs elsewhere: write ", "not a key here; "))
    assert key in KEYS or key in NOTES or "optimizer" in told


@pytest.mark.parametrize("key", ["lr", "num_train_epochs", "lora-r", "Max_Seq_Length"])
def test_hints_also_work_inside_a_section_and_for_other_spellings(key: str) -> None:
    with pytest.raises(GalleyError, match="is called"):
        load({"task": "chat", "model": "m", "data": "d", "override": {key: 1}}, methods=MadeUpMethods())


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("override", "precision", "bfloat16"),
        ("optimizer", "name", "adamw_torch"),
        ("optimizer", "schedule", "constant_with_warmup"),
    ],
)
def test_renamed_values_get_a_pointed_hint(section: str, key: str, value: str) -> None:
    with pytest.raises(GalleyError, match=f"here it is called {VALUES[value]}"):
        load({"task": "chat", "model": "m", "data": "d", section: {key: value}}, methods=MadeUpMethods())
