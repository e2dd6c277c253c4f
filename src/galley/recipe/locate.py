"""Files that a recipe names are looked for beside the recipe, then in the working directory."""

from __future__ import annotations

import contextlib
import glob
import os
from pathlib import Path

from galley.recipe.schema import Recipe


def absolute_references(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with every file that exists named by its absolute path, so that a run can be resumed anywhere.

    Words that name no file (a hub id, `package:NAME`, a mistake) stay as they are.

    Args:
        recipe: a valid recipe.
        folder: absolute folder of the recipe's file.
    """
    data = recipe.data.model_copy(update={"path": _absolute(recipe.data.path, folder)})
    held_out = recipe.evaluate.held_out
    if isinstance(held_out, str):
        held_out = _absolute(held_out, folder)
    evaluate = recipe.evaluate.model_copy(update={"held_out": held_out})
    model = _absolute(recipe.model, folder) if recipe.model else ""
    return recipe.model_copy(update={"data": data, "evaluate": evaluate, "model": model})


def _absolute(reference: str, folder: Path) -> str:
    file, colon, name = reference.partition(".py:")
    suffix = f":{name}" if colon else ""
    path = f"{file}.py" if colon else reference
    for base in (folder, Path.cwd()):
        candidate = (base / os.path.expanduser(path)).absolute()  # noqa: PTH111 (Path's own fails on unknown users)
        with contextlib.suppress(OSError):  # what cannot be looked at is said by what reads it
            if candidate.exists() or (glob.has_magic(path) and any(glob.iglob(str(candidate), recursive=True))):  # noqa: PTH207 (absolute patterns)
                return f"{candidate}{suffix}"
    return reference
