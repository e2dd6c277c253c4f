"""A user's own nn.Module from a Python file: found, checked, built, and hashed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError

if TYPE_CHECKING:
    from torch import nn


def split_reference(reference: str) -> tuple[Path, str]:
    """Path and class name of `file.py:Class`.

    Raises:
        GalleyError: `model-not-found` when the file is missing or no class is named and it has not exactly one.
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = reference, ""
    path = Path(file).expanduser()
    if not path.is_file():
        raise GalleyError("model-not-found", f"there is no file {path}", hint="a user's model is file.py:Class")
    classes = _classes(path)
    if not name:
        if len(classes) != 1:
            listed = ", ".join(f"{file}:{found}" for found in classes) or "none is defined there"
            raise GalleyError("model-not-found", f"{reference} names no class", hint=f"classes: {listed}")
        name = classes[0]
    return path.resolve(), name


def check_class(path: Path, name: str) -> None:
    """Whether the file defines the class, from its source alone.

    Raises:
        GalleyError: `model-not-found` when it does not, `model-invalid` when the file is not valid Python.
    """
    classes = _classes(path)
    if name not in classes:
        import difflib

        near = difflib.get_close_matches(name, classes, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        listed = ", ".join(classes) or "none"
        raise GalleyError("model-not-found", f"{path} defines no class {name}", hint=f"{guess}classes there: {listed}")


def user_module(path: Path, name: str, offered: Mapping[str, Any] | None = None, *, seed: int = 0) -> nn.Module:
    """Build the class. Of `offered`, the arguments that its `__init__` names are passed.

    Args:
        path: the Python file; it is run.
        name: the class in it.
        offered: values that the job knows, such as `num_classes` or `vocab_size`.
        seed: of the weights that the constructor draws.

    Raises:
        GalleyError: `model-not-found` (file or class), `model-invalid` (the file or the constructor fails),
            `model-unsupported` (not an nn.Module, or it needs arguments that are not offered).
    """
    import torch
    from torch import nn

    check_class(path, name)
    kind = getattr(_run(path), name)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise GalleyError(
            "model-unsupported", f"{name} of {path} is not a torch.nn.Module", hint=f"class {name}(nn.Module)"
        )
    arguments = _arguments(kind, path, dict(offered or {}))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return kind(**arguments)
    except Exception as error:
        message = f"{name}() of {path} fails: {type(error).__name__}: {error}"
        raise GalleyError("model-invalid", message, hint="try to build it in Python") from error


def source_hash(path: Path) -> str:
    """Hash of the file, for the manifest."""
    return f"complete:{hashlib.blake2b(path.read_bytes(), digest_size=20).hexdigest()}"


def _classes(path: Path) -> list[str]:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        message = f"{path} is not valid Python: {error}"
        raise GalleyError("model-invalid", message, hint=f"python {path.name} shows where") from None
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _run(path: Path) -> Any:
    """Run the file as a module of its own; modules beside it can be imported."""
    name = f"galley_user_{path.stem}_{source_hash(path)[-12:]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        message = f"{path} fails when it is run: {type(error).__name__}: {error}"
        raise GalleyError("model-invalid", message, hint=f"python {path.name} shows where") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _arguments(kind: type[nn.Module], path: Path, offered: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        p for p in inspect.signature(kind).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in offered]
    if missing:
        raise GalleyError(
            "model-unsupported",
            f"{kind.__name__} of {path} needs {', '.join(missing)} to be built",
            hint=f"give defaults; offered by name: {', '.join(sorted(offered)) or 'nothing'}",
        )
    return {p.name: offered[p.name] for p in parameters if p.name in offered}
