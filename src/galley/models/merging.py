"""Merge an adapter into its unquantised base, and prove that the merged model behaves like the adapter."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.models.loading import LoadPrecision, Note, load
from galley.models.results import LoadedResult, load_adapter
from galley.models.saving import save_as
from galley.models.shape import read_folder

if TYPE_CHECKING:
    from torch import Tensor, nn

BOUND = 0.1
"""Largest share of the adapter's own effect on the logits that merging may lose or distort."""
NOISE = 1e-4
"""Differences below this share of the logits' spread count as none: float32 products in another order."""


@dataclass(frozen=True)
class MergeParity:
    """How the merged model, loaded again from disk, compares with base and adapter; all computed in float32.

    Args:
        max_difference: largest difference of a logit.
        agreement: share of positions with the same most likely token.
        distortion: root mean square difference from the adapter, as a share of what the adapter changed in the base.
        stored: precision of the merged weights.
    """

    max_difference: float
    agreement: float
    distortion: float
    stored: LoadPrecision

    def to_json(self) -> dict[str, Any]:
        """For parity.json."""
        return asdict(self)


def merge(
    adapter: Path,
    out: Path,
    *,
    prompts: Sequence[Sequence[int]] = (),
    bound: float = BOUND,
    on_note: Note = lambda kind, message: None,
) -> MergeParity:
    """Write the merged model to `out` in hub layout and compare it, loaded again, with the adapter.

    Weights are merged in float32 and stored in bf16; where bf16 is too coarse to keep the tuning, in float32.

    Args:
        adapter: a folder written by `save`.
        out: the folder to write; replaced when it exists.
        prompts: token ids to compare on; random ones when left out.
        bound: largest allowed distortion.
        on_note: told when float32 is needed.

    Raises:
        GalleyError: `adapter-merge` when the merged model differs by more than the bound; it is then not kept.
            `model-unsupported` for an adapter on a user's own module.
    """
    import torch

    loaded = load_adapter(adapter, precision="fp32", on_note=on_note)
    if loaded.spec.kind == "module":
        message = f"{loaded.spec.reference} takes inputs that are not known here, so a merged model cannot be checked"
        raise GalleyError("model-unsupported", message, hint="use the adapter as it is")
    rows = _rows(prompts, loaded.spec.vocab_size)
    with torch.inference_mode():
        tuned = _logits(loaded.module, rows)
        with loaded.module.disable_adapter():  # type: ignore[operator]
            base = _logits(loaded.module, rows)
    merged = loaded.module.merge_and_unload()  # type: ignore[operator]
    for stored in ("bf16", "fp32"):
        parity = _write_and_compare(merged, loaded, out, rows, base=base, tuned=tuned, stored=stored)
        if parity.distortion <= bound:
            return parity
        on_note("merge", f"merged in {stored}, {parity.distortion:.0%} of the tuning is distorted")
    shutil.rmtree(out)
    raise GalleyError(
        "adapter-merge",
        f"merged, the model differs from the adapter by {parity.distortion:.0%} of what the adapter changed "
        f"(allowed: {bound:.0%})",
        hint="use the adapter as it is, and report this with the model's name",
    )


def _write_and_compare(
    merged: nn.Module,
    loaded: LoadedResult,
    out: Path,
    rows: Sequence[Tensor],
    *,
    base: Tensor,
    tuned: Tensor,
    stored: LoadPrecision,
) -> MergeParity:
    import torch

    save_as(merged, loaded.tokenizer, out, spec=loaded.spec, labels=loaded.labels, precision=stored)
    spec = read_folder(out, reference=str(out), source="folder")
    again, _ = load(spec, precision="fp32", labels=loaded.labels, tokenizer=loaded.tokenizer)
    with torch.inference_mode():
        reloaded = _logits(again, rows)
    spread = float(tuned.std())
    effect = _rms(tuned - base)
    error = max(0.0, _rms(reloaded - tuned) - NOISE * spread)
    return MergeParity(
        max_difference=float((reloaded - tuned).abs().max()),
        agreement=float((reloaded.argmax(-1) == tuned.argmax(-1)).float().mean()),
        distortion=error / effect if effect else (float("inf") if error else 0.0),
        stored=stored,
    )


def _rows(prompts: Sequence[Sequence[int]], vocab_size: int) -> list[Tensor]:
    import torch

    if prompts:
        return [torch.tensor([list(ids)]) for ids in prompts]
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, vocab_size, (1, 24), generator=generator) for _ in range(4)]


def _logits(module: nn.Module, rows: Sequence[Tensor]) -> Tensor:
    import torch

    return torch.cat([module(input_ids=ids).logits.float().flatten(0, -2) for ids in rows])


def _rms(difference: Tensor) -> float:
    return float(difference.square().mean().sqrt())
