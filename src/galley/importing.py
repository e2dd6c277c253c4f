"""A policy that another program trained, as a finished run: it plays, is compared and exported like any other."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import recipe
from galley.base import GalleyError
from galley.manifest import control_manifest
from galley.runs import RunFolder

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, ObservationLayout


def import_policy(
    path: Path, name: str, *, runs_root: Path, environment: str = "", normalisation: Path | None = None
) -> RunFolder:
    """Make a finished run whose result is a policy of Stable-Baselines3.

    Args:
        path: the .zip that `model.save` wrote.
        name: of the run.
        runs_root: folder of all runs.
        environment: that it was trained in, e.g. `gym:CartPole-v1`: its spaces are checked, and the run can be played;
            empty when unknown.
        normalisation: what `VecNormalize.save` wrote; see `import_sb3`.

    Raises:
        GalleyError: as `import_sb3`; `run-exists`, `environment-invalid`.
    """
    from galley.models.control.results import save_policy
    from galley.models.control.sb3 import import_sb3

    if (runs_root / name).exists():
        raise GalleyError("run-exists", f"there is already a run {name}", hint="choose another --name")
    layouts = _layouts(environment) if environment else None
    decision = import_sb3(path, normalisation=normalisation, observations=layouts[0] if layouts else None)
    if layouts is not None and decision.spec.actions != layouts[1]:
        raise GalleyError(
            "environment-invalid",
            f"the policy has other actions than {environment} takes",
            hint="name the environment that it was trained in",
        )
    world = environment or f"imported:{path.name}"
    asked = recipe.Recipe.model_validate({"task": "control", "data": {"path": world}, "name": name})
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    origin = {"imported_from": path.name, "program": "Stable-Baselines3", "fingerprint": digest}
    proof = {**control_manifest(world, {}, seed=asked.seed), "lineage": origin}
    planned: dict[str, Any] = {"task": "control", "data": world, "imported": True, "steps": 0}
    folder = RunFolder.create(runs_root, name, recipe=recipe.dump(asked), plan=planned, manifest=proof)
    with folder.lock():
        note = f"imported from {path.name} (Stable-Baselines3)"
        save_policy(folder.result, decision, method="imported", note=note)
        folder.set_status("done")
    return folder


def _layouts(environment: str) -> tuple[ObservationLayout, ActionLayout]:
    from galley.data.environments import open_environments
    from galley.data.environments.options import environment_settings

    one = open_environments(replace(environment_settings(environment, {}, num_envs=1), vector="auto"))
    try:
        return one.observations, one.actions
    finally:
        one.close()
