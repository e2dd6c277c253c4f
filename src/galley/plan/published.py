"""Models that are known by name: their architecture without a hub."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from galley.plan.architecture import Architecture
from galley.plan.families import architecture_from_config


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published model.

    Args:
        name: as it is usually written, in small letters.
        aliases: other names of it, and of others of the same shape.
        source: the repository or paper that its numbers are from.
        parameters_b: that its source prints, in units of 1e9.
        active_b: that a token meets, where the source prints it; some leave the input embedding out.
        digits: of the printed figure, behind the point.
        config: as in a transformers config.
    """

    name: str
    aliases: tuple[str, ...]
    source: str
    parameters_b: float
    active_b: float | None
    digits: int
    config: dict[str, Any]

    @property
    def architecture(self) -> Architecture:
        """Its shape."""
        return architecture_from_config(self.config)


def lookup(name: str) -> Architecture | None:
    """The architecture of a model by its usual name or repository, e.g. `Llama-3-70B`; None where it is not known.

    Case, owner, blanks, hyphens and suffixes such as `-hf` or `-instruct` do not matter.
    """
    found = _by_name().get(_plain(name))
    return found.architecture if found else None


def known(name: str) -> Architecture:
    """The architecture of a model that is certainly among them.

    Raises:
        KeyError: when it is not.
    """
    return _by_name()[_plain(name)].architecture


@cache
def published() -> tuple[Published, ...]:
    """All of them, smallest first."""
    text = Path(__file__).with_name("published_models.toml").read_text(encoding="utf-8")
    entries = []
    for entry in tomllib.loads(text)["model"]:
        printed = str(entry["parameters"])
        entries.append(
            Published(
                name=entry["name"],
                aliases=tuple(entry.get("aliases", ())),
                source=entry["source"],
                parameters_b=float(printed),
                active_b=entry.get("active"),
                digits=len(printed.partition(".")[2]),
                config=entry["config"],
            )
        )
    return tuple(sorted(entries, key=lambda entry: entry.parameters_b))


@cache
def _by_name() -> dict[str, Published]:
    return {_plain(name): entry for entry in published() for name in (entry.name, *entry.aliases)}


_VARIANTS = frozenset(["hf", "instruct", "chat", "it", "base", "4k", "128k", "8k", "v0.1", "v0.2", "v0.3"])


def _plain(name: str) -> str:
    """Letters, digits and points only, without an owner and without words for a variant of the same shape."""
    words = re.split(r"[^a-z0-9.]+", re.sub(r"\(.*?\)", "", name.lower()).split("/")[-1].strip())
    while len(words) > 1 and words[-1] in _VARIANTS | {""}:
        words.pop()
    return "".join(words)
