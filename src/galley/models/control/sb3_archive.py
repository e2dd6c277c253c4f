"""The zip of Stable-Baselines3, read without unpickling objects: spaces, settings and weights, within bounds."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.models.control.pickled import Made, array, dtype_of, read_pickle

if TYPE_CHECKING:
    from gymnasium import Space
    from torch import Tensor

MOST_SETTINGS_BYTES = 256 << 20
MOST_WEIGHTS_BYTES = 4 << 30
_MOST_RATIO = 100
_SMALL = 16 << 20
"""Bytes up to which no compression is suspicious."""


@dataclass(frozen=True)
class Archive:
    """What a policy of Stable-Baselines3 is made of.

    Args:
        settings: the JSON `data`: plain values, and texts that describe the others.
        weights: the state dict of the policy.
        observations, actions: spaces.
    """

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    observations: Space[Any]
    actions: Space[Any]


def read_archive(path: Path) -> Archive:
    """Read the zip that `model.save` wrote.

    Raises:
        GalleyError: `model-not-found` when there is no such file, `model-invalid` for damaged and hostile ones.
    """
    if not path.is_file():
        raise GalleyError("model-not-found", f"there is no file {path}", hint="name the .zip that model.save() wrote")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_names(archive, path)
            settings = json.loads(_member(archive, "data", MOST_SETTINGS_BYTES, path))
            weights = _weights(_member(archive, "policy.pth", MOST_WEIGHTS_BYTES, path), path)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(settings, dict):
        raise _damaged(path, "its `data` is no mapping")
    spaces = [_stored_space(settings, key, path) for key in ("observation_space", "action_space")]
    return Archive(settings, weights, spaces[0], spaces[1])


def read_normalisation(path: Path) -> Made:
    """The record of a pickled VecNormalize.

    Raises:
        GalleyError: `model-not-found`, `model-invalid`.
    """
    if not path.is_file():
        raise GalleyError("model-not-found", f"there is no file {path}", hint="name what VecNormalize.save() wrote")
    if path.stat().st_size > MOST_SETTINGS_BYTES:
        raise _damaged(path, "it is too large for running statistics")
    stored = read_pickle(path.read_bytes())
    if not isinstance(stored, Made) or not stored.by.endswith(".VecNormalize") or "obs_rms" not in stored.fields:
        raise _damaged(path, "it holds no VecNormalize")
    return stored


def _check_names(archive: zipfile.ZipFile, path: Path) -> None:
    for info in archive.infolist():
        parts = PurePosixPath(info.filename.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in info.filename:
            raise _damaged(path, f"its member {info.filename!r} leads out of the archive")


def _member(archive: zipfile.ZipFile, name: str, most: int, path: Path) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise GalleyError(
            "model-invalid",
            f"{path} has no {name!r}: it is not what Stable-Baselines3 saves",
            hint="name the .zip that model.save() wrote",
        ) from None
    ratio = info.file_size / max(1, info.compress_size)
    if info.file_size > most or (info.file_size > _SMALL and ratio > _MOST_RATIO):
        raise _damaged(path, f"{name} would unpack to {info.file_size:,} bytes, which no policy needs")
    with archive.open(info) as file:
        return file.read()


def _weights(content: bytes, path: Path) -> dict[str, Tensor]:
    import pickle

    import torch

    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        if any(info.compress_type != zipfile.ZIP_STORED for info in inner.infolist()):
            raise _damaged(path, "policy.pth is compressed inside, which PyTorch never does")
    try:
        weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _damaged(path, f"policy.pth holds more than tensors: {str(error).splitlines()[0]}") from error
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise _damaged(path, "policy.pth is no mapping of tensors")
    claimed = [tensor.numel() * tensor.element_size() for tensor in weights.values()]
    if max(claimed, default=0) > len(content) or sum(claimed) > 4 * len(content):
        # several names may share a tensor; but a few bytes may not pretend to be a large one
        raise _damaged(path, "policy.pth claims larger tensors than it holds")
    return weights


def _stored_space(settings: dict[str, Any], key: str, path: Path) -> Space[Any]:
    stored = settings.get(key)
    if not isinstance(stored, dict) or not isinstance(stored.get(":serialized:"), str):
        raise _damaged(path, f"its `data` has no {key}")
    try:
        return _space(read_pickle(base64.b64decode(stored[":serialized:"], validate=True)))
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, IndexError) as error:
        raise _damaged(path, f"{key}: {type(error).__name__}: {error}") from error


def _space(stored: Any) -> Space[Any]:
    """A space that a pickle describes, made anew."""
    from gymnasium import spaces

    if not isinstance(stored, Made) or not stored.by.startswith("space."):
        raise ValueError("no space")
    fields = stored.fields
    if stored.by == "space.Box":
        low, high = array(fields["low"]), array(fields["high"])
        return spaces.Box(low, high, dtype=dtype_of(fields["dtype"]).type)
    if stored.by == "space.Discrete":
        return spaces.Discrete(int(array(fields["n"])), start=int(array(fields.get("start", 0))))
    if stored.by == "space.MultiDiscrete":
        start = array(fields["start"]) if "start" in fields else None
        return spaces.MultiDiscrete(array(fields["nvec"]), start=start)
    if stored.by == "space.MultiBinary":
        number = fields["n"]
        return spaces.MultiBinary([int(array(n)) for n in number] if isinstance(number, tuple) else int(array(number)))
    inside = fields["spaces"]
    parts = inside.entries if isinstance(inside, Made) else inside
    made = spaces.Dict({})
    made.spaces.update({str(name): _space(part) for name, part in parts.items()})  # in the order in which it was saved
    return made


def _damaged(path: Path, why: str) -> GalleyError:
    return GalleyError("model-invalid", f"{path} cannot be read: {why}", hint="save or copy it again")


def as_floats(value: Any) -> np.ndarray[Any, Any]:
    """An array of the statistics, flat, in float64."""
    return array(value).astype(np.float64).reshape(-1)
