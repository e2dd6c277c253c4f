from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.commands import Galley
from galley import generate, job, methods
from galley.base import GalleyError, Observer
from galley.recipe import Recipe, load
from galley.recipe.first import guess_task
from galley.runs import RunFolder

pytestmark = pytest.mark.unit


VERDICT = {
    "scorer": "exact",
    "metric": "share of exact answers",
    "higher_is_better": True,
    "baseline": "base model",
    "base": 0.0,
    "tuned": 0.54,
    "difference": 0.54,
    "interval": [0.44, 0.63],
    "p_value": 1e-9,
    "n": 100,
    "better": True,
    "worse": False,
    "sentence": "The tuned model is better.",
}


def make_run(root: Path, name: str, *, done: bool) -> RunFolder:
    run = RunFolder.create(
        root, name, recipe="task: chat\nmodel: m\ndata: d\n", plan={"steps": 40, "task": "chat"}, manifest={}
    )
    with run.open_metrics() as metrics:
        metrics.append({"step": 12, "loss": 1.25})
    if done:
        run.write_result("verdict.json", VERDICT)
        run.set_status("done")
    return run


def test_runs_lists_name_status_steps_loss_and_verdict(galley: Galley) -> None:
    make_run(galley.folder / "runs", "faq-1", done=True)
    make_run(galley.folder / "runs", "faq-2", done=False)
    lines = galley("runs").out.splitlines()
    assert lines[0].split() == [
        "name",
        "status",
        "steps",
        "loss",
        "held",
        "out",
        "tokens/s",
        "memory",
        "verdict",
        "when",
    ]
    assert lines[1].split()[:4] == ["faq-1", "done", "12/40", "1.25"]
    assert "better, 0 to 0.54" in lines[1]
    assert lines[2].split()[:5] == ["faq-2", "new", "12/40", "1.25", "-"]
    facts = json.loads(galley("runs", "--json").out)
    assert [(run["name"], run["step"], run["better"]) for run in facts] == [("faq-1", 12, True), ("faq-2", 12, None)]


def test_runs_sets_speed_and_memory_against_the_plan(galley: Galley) -> None:
    run = make_run(galley.folder / "runs", "faq-1", done=True)
    plan = json.loads((run.path / "plan.json").read_text())
    plan["predicted"] = {"tokens_per_second": [500, 1000, 1500], "memory_bytes": [1e9, 2**30, 2e9]}
    (run.path / "plan.json").write_text(json.dumps(plan))
    with run.metrics_path.open("a") as file:
        file.write(json.dumps({"step": 13, "loss": 1.2, "tokens_per_second": 1200.4, "memory_bytes": 2**29}) + "\n")
    line = galley("runs").out.splitlines()[1]
    assert "1,200 (+20%)" in line
    assert "512 MiB (-50%)" in line


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


def test_init_takes_the_only_table_of_the_folder(galley: Galley) -> None:
    (galley.folder / "prices.csv").write_text("question,answer\na,b\n")
    assert galley("init", "--output", "r.yaml").code == 0
    assert "data: prices.csv" in (galley.folder / "r.yaml").read_text()
    (galley.folder / "others.csv").write_text("question,answer\na,b\n")
    assert galley("init", "--output", "s.yaml").code == 0
    assert "data: reasoning-gym:" in (galley.folder / "s.yaml").read_text()


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
    assert set(schema["required"]) == {"task", "data"}
    assert schema["else"] == {"required": ["model"]}  # of every task but control
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


def test_train_passes_what_was_asked_and_prints_the_verdict(galley: Galley, monkeypatch: pytest.MonkeyPatch) -> None:
    (galley.folder / "r.yaml").write_text("task: chat\nmodel: m\ndata: d\n")
    seen: dict[str, Any] = {}

    def train(asked: Recipe, *, runs_root: Path, resume: str, observer: Observer) -> RunFolder:
        seen.update(asked=asked, runs_root=runs_root, resume=resume)
        observer.phase("train", total=2)
        observer.note("truncated", "1 row")
        return make_run(runs_root, "faq-1", done=True)

    monkeypatch.setattr(job, "train", train)
    outcome = galley("train", "r.yaml", "--runs", "here", "--resume", "never", "budget.epochs=2")
    assert outcome.code == 0
    assert (seen["asked"].budget.epochs, seen["runs_root"], seen["resume"]) == (2, Path("here"), "never")
    assert "The tuned model is better." in outcome.out
    assert "galley chat faq-1" in outcome.out
    assert "truncated: 1 row" in outcome.err
    assert "truncated" not in outcome.out


def test_train_with_json_prints_one_object_to_stdout_and_lines_to_stderr(
    galley: Galley, monkeypatch: pytest.MonkeyPatch
) -> None:
    (galley.folder / "r.yaml").write_text("task: chat\nmodel: m\ndata: d\n")

    def train(asked: Recipe, *, runs_root: Path, resume: str, observer: Observer) -> RunFolder:
        observer.phase("train", total=2)
        return make_run(runs_root, "faq-1", done=True)

    monkeypatch.setattr(job, "train", train)
    outcome = galley("train", "r.yaml", "--json")
    facts = json.loads(outcome.out)
    assert (facts["run"], facts["status"], facts["verdict"]["n"]) == ("faq-1", "done", 100)
    assert [json.loads(line)["event"] for line in outcome.err.splitlines()] == ["phase", "finished"]
    assert galley("train", "r.yaml", "--quiet", "--runs", "b").err == ""


def test_an_error_while_training_leaves_its_exit_code(galley: Galley, monkeypatch: pytest.MonkeyPatch) -> None:
    (galley.folder / "r.yaml").write_text("task: chat\nmodel: m\ndata: d\n")

    def train(asked: Recipe, *, runs_root: Path, resume: str, observer: Observer) -> RunFolder:
        observer.phase("train", total=2)
        raise GalleyError("interrupted", "stopped and saved after step 1 of 2", hint="galley resume faq-1")

    monkeypatch.setattr(job, "train", train)
    outcome = galley("train", "r.yaml")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err.endswith("error[interrupted]: stopped and saved after step 1 of 2\nhint: galley resume faq-1\n")


def test_resume_and_extend_continue_the_run_where_it_is(galley: Galley, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(galley.folder / "elsewhere", "faq-1", done=False)
    seen: list[Any] = []

    def train(asked: Recipe, *, runs_root: Path, resume: str, observer: Observer) -> RunFolder:
        seen.append((asked.model, runs_root, resume))
        return run

    def extend(folder: RunFolder, overrides: Sequence[str], *, observer: Observer) -> RunFolder:
        seen.append((folder.path, overrides))
        return run

    monkeypatch.setattr(job, "train", train)
    monkeypatch.setattr(job, "extend", extend)
    assert galley("resume", "elsewhere/faq-1").code == 0
    assert galley("extend", "faq-1", "budget.epochs=+1", "--runs", "elsewhere").code == 0
    assert seen == [("m", Path("elsewhere"), "faq-1"), (Path("elsewhere/faq-1"), ["budget.epochs=+1"])]


class Parrot:
    """A chat session that repeats, and counts."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def ask(self, text: str) -> Iterator[str]:
        self.count += 1
        yield f"{self.count}: "
        yield text

    def restarted(self) -> Parrot:
        return Parrot()


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--temperature", ["nan", "-1", "inf", "101", "warm"]),
        ("--max-new-tokens", ["0", "-5", "1.5", "many", str(10**30)]),
        ("--seed", ["-1", str(2**63), "x"]),
    ],
)
def test_chat_refuses_numbers_that_mean_nothing(option: str, values: list[str], galley: Galley) -> None:
    for value in values:
        outcome = galley("chat", "faq-1", "hi", option, value)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"error[usage]: argument {option}: ")
        assert f"{value} is not allowed" in outcome.err.replace("'", "")
        assert "number from" in outcome.err


def test_a_piped_conversation_goes_on_after_a_question_that_is_too_long(
    galley: Galley, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(Parrot):
        def ask(self, text: str) -> Iterator[str]:
            if len(text) > 5:
                raise GalleyError("prompt-too-long", "7 tokens leave no room", hint="shorten it")
            yield from super().ask(text)

    monkeypatch.setitem(vars(generate), "open_chat", lambda reference, **rest: Short())
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nmuch too long\nb\n"))
    outcome = galley("chat", "faq-1")
    assert outcome.out == "1: a\n2: b\n"
    assert outcome.err == "error[prompt-too-long]: 7 tokens leave no room\nhint: shorten it\n"
    assert outcome.code == 2
    assert "error[prompt-too-long]" in galley("chat", "faq-1", "much too long").err
    assert "error[usage]: the question is not UTF-8 text" in galley("chat", "faq-1", "\udcff").err


def test_chat_answers_one_question_or_a_stream_of_them(galley: Galley, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def open_chat(reference: str, **rest: Any) -> Parrot:
        seen.update(rest, reference=reference)
        rest["on_note"]("continuation", "this model does not chat")
        return Parrot()

    monkeypatch.setitem(vars(generate), "open_chat", open_chat)
    outcome = galley("chat", "faq-1", "who?", "--system", "be brief", "--temperature", "0.5", "--max-new-tokens", "9")
    assert (outcome.code, outcome.out) == (0, "1: who?\n")
    assert outcome.err == "continuation: this model does not chat\n"
    assert (seen["reference"], seen["system"], seen["runs_root"]) == ("faq-1", "be brief", Path("runs"))
    assert (seen["settings"].temperature, seen["settings"].max_new_tokens) == (0.5, 9)
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n/new\nc\n"))
    assert galley("chat", "faq-1").out == "1: a\n2: b\n1: c\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("eval", "agent"), "galley watch agent"),
        (("merge", "agent"), "galley export agent"),
        (("chat", "agent"), "galley watch agent"),
    ],
)
def test_verbs_for_rows_point_agents_to_theirs(words: Sequence[str], hint: str, galley: Galley) -> None:
    plan = {"task": "control", "steps": 9, "predicted": {"memory_bytes": 1 << 20, "memory_parts": {}}}
    RunFolder.create(galley.folder / "runs", "agent", recipe="task: control\n", plan=plan, manifest={})
    outcome = galley(*words)
    assert outcome.code == 2
    assert "error[model-unsupported]" in outcome.err
    assert hint in outcome.err


def test_runs_lists_agents_whose_memory_is_one_number(galley: Galley) -> None:
    plan = {"task": "control", "steps": 9, "predicted": {"memory_bytes": 1 << 20, "memory_parts": {}}}
    run = RunFolder.create(galley.folder / "runs", "agent", recipe="task: control\n", plan=plan, manifest={})
    with run.open_metrics() as metrics:
        metrics.append({"step": 9, "memory_bytes": 2 << 20})
    assert "(+100%)" in galley("runs").out
    (facts,) = json.loads(galley("runs", "--json").out)
    assert facts["predicted_memory_bytes"] == 1 << 20
