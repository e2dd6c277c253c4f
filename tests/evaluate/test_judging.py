"""Verdicts on finished runs, read from the disk: every number against transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evaluate.finished_runs import Made, chat_rows, make_run
from galley.base import GalleyError, SilentObserver
from galley.data import Conversation, Document, Labelled
from galley.data.template import Template
from galley.evaluate import Verdict, finish, judge, record
from galley.job import read_recipe
from galley.runs import RunFolder

pytestmark = [pytest.mark.tiny, pytest.mark.usefixtures("cache_folder")]


class Listener(SilentObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.phases: list[tuple[str, int | None]] = []
        self.advanced = 0

    def note(self, kind: str, message: str) -> None:
        self.notes.append((kind, message))

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        self.phases.append((name, total))

    def advance(self, count: int = 1, **facts: Any) -> None:
        self.advanced += count


def _generated(module: Any, tokenizer: Any, example: Conversation) -> str:
    template = Template(tokenizer)
    prompt = template.prompt_ids(example.messages[:-1])
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = module.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=8,
            do_sample=False,
            eos_token_id=[*template.stop_ids, tokenizer.eos_token_id],
        )
    return str(tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _answers(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder.result / "answers.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_both_models_answer_as_transformers_does(tmp_path: Path, tuning: str) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"), tuning=tuning)
    listener = Listener()
    verdict = judge(made.folder, observer=listener)
    answers = _answers(made.folder)
    assert verdict.n == len(answers) == len(made.held_out) > 10
    assert listener.phases == [("load result", None), ("judge answers", 2 * verdict.n)]
    assert listener.advanced == 2 * verdict.n
    from galley.models import load, resolve

    base, _ = load(resolve(str(tmp_path / "base")), precision="fp32")
    assert any(answer["base"] != answer["tuned"] for answer in answers)
    for answer, example in list(zip(answers, made.held_out, strict=True))[:6]:
        assert answer["tuned"] == _generated(made.module, made.tokenizer, example)
        assert answer["base"] == _generated(base, made.tokenizer, example)
        assert answer["expected"] == example.messages[-1].content
    assert Verdict.model_validate(made.folder.read_result("verdict.json")) == verdict
    assert not verdict.better
    assert "not better" in verdict.sentence


def test_fewer_rows_are_a_look_that_leaves_the_verdict_of_record(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"))
    verdict = judge(made.folder)
    answers = _answers(made.folder)
    assert judge(made.folder, rows=5).n == 5
    assert _answers(made.folder) == answers
    assert Verdict.model_validate(made.folder.read_result("verdict.json")) == verdict
    assert [event["kind"] for event in made.folder.events()].count("judged") == 1


def _token_loss(module: Any, made: Made, example: Any) -> tuple[float, int]:
    from galley.data.encode import encode_examples

    samples = encode_examples([example], made.tokenizer, max_length=128, note=lambda kind, message: None)
    total, count = 0.0, 0
    for row in range(len(samples)):
        ids, mask = torch.tensor(samples.ids(row).astype("int64")), torch.tensor(samples.mask(row))
        with torch.no_grad():
            logprobs = module(input_ids=ids[None]).logits[0].log_softmax(-1)
        target = mask[1:]
        total += -float(logprobs[:-1][target].gather(1, ids[1:][target][:, None]).sum())
        count += int(target.sum())
    return total, count


def test_losses_are_means_over_learned_tokens_and_shown_rows_are_answered(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"), evaluate={"scorer": "loss"})
    verdict = judge(made.folder)
    sums = [_token_loss(made.module, made, example) for example in made.held_out]
    assert verdict.tuned == pytest.approx(sum(s for s, _ in sums) / sum(n for _, n in sums), rel=1e-4)
    with made.module.disable_adapter():
        sums = [_token_loss(made.module, made, example) for example in made.held_out]
    assert verdict.base == pytest.approx(sum(s for s, _ in sums) / sum(n for _, n in sums), rel=1e-4)
    assert all(answer.tuned and answer.base for answer in (*verdict.best, *verdict.worst))
    assert [answer["tuned"] != "" for answer in _answers(made.folder)].count(True) == 10


def test_long_documents_are_judged_whole(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"Part {number}. " + "The quick brown fox jumps. " * (3 + number))
    made = make_run(tmp_path, tmp_path / "*.txt", task="complete", tuning="full")
    assert isinstance(made.held_out[0], Document)
    verdict = judge(made.folder)
    assert (verdict.scorer, verdict.n) == ("loss", len(made.held_out))
    sums = [_token_loss(made.module, made, example) for example in made.held_out]
    assert verdict.tuned == pytest.approx(sum(s for s, _ in sums) / sum(n for _, n in sums), rel=1e-4)
    assert verdict.worse == (verdict.tuned > verdict.base)


def test_prompts_without_room_for_an_answer_are_left_out_and_this_is_said(tmp_path: Path) -> None:
    path = chat_rows(tmp_path / "rows.jsonl", 40)
    with path.open("a") as file:
        for number in range(30):
            file.write(json.dumps({"question": f"{number} word" * 60, "answer": "yes"}) + "\n")
    made = make_run(tmp_path, path)
    verdict = judge(made.folder)
    long = sum(len(example.messages[0].content) > 200 for example in made.held_out)
    assert verdict.n == len(made.held_out) - long
    assert verdict.notes == (f"{long} held-out prompts are longer than 120 tokens and were not asked",)


def test_a_classifier_is_compared_with_the_most_frequent_class(tmp_path: Path) -> None:
    words = {"animal": "the dog and the fox", "thing": "a naïve café"}
    labels = ["animal", "thing", "animal"]
    rows = [{"text": f"{words[labels[n % 3]]} {n}", "label": labels[n % 3]} for n in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = make_run(tmp_path, path, task="classify", family="bert", tuning="full")
    verdict = judge(made.folder)
    assert verdict.scorer == "accuracy"
    assert verdict.baseline == "always answering 'animal', the most frequent class"
    truth = [example.label for example in made.held_out if isinstance(example, Labelled)]
    assert verdict.base == pytest.approx(truth.count("animal") / len(truth))
    predicted = []
    for example in made.held_out:
        inputs = made.tokenizer(example.input, return_tensors="pt")
        with torch.no_grad():
            predicted.append(["animal", "thing"][int(made.module(**inputs).logits.argmax())])
    assert [answer["tuned"] for answer in _answers(made.folder)] == predicted
    assert verdict.confusion is not None
    assert sum(map(sum, verdict.confusion.counts)) == len(truth)


def test_a_users_module_is_judged_on_arrays(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n"
        "    def __init__(self, num_classes):\n        super().__init__()\n"
        "        self.head = torch.nn.Linear(16, num_classes)\n\n"
        "    def forward(self, x):\n        return self.head(x.flatten(1))\n"
    )
    random = np.random.default_rng(0)
    x, y = random.normal(size=(80, 1, 4, 4)).astype(np.float32), random.integers(0, 3, size=80)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    made = make_run(
        tmp_path, tmp_path / "rows.npz", task="classify", model=f"{tmp_path / 'net.py'}:Net", tuning="full", moved=2.0
    )
    verdict = judge(made.folder)
    inputs = torch.tensor(np.stack([example.input for example in made.held_out]))
    with torch.no_grad():
        predicted = made.module(inputs).argmax(-1).tolist()
    assert [answer["tuned"] for answer in _answers(made.folder)] == [str(number) for number in predicted]
    right = [example.label == str(found) for example, found in zip(made.held_out, predicted, strict=True)]
    assert verdict.tuned == pytest.approx(sum(right) / len(right))


def test_the_result_is_proven_to_be_what_was_trained(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"))
    trained = record(made.module, made.tokenizer, made.held_out)
    assert trained is not None
    listener = Listener()
    finish(made.folder, read_recipe(made.folder.path / "recipe.yaml"), observer=listener, trained=trained)
    parity = made.folder.read_result("parity.json")
    assert set(parity) == {"reloaded", "merged"}
    for pair in parity.values():
        assert pair["agreement"] == 1.0
        assert pair["max_difference"] < 1e-4
    assert not [message for kind, message in listener.notes if kind == "parity"]


def test_another_result_than_the_trained_one_is_noticed(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"))
    with torch.no_grad():
        for name, weight in made.module.named_parameters():
            if "lora_B" in name:
                weight.zero_()
    trained = record(made.module, made.tokenizer, made.held_out)
    listener = Listener()
    finish(made.folder, read_recipe(made.folder.path / "recipe.yaml"), observer=listener, trained=trained)
    assert made.folder.read_result("parity.json")["reloaded"]["agreement"] < 0.9
    assert [kind for kind, _ in listener.notes] == ["parity", "parity"]


def test_a_demand_that_is_not_met_is_an_error_after_everything_is_written(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"), evaluate={"demand": "better"})
    with pytest.raises(GalleyError) as raised:
        finish(made.folder, read_recipe(made.folder.path / "recipe.yaml"))
    assert raised.value.exit == 4
    assert "not better" in raised.value.message
    assert made.folder.read_result("verdict.json")["better"] is False
    assert (made.folder.result / "README.md").is_file()


def test_without_held_out_rows_there_is_a_card_and_no_verdict(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"), evaluate={"held_out": 0})
    assert finish(made.folder, read_recipe(made.folder.path / "recipe.yaml")) is None
    assert "not judged" in (made.folder.result / "README.md").read_text(encoding="utf-8")
    with pytest.raises(GalleyError) as raised:
        judge(made.folder)
    assert raised.value.code == "data-empty"


def test_an_unfinished_run_has_nothing_to_judge(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"))
    (made.folder.result / "adapter").rename(tmp_path / "away")
    with pytest.raises(GalleyError) as raised:
        judge(made.folder)
    assert raised.value.code == "run-unfinished"


def test_changed_data_is_noticed(tmp_path: Path) -> None:
    path = chat_rows(tmp_path / "rows.jsonl")
    made = make_run(tmp_path, path)
    chat_rows(path, 70)
    listener = Listener()
    judge(made.folder, observer=listener, rows=3)
    assert "data-changed" in [kind for kind, _ in listener.notes]


def test_the_card_says_what_it_is_and_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    made = make_run(tmp_path, chat_rows(tmp_path / "rows.jsonl"))
    verdict = judge(made.folder)
    card = (made.folder.result / "README.md").read_text(encoding="utf-8")
    assert card.startswith(
        "---\nlibrary_name: peft\npipeline_tag: text-generation\ntags: [galley, sft, lora]\n---\n# run\n"
    )
    assert verdict.sentence in card
    assert 'galley.Run.open("runs/run").load()' in card  # only Galley finds this base
    assert str(tmp_path) not in card
