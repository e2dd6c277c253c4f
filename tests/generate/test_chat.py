"""Conversations: the template's ids, memory of turns, and what happens when the context is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from galley.base import GalleyError
from galley.data.examples import Message
from galley.data.template import Template
from galley.generate import ChatSession, Generator, Sampling, open_chat
from models import hub_folders

pytestmark = pytest.mark.tiny


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(hub_folders.model("llama"), hub_folders.tokenizer())


def _session(generator: Generator, notes: list[str] | None = None, **options: Any) -> ChatSession:
    def note(kind: str, message: str) -> None:
        if notes is not None:
            notes.append(message)

    settings = Sampling(max_new_tokens=8)
    return ChatSession(generator, Template(generator.tokenizer), settings=settings, on_note=note, **options)


def test_an_answer_is_the_models_own_to_the_rendered_conversation(generator: Generator) -> None:
    session = _session(generator, system="Be brief.")
    first = "".join(session.ask("hi"))
    second = "".join(session.ask("why?"))
    template = Template(generator.tokenizer)
    turns = [Message("system", "Be brief."), Message("user", "hi")]
    for answer, question in ((first, "why?"), (second, None)):
        settings = generator.with_stop_ids(Sampling(max_new_tokens=8), template.stop_ids)
        (expected,) = generator.generate([template.prompt_ids(turns)], settings)
        assert answer == expected.text
        turns.append(Message("assistant", answer))
        if question is not None:
            turns.append(Message("user", question))
    assert session.messages == turns
    assert session.restarted().messages == turns[:1]


def test_old_turns_are_forgotten_when_the_context_is_full_and_this_is_said(generator: Generator) -> None:
    notes: list[str] = []
    session = _session(generator, notes, system="Be brief.")
    for number in range(8):
        "".join(session.ask(f"question {number}"))
    assert generator.context == 128
    assert notes
    assert "the model reads 128 tokens" in notes[0]
    assert session.messages[0] == Message("system", "Be brief.")
    assert session.messages[1].role == "user"
    assert session.messages[-2] == Message("user", "question 7")
    assert len(session.messages) < 17


def test_a_message_that_fills_the_context_is_refused_and_not_remembered(generator: Generator) -> None:
    session = _session(generator)
    with pytest.raises(GalleyError, match="the model reads 128 in all"):
        "".join(session.ask("no " * 200))
    assert session.messages == []
    assert "".join(session.ask("hi")) is not None


def test_nothing_is_forgotten_for_a_message_that_is_refused(generator: Generator) -> None:
    notes: list[str] = []
    session = _session(generator, notes)
    "".join(session.ask("hi"))
    before = list(session.messages)
    with pytest.raises(GalleyError, match="the model reads 128 in all"):
        "".join(session.ask("no " * 200))
    assert (session.messages, notes) == (before, [])


def test_an_abandoned_answer_is_remembered_as_far_as_it_was_said(generator: Generator) -> None:
    session = _session(generator)
    stream = session.ask("hi")
    piece = next(stream)
    del stream
    assert session.messages[1] == Message("assistant", piece)


def test_a_model_folder_can_be_talked_to(tmp_path: Path) -> None:
    notes: list[str] = []
    folder = hub_folders.folder(tmp_path / "model")
    session = open_chat(str(folder), runs_root=tmp_path, settings=Sampling(max_new_tokens=4))
    assert isinstance("".join(session.ask("hi")), str)
    assert len(session.messages) == 2
    assert not notes


def test_what_is_neither_a_run_nor_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match="neither a run nor a model") as raised:
        open_chat("fqa-chat", runs_root=tmp_path)
    assert raised.value.code == "run-not-found"
