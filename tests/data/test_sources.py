"""Data that is no file: generated tasks, installed packages, the hub."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from data.reading_helpers import read_data, turns
from galley.base import GalleyError
from galley.data import Conversation
from galley.data.sources.reasoning_gym import UNSEEN_OFFSET

pytestmark = pytest.mark.unit

TASK = "reasoning-gym:family_relationships"


def questions(rows: Any) -> list[str]:
    return [turns(row)[0][1] for row in rows]


@pytest.mark.usefixtures("cache_folder")
class TestReasoningGym:
    def test_rows_are_the_librarys_own(self) -> None:
        import reasoning_gym

        expected = reasoning_gym.create_dataset("family_relationships", size=8, seed=3, min_family_size=5)
        data = read_data(TASK, options={"size": 8, "seed": 3, "min_family_size": 5})
        asked_and_answered = [[text for _, text, _ in turns(row)] for row in data.train]
        assert asked_and_answered == [[expected[i]["question"], expected[i]["answer"]] for i in range(8)]

    def test_held_out_rows_come_from_a_far_seed_and_none_leaks(self) -> None:
        data = read_data(TASK, options={"size": 300, "seed": 5}, held_out=0.1, rows=100)
        assert (len(data.train), len(data.held_out)) == (300, 100)
        assert not set(questions(data.train)) & set(questions(data.held_out))
        assert data.statistics.leaked == 0
        metas = [row.meta for row in data.held_out if isinstance(row, Conversation)]
        assert all(meta["seed"] == 5 + UNSEEN_OFFSET for meta in metas)

    def test_near_seeds_would_have_leaked(self) -> None:
        first, near = (read_data(TASK, options={"size": 50, "seed": seed}) for seed in (5, 6))
        assert questions(first.train)[1:] == questions(near.train)[:-1]

    def test_the_leakage_check_drops_rows_of_small_tasks(self) -> None:
        # Few different questions exist, so that chance puts some of them on both sides.
        options = {"size": 200, "seed": 1, "min_animals": 1, "max_animals": 1, "min_instances": 1, "max_instances": 2}
        data = read_data("reasoning-gym:leg_counting", options=options, held_out=0.05, rows=4)
        assert data.statistics.leaked > 0
        assert not set(questions(data.train)) & set(questions(data.held_out))
        assert any("training rows dropped for that" in note for note in data.notes)

    def test_the_task_scores_its_own_answers(self) -> None:
        data = read_data(TASK, options={"size": 20}, held_out=0.1)
        assert data.scorer is not None
        for row in [*data.train, *data.held_out]:
            answer = turns(row)[1][1]
            assert data.scorer(f" {answer}\n", row) == 1.0
            assert data.scorer("a banana", row) == 0.0

    def test_a_scorer_that_fails_gives_0_and_is_counted(self) -> None:
        data = read_data("reasoning-gym:prime_factorization", options={"size": 3})
        assert data.scorer is not None
        assert data.scorer(turns(data.train[0])[1][1], data.train[0]) == 1.0
        assert data.scorer("I do not know", data.train[0]) == 0.0
        assert data.scorer.failures == 1  # type: ignore[attr-defined]

    def test_the_recipes_seed_is_the_default(self) -> None:
        by_seed = read_data(TASK, options={"size": 5}, seed=9)
        assert questions(by_seed.train) == questions(read_data(TASK, options={"size": 5, "seed": 9}).train)
        assert len(read_data(TASK, options={"size": 50}, most=7).train) == 7

    def test_rows_made_once_are_read_without_the_library(self, cache_folder: Path) -> None:
        read_data(TASK, options={"size": 30}, held_out=0.1)
        code = (
            "import sys; from galley.data import read; from galley.recipe.schema import DataSection, EvaluateSection\n"
            f"read(DataSection(path={TASK!r}, options={{'size': 30}}), task='chat', evaluate=EvaluateSection())\n"
            "print('reasoning_gym' in sys.modules, 'numpy' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout.split() == ["False", "False"]
        assert len(list(cache_folder.rglob("*.jsonl"))) == 2

    @pytest.mark.parametrize(
        ("path", "options", "code", "expected"),
        [
            ("reasoning-gym:family_relation", {}, "data-not-found", "family_relationships"),
            (TASK, {"size": 0}, "data-options", "0 is not between"),
            (TASK, {"size": "many"}, "data-options", "'many' is not a whole number"),
            (TASK, {"familysize": 3}, "data-options", "familysize"),
            (TASK, {"min_family_size": -3}, "data-options", "not accepted"),
        ],
    )
    def test_mistakes_are_clear(self, path: str, options: dict[str, Any], code: str, expected: str) -> None:
        with pytest.raises(GalleyError) as caught:
            read_data(path, options=options)
        assert (caught.value.code, expected in caught.value.render()) == (code, True), caught.value.render()


def test_package_data_is_read_without_importing_the_package() -> None:
    data = read_data("package:chatterbot-corpus/chinese", held_out=0.1)
    assert data.format == "chatterbot"
    assert data.statistics.rows + data.statistics.held_out_rows > 450
    assert "chatterbot_corpus" not in sys.modules
    assert any("什么是ai" in question for question in questions([*data.train, *data.held_out]))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("package:no-such-package/x", "pip install no-such-package"),
        ("package:chatterbot-corpus/klingon", "chinese"),
        ("package:os", "an installed package that carries data"),
        ("package:json/tool.py", "an installed package that carries data"),
        ("package:", "an installed package that carries data"),
        ("package:; rm -rf", "an installed package that carries data"),
        ("package:chatterbot-corpus", "english"),
        ("package:chatterbot-corpus/../../pip", "chinese"),
    ],
)
def test_wrong_package_data_says_what_there_is(path: str, expected: str) -> None:
    with pytest.raises(GalleyError) as caught:
        read_data(path)
    assert caught.value.code == "data-not-found"
    assert expected in caught.value.hint


def test_hub_datasets_are_read_through_their_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "some-data"
    folder.mkdir()
    rows = [{"question": f"q{number}", "answer": f"a{number}"} for number in range(3)]
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text("\n".join(json.dumps(row | {"answer": split}) for row in rows))
    data = read_data(f"hub:{folder}")
    assert [[text for _, text, _ in turns(row)] for row in data.train] == [[f"q{n}", "train"] for n in range(3)]
    assert turns(read_data(f"hub:{folder}", split="test").train[0])[1][1] == "test"
    with pytest.raises(GalleyError, match="split 'dev'") as caught:
        read_data(f"hub:{folder}", split="dev")
    assert caught.value.code == "data-not-found"


def test_a_hub_dataset_offline_is_one_clear_error() -> None:
    with pytest.raises(GalleyError) as caught:
        read_data("hub:nobody/no-such-dataset-here")
    assert caught.value.code == "data-offline"
    assert "load_dataset('nobody/no-such-dataset-here')" in caught.value.hint
