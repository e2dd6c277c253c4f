from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Golden
from galley.base import GalleyError, Registry
from galley.recipe import Recipe, load
from galley.recipe.expected import members_of, section_of
from galley.recipe.names import NAMED
from recipe.methods_for_tests import MadeUpMethods

pytestmark = pytest.mark.unit

METHODS = MadeUpMethods()
BASE = {"task": "chat", "model": "org/name", "data": "rows.csv"}


def read(text: str, tmp_path: Path, *overrides: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, overrides, methods=METHODS)


def mistakes(text: str, tmp_path: Path, *overrides: str) -> list[str]:
    with pytest.raises(GalleyError) as caught:
        read(text, tmp_path, *overrides)
    assert caught.value.code == "recipe-invalid"
    return [line.strip().replace(f"{tmp_path}/", "") for line in caught.value.message.splitlines()[1:]]


THREE = "task: chat\nmodel: org/name\ndata: rows.csv\n"


def test_three_lines_are_enough(tmp_path: Path) -> None:
    recipe = read(THREE, tmp_path)
    assert (recipe.task, recipe.model, recipe.data.path) == ("chat", "org/name", "rows.csv")
    assert recipe.method.name is None
    assert recipe == Recipe.model_validate(BASE)


def test_scalars_are_yaml_1_2(tmp_path: Path) -> None:
    recipe = read(
        THREE + "optimizer: {learning_rate: 1e-5}\nname: no\nhardware: on\ndata.x: 1\n".replace("data.x: 1\n", ""),
        tmp_path,
    )
    assert recipe.optimizer.learning_rate == 1e-5
    assert recipe.name == "no"
    assert recipe.hardware == "on"


@pytest.mark.parametrize(("written", "value"), [("1e-5", 1e-5), ("1E-5", 1e-5), (".5", 0.5), ("1", 1.0), ("2.", 2.0)])
def test_a_float_field_takes_every_number(written: str, value: float, tmp_path: Path) -> None:
    got = read(THREE + f"optimizer:\n  learning_rate: {written}\n", tmp_path).optimizer.learning_rate
    assert got == value
    assert isinstance(got, float)


def test_dates_octal_looks_and_quoted_numbers_stay_what_they_look_like(tmp_path: Path) -> None:
    recipe = read("task: chat\nmodel: '15'\ndata: 2024-01-01\nseed: 010\n", tmp_path)
    assert (recipe.model, recipe.data.path, recipe.seed) == ("15", "2024-01-01", 10)


def test_every_mistake_is_reported_at_once(tmp_path: Path, golden: Golden) -> None:
    text = Path(__file__).with_name("many_mistakes.yaml").read_text(encoding="utf-8")
    lines = mistakes(text, tmp_path, "budget.epoch=3", "data.rows=x", "nonsense", "override.rank=[1")
    golden("many_mistakes.txt", "\n".join(lines) + "\n")


def test_a_mistake_names_file_line_value_allowed_and_nearest(tmp_path: Path) -> None:
    (line,) = mistakes(THREE + "override:\n  tuning: Lora\n", tmp_path)
    assert line.startswith("recipe.yaml:5: override.tuning: 'Lora' is not allowed; expected one of full, lora")
    assert line.endswith("did you mean lora?")


def test_number_in_quotes_is_named_as_such(tmp_path: Path) -> None:
    (line,) = mistakes(THREE + "optimizer: {learning_rate: '1e-5'}\n", tmp_path)
    assert "'1e-5'" in line
    assert "without quotes" in line


def test_unknown_task_lists_the_allowed_ones(tmp_path: Path) -> None:
    (line,) = mistakes(THREE.replace("chat", "classification"), tmp_path)
    assert "expected one of chat, complete, classify" in line


def test_duplicate_keys_are_refused_with_both_lines(tmp_path: Path) -> None:
    (line,) = mistakes(THREE + "seed: 1\nseed: 2\n", tmp_path)
    assert line.startswith("recipe.yaml:5: seed")
    assert "recipe.yaml:4" in line


def test_missing_keys_are_named(tmp_path: Path) -> None:
    lines = mistakes("seed: 1\n", tmp_path)
    assert {line.split(": ")[1] for line in lines} == {"task", "model", "data"}


def test_a_foreign_key_is_not_also_called_missing(tmp_path: Path) -> None:
    (line,) = mistakes("task: chat\nmodel_name_or_path: org/name\ndata: x.csv\n", tmp_path)
    assert line == "recipe.yaml:2: model_name_or_path: is called model here: write model: org/name"


def test_method_is_flat_in_the_file(tmp_path: Path) -> None:
    recipe = read(THREE + "method: {name: sft, train_on: all}\n", tmp_path)
    assert recipe.method.name == "sft"
    assert recipe.method.options == {"train_on": "all"}
    assert read(THREE + "method: sft\n", tmp_path).method.options == {}


def test_method_options_are_checked_against_the_method(tmp_path: Path) -> None:
    lines = mistakes(THREE + "method:\n  name: pairs\n  betta: 1\n  beta: -1\n", tmp_path)
    assert lines[0] == "recipe.yaml:6: method.betta: unknown key; did you mean beta?"
    assert lines[1] == "recipe.yaml:7: method.beta: -1 is not allowed; expected a number above 0"


def test_options_without_a_name_belong_to_the_tasks_method(tmp_path: Path) -> None:
    assert read(THREE + "method: {smoothing: 0.1}\n", tmp_path).method.options == {"smoothing": 0.1}
    (line,) = mistakes(THREE + "method: {beta: 0.1}\n", tmp_path)
    assert "method.beta: unknown key" in line


def test_unknown_method(tmp_path: Path) -> None:
    (line,) = mistakes(THREE + "method: sfft\n", tmp_path)
    assert line.startswith("recipe.yaml:4: method")
    assert line.endswith("expected one of pairs, sft; did you mean sft?")


BOMB = "a: &a [1,1,1,1,1,1,1,1]\n" + "".join(
    f"b{i}: &b{i} [{','.join([f'*b{i - 1}' if i else '*a'] * 8)}]\n" for i in range(9)
)
NO_RECIPES = {
    "empty": "",
    "comment": "# nothing\n",
    "list": "- a\n- b\n",
    "text": "just text",
    "open bracket": "task: [chat\n",
    "two colons": "task: a: b\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "tab": "\tx: 1\n",
    "deep": "[" * 3000,
    "alias of itself": "a: &x [*x]\n",
    "control character": "a: \x07\n",
    "aliases of aliases": BOMB,
}


@pytest.mark.parametrize("text", NO_RECIPES.values(), ids=NO_RECIPES)
def test_what_is_no_recipe_at_all_is_one_clear_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        read(text, tmp_path)
    assert caught.value.code == "recipe-syntax"
    assert "recipe.yaml" in caught.value.message
    assert len(caught.value.message) < 400


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match=r"recipe\.yaml:2:\d+"):
        read("task: chat\nmodel: a: b\n", tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_of_editors_are_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes((THREE + "name: a\n# 问题\n").encode(encoding))
    assert load(path, methods=METHODS).name == "a"


def test_other_encodings_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes("task: chat # 问题".encode("gb18030"))
    with pytest.raises(GalleyError) as caught:
        load(path, methods=METHODS)
    assert caught.value.code == "recipe-syntax"


def test_a_missing_recipe_points_at_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text(THREE)
    with pytest.raises(GalleyError) as caught:
        load(tmp_path / "famly.yaml", methods=METHODS)
    assert caught.value.code == "recipe-not-found"
    assert "family.yaml" in caught.value.hint


def test_overrides_are_yaml_and_win(tmp_path: Path) -> None:
    recipe = read(
        THREE + "budget: {epochs: 3}\n",
        tmp_path,
        "budget.epochs=1",
        "method.smoothing=0.2",
        "data=x.csv",
        "data.rows=5",
        "override.targets=[q_proj, k_proj]",
        "optimizer.learning_rate=1e-5",
        "name=no",
    )
    assert recipe.budget.epochs == 1.0
    assert recipe.method.options == {"smoothing": 0.2}
    assert (recipe.data.path, recipe.data.rows) == ("x.csv", 5)
    assert recipe.override.targets == ["q_proj", "k_proj"]
    assert recipe.optimizer.learning_rate == 1e-5
    assert recipe.name == "no"


def test_a_mistake_in_an_override_names_the_override(tmp_path: Path) -> None:
    lines = mistakes(THREE + "budget: {epochs: 3}\n", tmp_path, "budget.epochs=many", "num_train_epochs=3", "seed.x=1")
    assert lines[0].startswith("override budget.epochs=many: budget.epochs: 'many' is not allowed")
    assert (
        lines[1]
        == "override num_train_epochs=3: num_train_epochs: is called budget.epochs here: write budget: {epochs: 3}"
    )
    assert lines[2].startswith("override seed.x=1: seed: ")


def test_an_override_of_the_budget_replaces_what_it_excludes(tmp_path: Path) -> None:
    text = THREE + "budget: {epochs: 3, minutes: 9}\n"
    budget = read(text, tmp_path, "budget.steps=20").budget
    assert (budget.epochs, budget.steps, budget.minutes) == (None, 20, 9)
    assert "budget.steps: contradicts budget.epochs" in mistakes(text, tmp_path, "budget.steps=2", "budget.epochs=1")[0]


def test_an_override_does_not_change_the_mapping_it_came_from() -> None:
    given = {**BASE, "budget": {"epochs": 3}}
    load(given, ["budget.epochs=1"], methods=METHODS)
    assert given["budget"] == {"epochs": 3}


def test_a_mapping_from_python_may_hold_paths_and_tuples(tmp_path: Path) -> None:
    recipe = load({**BASE, "data": tmp_path / "x.csv", "optimizer": {"betas": (0.9, 0.99)}}, methods=METHODS)
    assert recipe.data.path == str(tmp_path / "x.csv")
    assert recipe.optimizer.betas == (0.9, 0.99)


def test_files_are_found_beside_the_recipe_then_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for path in (there / "rows.csv", here / "rows.csv", here / "net.py", there / "part-1.csv"):
        path.touch()
    monkeypatch.chdir(here)
    (there / "r.yaml").write_text("task: chat\nmodel: net.py:Net\ndata: rows.csv\nevaluate: {held_out: part-*.csv}\n")
    recipe = load(there / "r.yaml", methods=METHODS)
    assert recipe.data.path == str(there / "rows.csv")
    assert recipe.model == f"{here / 'net.py'}:Net"
    assert recipe.evaluate.held_out == str(there / "part-*.csv")


def test_words_that_name_no_file_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load({**BASE, "data": "reasoning-gym:family_relationships"}, methods=METHODS)
    assert (recipe.model, recipe.data.path) == ("org/name", "reasoning-gym:family_relationships")


def test_empty_sections_are_defaults(tmp_path: Path) -> None:
    assert read(THREE + "budget:\noverride:\n", tmp_path) == read(THREE, tmp_path)


@pytest.mark.parametrize(
    ("lines", "key", "word"),
    [
        ("budget: {epochs: 1, steps: 2}", "budget.steps", "budget.epochs"),
        ("budget: {memory: lots}", "budget.memory", "8GiB"),
        ("override: {tuning: full, rank: 8}", "override.rank", "override.tuning"),
        ("override: {micro_batch: 8, global_batch: 4}", "override.micro_batch", "override.global_batch"),
        ("override: {parallel: {fsdp: 0}}", "override.parallel.fsdp", "at least 1"),
        ("evaluate: {held_out: 0.6}", "evaluate.held_out", "0 to 0.5"),
        ("evaluate: {held_out: 100}", "evaluate.held_out", "only a share"),
        ("evaluate: {verdict: false, demand: better}", "evaluate.demand", "evaluate.verdict"),
        ("evaluate: {held_out: 0, demand: better}", "evaluate.demand", "evaluate.held_out"),
        ("evaluate: {held_out: 0, every: 5}", "evaluate.every", "evaluate.held_out"),
        ("optimizer: {decay: 0.2, schedule: cosine}", "optimizer.decay", "wsd"),
        ("optimizer: {warmup: 1.5}", "optimizer.warmup", "whole number of steps"),
        ("optimizer: {warmup: 10}\nbudget: {steps: 10}", "optimizer.warmup", "budget.steps"),
        ("optimizer: {betas: [0.9, 1.5]}", "optimizer.betas", "below 1"),
        ("budget: {memory: 0GiB}", "budget.memory", "above 0"),
        (f"budget: {{memory: {'9' * 400}GiB}}", "budget.memory", "8GiB"),
        ("override: {targets: []}", "override.targets", "all-linear"),
        ("override: {targets: ['']}", "override.targets", "all-linear"),
        ("override: {device: cpu:99}", "override.device", "cuda:N"),
        ("override: {device: gpu}", "override.device", "cuda:N"),
    ],
)
def test_contradictions(lines: str, key: str, word: str, tmp_path: Path) -> None:
    (line,) = mistakes(THREE + lines + "\n", tmp_path)
    assert line.split(": ")[1] == key
    assert word in line


def test_contradictions_are_found_beside_other_mistakes(tmp_path: Path) -> None:
    lines = mistakes(
        "task: chatt\nmodel: m\ndata: {path: x, rows: -1}\nbudget: {epochs: 1, steps: 2, minuts: 3}\n", tmp_path
    )
    assert {line.split(": ")[1] for line in lines} == {"task", "data.rows", "budget.steps", "budget.minuts"}


def test_splits_are_for_hub_datasets(tmp_path: Path) -> None:
    (line,) = mistakes("task: chat\nmodel: m\ndata: {path: x.csv, split: train}\n", tmp_path)
    assert "data.split" in line
    assert read("task: chat\nmodel: m\ndata: {path: 'hub:a/b', split: train}\n", tmp_path).data.split == "train"


@pytest.mark.parametrize("written", [".inf", "-.inf", ".nan", "1e999"])
def test_no_number_is_infinite(written: str, tmp_path: Path) -> None:
    for name, field in Recipe.model_fields.items():
        section = section_of(field.annotation)
        for key, inner in section.model_fields.items() if section is not None else ():
            if float in members_of(inner.annotation):
                (line,) = mistakes(THREE + f"{name}:\n  {key}: {written}\n", tmp_path)
                assert line.startswith(
                    f"recipe.yaml:5: {name}.{key}: {written.replace('1e999', '.inf')} is not allowed"
                )
    (line,) = mistakes(THREE + f"optimizer: {{betas: [0.9, {written}]}}\n", tmp_path)
    assert "optimizer.betas[1]" in line
    (line,) = mistakes(THREE + f"budget: {{epochs: {written}}}\n", tmp_path)
    assert "expected a finite number above 0" in line


def test_whole_numbers_have_upper_bounds(tmp_path: Path) -> None:
    huge = 10**30
    found = 0
    for name, field in Recipe.model_fields.items():
        section = section_of(field.annotation)
        if name == "data":
            section = None
        fields = {f"{name}: {{{key}: {huge}}}": inner for key, inner in section.model_fields.items()} if section else {}
        for line, inner in {f"{name}: {huge}": field, **fields}.items():
            if int in members_of(inner.annotation):
                (said,) = mistakes(THREE + line + "\n", tmp_path)
                assert "at most" in said
                found += 1
    assert found > 10
    for line in ("seed: 9223372036854775807", "override: {threads: 4096, global_batch: 1000000}"):
        read(THREE + line + "\n", tmp_path)
    for line in ("seed: 9223372036854775808", "override: {threads: 4097}", "override: {global_batch: 1000001}"):
        assert len(mistakes(THREE + line + "\n", tmp_path)) == 1


@pytest.mark.parametrize(
    ("lines", "key", "word"),
    [
        ("checkpoint: {sinks: [tensorboard, wandb]}", "checkpoint.sinks[1]", "tensorboard, trackio"),
        ("override: {engine: ray}", "override.engine", "expected one of"),
        ("override: {engine: singel}", "override.engine", "did you mean single?"),
        ("evaluate: {scorer: vibes}", "evaluate.scorer", "exact"),
    ],
)
def test_names_of_engines_scorers_and_sinks(lines: str, key: str, word: str, tmp_path: Path) -> None:
    (line,) = mistakes(THREE + lines + "\n", tmp_path)
    assert line.startswith(f"recipe.yaml:4: {key}: there is no ")
    assert word in line
    read(THREE + "override: {engine: single}\nevaluate: {scorer: exact}\ncheckpoint: {sinks: [trackio]}\n", tmp_path)


def test_names_are_those_of_the_real_registries() -> None:
    from galley import engines, runs
    from galley.evaluate.scorers import SCORERS

    registries: tuple[Registry[Any], ...] = (engines.registry, SCORERS, runs.SINKS)
    for mine, theirs in zip(NAMED.values(), registries, strict=True):
        assert (mine.package, mine.attribute, mine.kind) == (theirs.package, theirs.attribute, theirs.kind)


def test_names_are_checked_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(THREE + "override: {engine: single}\nevaluate: {scorer: exact}\ncheckpoint: {sinks: [trackio]}\n")
    code = (
        "import sys; from galley import methods; from galley.recipe import load; load(sys.argv[1], methods=methods); "
        "print([m for m in ('torch', 'transformers', 'numpy', 'trackio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("key", ["? {a: 1}\n: 4", "? [a, b]\n: 4", "? {}\n: 4", '"\\ud800": 4'])
def test_a_key_that_is_no_word(key: str, tmp_path: Path) -> None:
    (line,) = mistakes(THREE + key + "\n", tmp_path)
    assert line.startswith("recipe.yaml:4: ?: a key is a word")
    (line,) = mistakes(THREE + "budget:\n" + "".join(f"  {part}\n" for part in key.splitlines()), tmp_path)
    assert line.startswith("recipe.yaml:5: budget.?: a key is a word")


@pytest.mark.parametrize(
    ("words", "said"),
    [("''", "expected a path"), ("'  '", "expected a path"), ("x" * 5000, "too long"), ("x" * 300, "too long")],
)
@pytest.mark.parametrize("key", ["model", "data.path", "evaluate.held_out"])
def test_words_that_cannot_name_anything(key: str, words: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        read(THREE, tmp_path, f"{key}={words}")
    assert caught.value.code == "recipe-invalid"
    assert f"{key}: " in caught.value.message
    assert said in caught.value.message
    assert len(caught.value.message) < 500


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    (line,) = mistakes(THREE.replace("rows.csv", '{path: rows.csv, system: "\\ud800"}'), tmp_path)
    assert "data.system" in line
    line.encode()


def test_a_list_of_the_wrong_length_is_not_missing(tmp_path: Path) -> None:
    for written in ("[0.9]", "[0.9, 0.99, 0.999]", "[]"):
        (line,) = mistakes(THREE + f"optimizer: {{betas: {written}}}\n", tmp_path)
        assert line.startswith(
            f"recipe.yaml:4: optimizer.betas: {written} is not allowed; expected a list of 2 numbers"
        )
