"""Token ids on disk, made once: addressed by content, memory-mapped, resumed after a kill, rebuilt when damaged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zipfile import BadZipFile

from galley.base import GalleyError

if TYPE_CHECKING:
    import numpy as np

    Int32Array: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
    ByteArray: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
    Int64Array: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

Note: TypeAlias = Callable[[str, str], None]
"""Called as note(kind, message) with what a user should know."""

_DTYPES = {"ids": "int32", "mask": "uint8", "offsets": "int64"}
_BLOCK = 1 << 24


@dataclass(frozen=True)
class TokenChunk:
    """Some rows as flat arrays: T token ids, whether each is learned, and the R row lengths.

    Args:
        ids: [T].
        mask: [T], 1 for learned tokens.
        lengths: [R].
        counts: facts to add up over all chunks, such as rows that needed special care.
    """

    ids: Int32Array
    mask: ByteArray
    lengths: Int64Array
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class TokenStore:
    """All rows as flat arrays; row r is `offsets[r]` to `offsets[r + 1]`. Memory-mapped where they come from disk."""

    ids: Int32Array
    mask: ByteArray
    offsets: Int64Array
    counts: Counter[str]


Encode: TypeAlias = Callable[[int, int], TokenChunk]
"""Encodes the rows from start to stop."""


def token_store(key: str, chunks: Sequence[tuple[int, int]], encode: Encode, *, root: Path, note: Note) -> TokenStore:
    """The tokens of this key: from the cache, else encoded chunk by chunk and kept.

    A chunk that was finished before a kill is not encoded again. Of several processes that ask at the same time, one
    encodes and the others wait for it. Where the cache cannot be written, the tokens are made in memory.

    Args:
        key: hash of everything that decides about the tokens.
        chunks: row ranges (start, stop), ascending and without gaps.
        encode: called for each chunk that is missing.
        root: folder of all token caches.
        note: told about damage and about a cache that cannot be used.
    """
    folder = root / key
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / f"{key}.lock"):
            store = _open(folder, note)
            if store is None:
                parts = _parts(root / f"{key}.parts", chunks, encode)
                _write(folder, parts)
                store = _open(folder, note)
            shutil.rmtree(root / f"{key}.parts", ignore_errors=True)
            if store is not None:
                return store
        problem = "what was written could not be read back"
    except GalleyError:
        raise
    except OSError as error:
        problem = str(error)
    note("cache-unavailable", f"the token cache {root} cannot be used ({problem}); tokens are kept in memory only")
    return _join([encode(start, stop) for start, stop in chunks])


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    from filelock import FileLock

    with FileLock(path):
        yield


def _parts(folder: Path, chunks: Sequence[tuple[int, int]], encode: Encode) -> Iterator[TokenChunk]:
    """Every chunk in order; those already on disk are read, others encoded and written."""
    import numpy as np

    folder.mkdir(exist_ok=True)
    for start, stop in chunks:
        path = folder / f"rows-{start:010d}-{stop:010d}.npz"
        chunk = _read_part(path, stop - start)
        if chunk is None:
            chunk = encode(start, stop)
            aside = path.with_suffix(".tmp.npz")
            counts = json.dumps(chunk.counts)
            np.savez(aside, ids=chunk.ids, mask=chunk.mask, lengths=chunk.lengths, counts=np.array(counts))
            aside.replace(path)
        yield chunk


def _read_part(path: Path, num_rows: int) -> TokenChunk | None:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            counts: Counter[str] = Counter(json.loads(str(file["counts"])))
            chunk = TokenChunk(file["ids"], file["mask"], file["lengths"], counts)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
        return None
    whole = len(chunk.lengths) == num_rows and len(chunk.ids) == len(chunk.mask) == int(chunk.lengths.sum())
    return chunk if whole else None


def _write(folder: Path, parts: Iterable[TokenChunk]) -> None:
    """Put the parts together aside, and rename once everything is on disk."""
    import numpy as np

    aside = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    total, counts, lengths = 0, Counter[str](), [np.zeros(1, dtype=np.int64)]
    try:
        with open(aside / "ids.bin", "wb") as ids, open(aside / "mask.bin", "wb") as mask:
            for part in parts:
                ids.write(np.ascontiguousarray(part.ids, dtype=np.int32).data)
                mask.write(np.ascontiguousarray(part.mask, dtype=np.uint8).data)
                lengths.append(part.lengths)
                counts.update(part.counts)
                total += len(part.ids)
        np.cumsum(np.concatenate(lengths)).astype(np.int64).tofile(aside / "offsets.bin")
        rows = sum(map(len, lengths)) - 1
        sums = {name: _checksum(aside / f"{name}.bin") for name in _DTYPES}
        facts = {"rows": rows, "tokens": total, "counts": counts, "crc32": sums}
        (aside / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        for path in aside.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _open(folder: Path, note: Note) -> TokenStore | None:
    """The finished tokens of a folder; None when there are none, or none that are whole."""
    import numpy as np

    if not folder.is_dir():
        return None
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        for name, expected in facts["crc32"].items():
            if _checksum(folder / f"{name}.bin") != expected:
                raise ValueError(f"{name}.bin has changed")
        arrays = {name: _map(folder / f"{name}.bin", dtype) for name, dtype in _DTYPES.items()}
        sizes = (len(arrays["ids"]), len(arrays["mask"]), len(arrays["offsets"]) - 1)
        if sizes != (facts["tokens"], facts["tokens"], facts["rows"]):
            raise ValueError("sizes do not agree")
        counts: Counter[str] = Counter(facts["counts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        note("cache-damaged", f"the token cache {folder.name} is damaged ({error}) and is made again")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return TokenStore(arrays["ids"], arrays["mask"], np.array(arrays["offsets"]), counts)


def _map(path: Path, dtype: str) -> Any:
    import numpy as np

    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    return crc


def _join(parts: Sequence[TokenChunk]) -> TokenStore:
    import numpy as np

    lengths = np.concatenate([np.zeros(1, dtype=np.int64), *(part.lengths for part in parts)])
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    ids = np.concatenate([np.empty(0, dtype=np.int32), *(part.ids for part in parts)])
    mask = np.concatenate([np.empty(0, dtype=np.uint8), *(part.mask for part in parts)])
    return TokenStore(ids, mask, np.cumsum(lengths), counts)
