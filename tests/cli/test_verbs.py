from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import Galley
from galley import methods
from galley.recipe import load
from galley.recipe.first import guess_task
from galley.runs import RunFolder

pytestmark = pytest.mark.unit


def make_run(root: Path, name: str, *, done: bool) -> RunFolder:
    run = RunFolder.create(
        root, name, recipe="task: chat\nmodel: m\ndata: d\n", plan={"steps": 40, "task": "chat"}, manifest={}
    )
    with run.open_metrics() as metrics:
        metrics.append({"step": 12, "loss": 1.25})
    if done:
        run.write_result("verdict.json", {"better": True, "base": 0.0, "tuned": 0.54})
        run.set_status("done")
    return run


def test_runs_lists_name_status_steps_loss_and_verdict(galley: Galley) -> None:
    make_run(galley.folder / "runs", "faq-1", done=True)
    make_run(galley.folder / "runs", "faq-2", done=False)
    lines = galley("runs").out.splitlines()
    assert lines[0].split() == ["name", "status", "steps", "loss", "verdict", "when"]
    assert lines[1].split()[:4] == ["faq-1", "done", "12/40", "1.25"]
    assert "better (0 to 0.54)" in lines[1]
    assert lines[2].split()[:5] == ["faq-2", "new", "12/40", "1.25", "-"]
    facts = json.loads(galley("runs", "--json").out)
    assert [(run["name"], run["step"], run["better"]) for run in facts] == [("faq-1", 12, True), ("faq-2", 12, None)]


def test_runs_says_so_when_there_are_none(galley: Galley) -> None:
    assert "no runs in elsewhere" in galley("runs", "--runs", "elsewhere").out
    assert json.loads(galley("runs", "--json").out) == []


@pytest.mark.parametrize("verb", ["resume", "eval", "merge", "extend"])
def test_verbs_of_runs_point_at_the_nearest_run(verb: str, galley: Galley) -> None:
    make_run(galley.folder / "runs", "faq-1", done=True)
    outcome = galley(verb, "faq-2", *(["budget.epochs=+1"] if verb == "extend" else []))
    assert outcome.code == 2
    assert "error[run-not-found]" in outcome.err
    assert "faq-1" in outcome.err


def test_merge_needs_an_adapter(galley: Galley) -> None:
    run = make_run(galley.folder / "runs", "faq-1", done=True)
    assert "error[run-unfinished]: faq-1 has no adapter to merge\nhint: galley resume" in galley("merge", "faq-1").err
    (run.result / "model").mkdir()
    assert "is already a whole model" in galley("merge", "faq-1").err
    (run.result / "adapter").mkdir()
    outcome = galley("merge", "faq-1")
    assert outcome.code == 2
    assert "error[file-exists]" in outcome.err


def test_init_writes_a_recipe_that_loads_and_never_overwrites(galley: Galley) -> None:
    (galley.folder / "faq.csv").write_text("question,answer\na,b\n")
    outcome = galley("init", "faq.csv")
    assert outcome.code == 0
    recipe = load(galley.folder / "faq.yaml", methods=methods)
    assert (recipe.task, recipe.data.path) == ("chat", str(galley.folder / "faq.csv"))
    before = (galley.folder / "faq.yaml").read_text()
    again = galley("init", "classify", "faq.csv")
    assert again.code == 2
    assert "error[file-exists]" in again.err
    assert (galley.folder / "faq.yaml").read_text() == before
    assert galley("init", "faq.csv", "--output", "other.yaml", "--model", "org/name").code == 0
    assert load(galley.folder / "other.yaml", methods=methods).model == "org/name"


@pytest.mark.parametrize("task", ["chat", "complete", "classify"])
def test_init_without_data_gives_an_example(task: str, galley: Galley) -> None:
    assert galley("init", task, "--output", "r.yaml").code == 0
    recipe = load(galley.folder / "r.yaml", methods=methods)
    assert recipe.task == task


@pytest.mark.parametrize("name", ["it's 问题: a.csv", "a #b.csv", "-x.csv", "{a}.csv", "no"])
def test_init_quotes_strange_names(name: str, galley: Galley) -> None:
    (galley.folder / name).write_text("question,answer\na,b\n")
    words = [f"./{name}"] if name.startswith("-") else [name]
    assert galley("init", *words, "--output", "r.yaml").code == 0
    assert load(galley.folder / "r.yaml", methods=methods).data.path == str(galley.folder / name)


def test_init_says_what_it_does_not_understand(galley: Galley) -> None:
    assert "did you mean classify?" in galley("init", "classfy").err
    assert "error[usage]" in galley("init", "chat", "hub:a/b", "more").err


@pytest.mark.parametrize(
    ("name", "text", "task"),
    [
        ("a.csv", "question,answer\n", "chat"),
        ("a.csv", "text,label\n", "classify"),
        ("a.csv", "\ufeff文本,标签\n", "classify"),
        ("a.tsv", "Sentence\tCategory\n", "classify"),
        ("a.jsonl", '{"text": "x", "label": "y"}\n', "classify"),
        ("a.jsonl", '{"messages": []}\n', "chat"),
        ("a.txt", "once upon a time\n", "complete"),
        ("a.csv", "", "chat"),
    ],
)
def test_the_task_is_guessed_from_the_data(name: str, text: str, task: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert guess_task(str(tmp_path / name)) == task


def test_schema_is_json_schema(galley: Galley) -> None:
    schema = json.loads(galley("schema").out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["required"]) == {"task", "model", "data"}
    assert any(line.startswith("override.tuning ") for line in galley("schema", "--keys").out.splitlines())


def test_env_and_doctor_name_versions_and_what_is_missing(galley: Galley, monkeypatch: pytest.MonkeyPatch) -> None:
    from galley.base import diagnosis

    real = diagnosis.version_of
    monkeypatch.setattr(diagnosis, "version_of", lambda name: None if name == "pyarrow" else real(name))
    facts = json.loads(galley("env", "--json").out)
    assert facts["pyarrow"] == "not installed"
    assert facts["pydantic"] == real("pydantic")
    text = galley("doctor", "--fast").out
    assert "pip install 'galley-train[data]'" in text
    facts = json.loads(galley("doctor", "--fast", "--json").out)
    (pyarrow,) = [package for package in facts["packages"] if package["name"] == "pyarrow"]
    assert pyarrow == {"name": "pyarrow", "extra": "data", "enables": "Parquet tables", "version": None}


def test_data_shows_what_is_read(galley: Galley) -> None:
    (galley.folder / "faq.csv").write_text("question,answer\n" + "".join(f"q{n},a{n}\n" for n in range(30)))
    outcome = galley("data", "faq.csv", "data.rows=20")
    assert outcome.code == 0
    assert "prompt from 'question'" in outcome.out
    facts = json.loads(galley("data", "faq.csv", "data.rows=20", "--json").out)
    assert facts["rows"] + facts["held_out_rows"] == 20
    assert galley("data", "faq.csv", "--tokens").code == 2
