from __future__ import annotations

import errno
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands import Galley, in_own_process
from conftest import Golden
from galley import __version__
from galley.base import GalleyError
from galley.cli.main import VERBS, overview, parser
from galley.cli.verb import Verb, table

pytestmark = pytest.mark.unit

GOOD = "task: chat\nmodel: smollm2-135m-instruct\ndata: faq.csv\n"
BAD = GOOD.replace("chat", "chatt", 1) + "num_train_epochs: 3\noptimizer: {learning_rate: '1e-5'}\n"
FAQ = "question,answer\n" + "".join(f"what is {n} plus {n}?,It is {2 * n}.\n" for n in range(60))


def test_overview(galley: Galley, golden: Golden) -> None:
    outcome = galley("--help")
    assert (outcome.code, outcome.err) == (0, "")
    golden("overview.txt", outcome.out)
    assert galley().out == galley("help").out == outcome.out
    assert overview() + "\n" == outcome.out


@pytest.mark.parametrize("name", VERBS.names())
def test_help_of_every_verb(name: str, galley: Galley, golden: Golden) -> None:
    outcome = galley(name, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    golden(f"help-{name}.txt", outcome.out)


def test_the_verbs_are_all_there() -> None:
    wanted = "train plan chat data eval runs resume extend merge doctor schema init env version"
    assert set(wanted.split()) <= set(VERBS.names())


@pytest.mark.parametrize("name", VERBS.names())
def test_conformance_of_every_verb(name: str) -> None:
    verb = VERBS.get(name)
    made = parser(name, verb)
    assert verb.help[0].islower()
    assert not verb.help.endswith(".")
    assert len(verb.help) <= 100
    for example in verb.examples:
        words = example.replace("'", "").split()
        assert words[:2] == ["galley", name]
    hidden = [action.dest for action in made._actions if not action.help]
    assert not hidden


def test_a_mistyped_verb_points_at_the_nearest(galley: Galley) -> None:
    outcome = galley("trian", "r.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error[name-unknown]: there is no verb 'trian'\nhint: did you mean train?")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("faq.yaml",), "hint: galley train faq.yaml"),
        (("--json", "plan"), "the verb comes first"),
        (("plan",), "the following arguments are required: RECIPE"),
        (("plan", "r.yaml", "--jsn"), "--jsn"),
        (("eval", "run", "--rows", "many"), "invalid int value: 'many'"),
    ],
)
def test_usage_errors_are_two_lines_and_exit_2(words: tuple[str, ...], message: str, galley: Galley) -> None:
    outcome = galley(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error[usage]: ")
    assert len(outcome.err.splitlines()) == 2
    assert message in outcome.err


def test_all_mistakes_of_a_recipe_on_the_screen(galley: Galley, golden: Golden) -> None:
    (galley.folder / "faq.yaml").write_text(BAD)
    outcome = galley("plan", "faq.yaml", "budget.epoch=3")
    assert (outcome.code, outcome.out) == (2, "")
    golden("recipe-mistakes.txt", outcome.err)


def test_a_missing_recipe(galley: Galley) -> None:
    outcome = galley("train", "faq.yaml")
    assert outcome.code == 2
    assert "error[recipe-not-found]: faq.yaml: No such file or directory" in outcome.err
    assert "galley init" in outcome.err


def test_version(galley: Galley) -> None:
    assert galley("--version").out == galley("version").out == f"galley {__version__}\n"


def failing(error: BaseException) -> Callable[[str], Verb]:
    def run(args: Namespace) -> int:
        raise error

    def arguments(made: ArgumentParser) -> None:
        """None."""

    return lambda name: Verb(help="fail", group="about", arguments=arguments, run=run)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            GalleyError("plan-does-not-fit", "too large", hint="smaller"),
            3,
            "error[plan-does-not-fit]: too large\nhint: smaller\n",
        ),
        (KeyboardInterrupt(), 130, "error[interrupted]: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "x.bin"), 75, "error[disk-full]: no space left for x.bin\n"),
        (MemoryError(), 3, "error[out-of-memory]: memory ran out\n"),
        (ValueError("bad\nmore"), 1, "error[internal]: ValueError: bad (test_main.py:"),
        (ZeroDivisionError(), 1, "error[internal]: ZeroDivisionError: (no message) (test_main.py:"),
    ],
)
def test_what_goes_wrong_is_told_in_two_lines(
    error: BaseException, code: int, text: str, galley: Galley, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VERBS, "get", failing(error))
    outcome = galley("fail")
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith(text)
    assert len(outcome.err.splitlines()) <= 2
    assert "Traceback" not in outcome.err


def test_debug_shows_the_traceback(galley: Galley, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VERBS, "get", failing(ValueError("bad")))
    for words in (("fail", "--debug"), ("--debug", "fail")):
        outcome = galley(*words)
        assert outcome.code == 1
        assert "Traceback" in outcome.err
        assert "raise error" in outcome.err


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from galley.cli.main import main; sys.exit(main(sys.argv[1:]))", *words]


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(command("schema"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_told(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command("env"), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert "error[disk-full]" in done.stderr
    assert "Traceback" not in done.stderr


LIGHT = {
    "help": ("--help",),
    "help of train": ("train", "--help"),
    "help of chat": ("chat", "--help"),
    "version": ("version",),
    "unknown verb": ("trian",),
    "no recipe": ("train", "none.yaml"),
    "recipe error": ("train", "bad.yaml"),
    "recipe error in an override": ("plan", "good.yaml", "budget.epoch=1"),
    "plan": ("plan", "good.yaml"),
    "plan as json": ("plan", "good.yaml", "--json"),
    "schema": ("schema",),
    "keys": ("schema", "--keys"),
    "runs": ("runs",),
    "data": ("data", "faq.csv"),
    "init": ("init", "chat", "faq.csv"),
    "env": ("env",),
    "doctor": ("doctor", "--fast"),
    "no run": ("resume", "none"),
}


@pytest.mark.parametrize("case", LIGHT)
def test_what_must_start_fast_never_imports_what_is_heavy(case: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "faq.csv").write_text(FAQ)
    outcome, heavy = in_own_process(*LIGHT[case], cwd=tmp_path)
    assert heavy == set()
    assert outcome.code in (0, 2)
    assert "error[internal]" not in outcome.err
    expected_to_fail = {"unknown verb", "no recipe", "recipe error", "recipe error in an override", "no run"}
    assert (outcome.code == 2) == (case in expected_to_fail), outcome


def test_full_width_characters_count_twice_in_tables() -> None:
    assert table(("name", "n"), [("问题", "1"), ("abcdef", "2")]) == "name    n\n问题    1\nabcdef  2"


def test_overrides_may_stand_between_options(galley: Galley) -> None:
    (galley.folder / "good.yaml").write_text(GOOD)
    (galley.folder / "faq.csv").write_text(FAQ)
    outcome = galley("plan", "good.yaml", "budget.epochs=1", "--json", "seed=7")
    assert outcome.code == 0
    assert '"seed": 7' in outcome.out
    assert '"epochs": 1.0' in outcome.out


def test_working_folder_is_left_as_it_was(galley: Galley) -> None:
    for words in (("--help",), ("runs",), ("schema",), ("env",)):
        assert galley(*words).code == 0
    assert not list(galley.folder.iterdir())


def test_the_plan_as_a_picture(galley: Galley) -> None:
    (galley.folder / "good.yaml").write_text(GOOD)
    (galley.folder / "faq.csv").write_text(FAQ)
    assert galley("plan", "good.yaml", "--picture", "plan.svg").out.startswith("wrote plan.svg")
    assert (galley.folder / "plan.svg").read_text().startswith("<?xml")
    refused = galley("plan", "none.yaml", "--picture", "plan.pdf")
    assert refused.code == 2
    assert "error[usage]: plan.pdf is no picture" in refused.err, "before the recipe is even read"
    both = galley("plan", "good.yaml", "--picture", "plan.svg", "--why", "memory")
    assert both.code == 2
    assert "not allowed with" in both.err
