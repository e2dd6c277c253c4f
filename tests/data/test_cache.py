"""The token cache: made once, resumed after a kill, safe for two processes, rebuilt when damaged (item 31)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from galley.data.cache import TokenChunk, TokenStore, token_store
from galley.data.masks import TrainOn

pytestmark = pytest.mark.unit

CHUNKS = [(0, 3), (3, 5), (5, 6)]
LENGTHS = [4, 1, 7, 2, 0, 5]


class Encoder:
    """Rows of known content, and how often each chunk was asked for."""

    def __init__(self, log: Path | None = None, *, stop_at: int = 99, pause: float = 0.0) -> None:
        self.calls: list[int] = []
        self.log = log
        self.stop_at = stop_at
        self.pause = pause

    def __call__(self, start: int, stop: int) -> TokenChunk:
        if start >= self.stop_at:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.pause)
        self.calls.append(start)
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(f"{start}\n")
        lengths = np.array(LENGTHS[start:stop], dtype=np.int64)
        ids = np.concatenate([np.arange(LENGTHS[row]) + 100 * row for row in range(start, stop)])
        return TokenChunk(ids.astype(np.int32), (ids % 2).astype(np.uint8), lengths, Counter(joined=1))


def read(root: Path, encode: Callable[[int, int], TokenChunk], notes: list[str] | None = None) -> TokenStore:
    heard = [] if notes is None else notes
    return token_store("key", CHUNKS, encode, root=root, note=lambda kind, text: heard.append(kind))


def is_right(store: TokenStore) -> bool:
    rows = [store.ids[a:b].tolist() for a, b in zip(store.offsets, store.offsets[1:], strict=False)]
    right = rows == [[100 * row + place for place in range(n)] for row, n in enumerate(LENGTHS)]
    return right and store.mask.tolist() == [i % 2 for i in store.ids.tolist()] and store.counts == Counter(joined=3)


def test_made_once_and_memory_mapped(tmp_path: Path) -> None:
    encode = Encoder()
    assert is_right(read(tmp_path, encode))
    again = read(tmp_path, encode)
    assert is_right(again)
    assert encode.calls == [0, 3, 5]
    assert isinstance(again.ids, np.memmap)
    assert isinstance(again.mask, np.memmap)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["key"]


def test_no_rows(tmp_path: Path) -> None:
    store = token_store("key", [], Encoder(), root=tmp_path, note=lambda kind, text: None)
    assert (len(store.ids), store.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize("name", ["ids.bin", "mask.bin", "offsets.bin", "facts.json"])
@pytest.mark.parametrize("damage", ["flip", "shorten", "delete", "empty"])
def test_damage_is_noticed_and_repaired(tmp_path: Path, name: str, damage: str) -> None:
    read(tmp_path, Encoder())
    path = tmp_path / "key" / name
    content = bytearray(path.read_bytes())
    if damage == "delete":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "shorten":
        path.write_bytes(content[:-1])
    else:
        # The middle of the facts is a checksum.
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    encode, notes = Encoder(), list[str]()
    assert is_right(read(tmp_path, encode, notes))
    assert notes == ["cache-damaged"]
    assert encode.calls == [0, 3, 5]
    assert is_right(read(tmp_path, Encoder(stop_at=0)))


def _killed(root: Path, log: Path, stop_at: int) -> None:
    read(root, Encoder(log, stop_at=stop_at))


@pytest.mark.parametrize("stop_at", [0, 3, 5])
def test_a_killed_build_goes_on_where_it_was(tmp_path: Path, stop_at: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(tmp_path, tmp_path / "log", stop_at))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    encode = Encoder()
    assert is_right(read(tmp_path, encode))
    assert encode.calls == [start for start, _ in CHUNKS if start >= stop_at]


def test_a_damaged_chunk_of_a_killed_build_is_made_again(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(tmp_path, tmp_path / "log", 5))
    process.start()
    process.join(30)
    part = sorted((tmp_path / "key.parts").glob("*.npz"))[1]
    part.write_bytes(part.read_bytes()[:-30])
    encode = Encoder()
    assert is_right(read(tmp_path, encode))
    assert encode.calls == [3, 5]


def _slow(root: Path, log: Path) -> None:
    sys.exit(0 if is_right(read(root, Encoder(log, pause=0.1))) else 1)


def test_of_many_processes_one_encodes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_slow, args=(tmp_path / "cache", log)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text(encoding="utf-8").split() == ["0", "3", "5"]


def test_without_a_place_to_write_tokens_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    notes: list[str] = []
    assert is_right(read(tmp_path / "file" / "cache", Encoder(), notes))
    assert notes == ["cache-unavailable"]


def test_key_depends_on_content_tokenizer_and_settings(cache_folder: Path) -> None:
    from data.chat_templates import tokenizer_of, turns
    from galley.data.encode import encode_examples
    from galley.data.examples import Conversation, Message

    def stores(answer: Message, family: str, max_length: int, train_on: TrainOn) -> int:
        rows = [Conversation((*turns("Hi"), answer, *turns("Bye", "Bye.")))]
        tokenizer = tokenizer_of(family)
        encode_examples(rows, tokenizer, max_length=max_length, train_on=train_on, note=lambda kind, text: None)
        return len(list((cache_folder / "tokens").glob("*/facts.json")))

    answer = Message("assistant", "Ho")
    assert stores(answer, "chatml", 64, "targets") == 1
    assert stores(answer, "chatml", 64, "targets") == 1
    assert stores(answer, "chatml", 48, "targets") == 1, "whole rows are kept, and cut when they are used"
    assert stores(Message("assistant", "Hu"), "chatml", 64, "targets") == 2
    assert stores(Message("assistant", "Ho", train=False), "chatml", 64, "targets") == 3
    assert stores(answer, "qwen3", 64, "targets") == 4
    assert stores(answer, "chatml", 64, "all") == 5
