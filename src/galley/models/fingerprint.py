"""Hashes that tell whether weights are the same, fast enough to take at every start."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

COMPLETE_BYTES = 32 * 1024**2
"""Files up to this size are hashed completely."""
_EDGE = 4 * 1024**2
_SAMPLE = 4096
_STRIDE = 1024**2


def file_fingerprint(path: Path) -> str:
    """Hash of a weight file: all of it when small, else its size, both ends, and 4 KiB of every MiB.

    The first four MiB hold the header (names, shapes, and for GGUF the tokenizer). Training changes every tensor
    nearly everywhere, so that another training of the same model is always told apart; single bytes may not be.

    Returns:
        `complete:HEX` or `sampled:HEX`.
    """
    return files_fingerprint([path])


def files_fingerprint(paths: Iterable[Path]) -> str:
    """One fingerprint over several files, in the order given."""
    digest = hashlib.blake2b(digest_size=20)
    sampled = False
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{size}\n".encode())
        sampled |= size > COMPLETE_BYTES
        with path.open("rb") as file:
            for start, length in _pieces(size):
                file.seek(start)
                digest.update(file.read(length))
    return f"{'sampled' if sampled else 'complete'}:{digest.hexdigest()}"


def weights_fingerprint(folder: Path) -> str:
    """One fingerprint over the safetensors files of a hub-layout folder."""
    from galley.models.safetensors_header import weight_files

    return files_fingerprint(weight_files(folder))


def _pieces(size: int) -> list[tuple[int, int]]:
    if size <= COMPLETE_BYTES:
        return [(0, size)]
    samples = [(at, _SAMPLE) for at in range(_EDGE, size - _EDGE, _STRIDE)]
    return [(0, _EDGE), *samples, (size - _EDGE, _EDGE)]
