from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.recipe import Recipe, dump, extend, json_schema, key_lines, load
from galley.recipe.document import from_mapping, from_text
from galley.recipe.load import check
from recipe.methods_for_tests import MadeUpMethods

pytestmark = pytest.mark.unit

METHODS = MadeUpMethods()
BASE = {"task": "chat", "model": "org/name", "data": "rows.csv"}

# what YAML can hold: no lone surrogates and no control characters but tab and newline
plain = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\t\n"), max_size=20)
tricky = "no|1e-5|1e5|.5|~|null|True|010|0x1F|2024-01-01|a: b|# x|- x|| |*x|&x|!x|<<|=|1_000|_|'|\"|\\|.inf|0b1"
texts = plain | st.sampled_from(tricky.split("|"))
words = texts.filter(str.strip)
positive = st.floats(min_value=1e-12, max_value=1e3)
values = texts | st.integers() | st.booleans() | st.floats(allow_nan=False) | st.none()


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


data = st.fixed_dictionaries(
    {"path": words},
    optional={
        "columns": st.dictionaries(texts, texts, max_size=3),
        "system": texts,
        "rows": st.integers(1, 10**9),
        "options": st.dictionaries(texts, values | st.lists(values, max_size=2), max_size=3),
    },
)
method = st.fixed_dictionaries({"name": st.just("sft"), "smoothing": st.floats(0, 0.99)})
betas = st.tuples(st.floats(0, 0.99), st.floats(0, 0.99))
recipes = st.fixed_dictionaries(
    {"task": st.sampled_from(["chat", "complete", "classify"]), "model": words, "data": words | data},
    optional={
        "method": st.sampled_from(["sft", "pairs"]) | method,
        "budget": optional(epochs=positive, minutes=positive, memory=st.sampled_from(["8GiB", "1.5 gb"])),
        "evaluate": optional(held_out=st.floats(0, 0.5) | words, rows=st.integers(1, 99), verdict=st.booleans()),
        "optimizer": st.sampled_from(["adamw", "muon"]) | optional(learning_rate=positive, betas=betas, clip=positive),
        "override": optional(targets=words | st.lists(words, min_size=1, max_size=3), packing=st.booleans()),
        "checkpoint": optional(
            sinks=st.lists(st.sampled_from(["tensorboard", "trackio"]), max_size=2), keep=st.integers(1, 5)
        ),
        "hardware": texts,
        "seed": st.integers(0, 2**40),
    },
)
SECTIONS = ("task", "method", "data", "budget", "override")
keys = st.sampled_from([*Recipe.model_fields, "epochs", "path", "lr", "x"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
nonsense = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@given(recipes)
@settings(max_examples=100, deadline=None)
def test_dump_loads_back_equal(values: dict[str, Any]) -> None:
    recipe = check(from_mapping(values), METHODS)
    assert check(from_text(dump(recipe), "again.yaml"), METHODS) == recipe


def test_dump_holds_only_what_differs_from_the_defaults() -> None:
    values = {**BASE, "method": {"name": "sft", "train_on": "all"}, "budget": {"epochs": 2}, "seed": 0}
    text = dump(load(values, methods=METHODS))
    assert text == (
        "task: chat\nmodel: org/name\ndata: rows.csv\nmethod:\n  name: sft\n  train_on: all\nbudget:\n  epochs: 2.0\n"
    )


@given(nonsense)
@settings(max_examples=200, deadline=None)
def test_any_nonsense_is_a_recipe_or_a_galley_error(value: Any) -> None:
    values = value if isinstance(value, dict) else dict.fromkeys(SECTIONS, value)
    try:
        load(values, methods=METHODS)
    except GalleyError as error:
        assert error.code == "recipe-invalid"  # noqa: PT017 (no error is right as well)


@given(st.text(max_size=40), st.text(max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_override_is_taken_or_a_galley_error(key: str, value: str) -> None:
    try:
        load(BASE, [f"{key}={value}", f"budget.{key}={value}", key], methods=METHODS)
    except GalleyError as error:
        assert error.code == "recipe-invalid"  # noqa: PT017


def test_extend_adds_to_the_budget() -> None:
    recipe = load({**BASE, "budget": {"epochs": 3}}, methods=METHODS)
    assert extend(recipe, ["budget.epochs=+1"], methods=METHODS).budget.epochs == 4
    assert extend(recipe, ["budget.epochs=+0.5"], methods=METHODS).budget.epochs == 3.5
    assert extend(recipe, ["budget.epochs=5"], methods=METHODS).budget.epochs == 5
    assert extend(recipe, ["budget.epochs=+1"], methods=METHODS).data == recipe.data


def test_extend_adds_to_what_the_plan_decided() -> None:
    recipe = load(BASE, methods=METHODS)
    assert extend(recipe, ["budget.steps=+10"], methods=METHODS, decided={"budget.steps": 40}).budget.steps == 50
    with pytest.raises(GalleyError, match="no value to add to"):
        extend(recipe, ["budget.steps=+10"], methods=METHODS)


def test_extend_by_another_measure_replaces_the_old_one() -> None:
    recipe = load({**BASE, "budget": {"epochs": 3}}, methods=METHODS)
    budget = extend(recipe, ["budget.steps=+10"], methods=METHODS, decided={"budget.steps": 40}).budget
    assert (budget.steps, budget.epochs) == (50, None)


@pytest.mark.parametrize("override", ["seed=1", "override.rank=8", "budget.epochs=+x", "budget.epoch=+1", "budget"])
def test_extend_refuses_everything_else(override: str) -> None:
    recipe = load({**BASE, "budget": {"epochs": 3}}, methods=METHODS)
    with pytest.raises(GalleyError) as caught:
        extend(recipe, [override], methods=METHODS)
    assert caught.value.code == "recipe-invalid"
    assert override in caught.value.message


def test_json_schema_accepts_what_loads_and_refuses_what_does_not() -> None:
    validator = jsonschema.Draft202012Validator(json_schema(METHODS))
    validator.check_schema(json_schema(METHODS))
    good: list[dict[str, Any]] = [
        BASE,
        {**BASE, "data": {"path": "x", "rows": 3}, "method": "sft", "optimizer": "adamw"},
        {**BASE, "method": {"name": "pairs", "beta": 0.2}, "optimizer": {"betas": [0.9, 0.99]}},
        {**BASE, "evaluate": {"held_out": "x.csv"}, "override": {"targets": ["a"]}},
    ]
    bad: list[dict[str, Any]] = [
        {**BASE, "task": "x"},
        {**BASE, "method": "x"},
        {**BASE, "method": {"name": "sft", "beta": 0.2}},
        {**BASE, "budget": {"epoch": 1}},
        {**BASE, "optimizer": "adam"},
        {"task": "chat"},
    ]
    for values in good:
        validator.validate(values)
        load(values, methods=METHODS)
    for values in bad:
        assert not validator.is_valid(values), values
        with pytest.raises(GalleyError):
            load(values, methods=METHODS)


def test_every_field_of_the_schema_is_described() -> None:
    schema = json_schema(METHODS)
    text = json.dumps(schema)
    assert "#/$defs/MethodSection" not in text
    for name, definition in {**schema["$defs"], "recipe": schema}.items():
        for key, field in definition["properties"].items():
            assert field.get("description"), f"{name}.{key}"
        assert len(definition["properties"]) <= 20, name


def test_key_lines_name_every_key() -> None:
    lines = key_lines(METHODS)
    assert any(line.startswith("override.tuning") and "one of full, lora" in line for line in lines)
    assert any(line.startswith("method.beta (pairs)") for line in lines)
    assert not any("options  " in line and line.startswith("method.") for line in lines)
