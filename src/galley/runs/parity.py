"""How two forms of one model compare, and where that is noted: result/parity.json, one entry a form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from galley.runs.folder import RunFolder


@dataclass(frozen=True)
class Parity:
    """How two forms of one model compare.

    Args:
        max_difference: largest difference of a logit, or of a number of an action.
        agreement: share of tokens at which both find the same token likeliest, or of equal actions.
    """

    max_difference: float
    agreement: float

    def to_json(self) -> dict[str, float]:
        """For parity.json."""
        return {"max_difference": self.max_difference, "agreement": self.agreement}


def note_parity(run: RunFolder, form: str, parity: Parity) -> None:
    """Write a form's parity into result/parity.json, beside those of other forms.

    Raises:
        GalleyError: `run-damaged` when the file there cannot be read, `disk-full`.
    """
    there = run.read_result("parity.json") if (run.result / "parity.json").exists() else {}
    run.write_result("parity.json", {**there, form: parity.to_json()})
