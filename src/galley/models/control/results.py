"""The policy of a finished run: policy.json says what it is, policy.safetensors holds weights and normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from galley.base import GalleyError
from galley.models.control.decision import Decision, DecisionSpec
from galley.runs import disk_full_is_an_error, write_bytes, write_json
from galley.runs.atomic import read_json

if TYPE_CHECKING:
    from galley.models.control.policy import Policy

__all__ = ["FORMAT", "Policy", "has_policy", "load_policy", "policy_facts", "save_policy"]

FORMAT = 1
"""Of policy.json; larger when an older Galley would misread it."""
_SPEC, _WEIGHTS = "policy.json", "policy.safetensors"


def __getattr__(name: str) -> Any:
    """`Policy` lies in a file of its own, and is found here as well."""
    if name != "Policy":
        raise AttributeError(name)
    from galley.models.control.policy import Policy

    return Policy


def save_policy(folder: Path, decision: Decision, *, method: str, note: str = "") -> None:
    """Write the whole decision function: policy.json and policy.safetensors, each wholly or not at all.

    Args:
        folder: made when missing.
        decision: weights, normalisation, bounds.
        method: that trained it.
        note: where it comes from, for readers.

    Raises:
        GalleyError: `disk-full`.
    """
    from safetensors.torch import save

    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in decision.state_dict().items()}
    with disk_full_is_an_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / _WEIGHTS, save(weights))
    write_json(folder / _SPEC, {"format": FORMAT, "method": method, "note": note, "decision": decision.spec.to_json()})


def has_policy(folder: Path) -> bool:
    """Whether `save_policy` wrote there."""
    return (folder / _SPEC).is_file()


def policy_facts(folder: Path) -> dict[str, Any]:
    """The content of policy.json: `format`, `method`, `note`, `decision`.

    Raises:
        GalleyError: `run-damaged` when it is missing or no JSON, `model-invalid` when it is of another format.
    """
    path = folder / _SPEC
    facts = read_json(path)
    if not isinstance(facts, dict) or not isinstance(facts.get("decision"), dict):
        raise GalleyError("run-damaged", f"{path} does not describe a policy", hint="restore the file or the run")
    if facts.get("format") != FORMAT:
        raise GalleyError(
            "model-invalid",
            f"{path} has the format {facts.get('format')!r}; this Galley reads {FORMAT}",
            hint="use the version of Galley that wrote it (manifest.json names it), or a newer one",
        )
    return facts


def load_policy(folder: Path) -> Decision:
    """The decision function that `save_policy` wrote; it gives the same actions to the bit.

    Args:
        folder: the result folder of a run.

    Returns:
        It, in evaluation mode.

    Raises:
        GalleyError: `run-damaged` for missing and unreadable files, `model-invalid` when description and weights do
            not fit each other.
    """
    facts = policy_facts(folder)
    try:
        spec = DecisionSpec.from_json(facts["decision"])
        with torch.random.fork_rng(devices=[]):  # the first weights, which are replaced, are drawn from the global one
            decision = Decision(spec)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise GalleyError(
            "model-invalid",
            f"{folder / _SPEC} describes no policy that can be built ({what})",
            hint="restore the file or the run",
        ) from error
    _fill(decision, _read_weights(folder / _WEIGHTS), folder / _WEIGHTS)
    return decision.eval()


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise GalleyError(
            "run-damaged", f"{path} cannot be read: {error}", hint="restore the file or the run"
        ) from error


def _fill(decision: Decision, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Load strictly: every name, shape and type."""
    if "log_std" in weights:
        decision.take_log_std(torch.zeros(decision.spec.actions.size))
    expected = {name: (tuple(t.shape), t.dtype) for name, t in decision.state_dict().items()}
    found = {name: (tuple(t.shape), t.dtype) for name, t in weights.items()}
    if expected != found:
        different = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        first = different[0]
        raise GalleyError(
            "model-invalid",
            f"{path} does not fit policy.json: {first} is {_words(found.get(first))}, "
            f"should be {_words(expected.get(first))}" + _more(len(different) - 1),
            hint="both files must come from the same run; restore them",
        )
    decision.load_state_dict(weights, strict=True)


def _words(kind: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "not there" if kind is None else f"{list(kind[0])} {str(kind[1]).removeprefix('torch.')}"


def _more(number: int) -> str:
    return f" (and {number} more)" if number else ""
