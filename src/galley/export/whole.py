"""A decision function between the environment's own shapes: what is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from galley.base import GalleyError

if TYPE_CHECKING:
    from torch import Tensor

    from galley.models.control.decision import Decision


class Whole(nn.Module):
    """Observations in the environment's shape, one input for each part, to actions as the environment takes them.

    Both have a batch axis. Choices are int64 and count from the space's lowest, switches are int8, numbers float32.

    Args:
        decision: without memory and masks.

    Raises:
        GalleyError: `model-unsupported` for policies with memory, and for those that are told what is allowed.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__()
        if decision.memory is not None:
            raise GalleyError(
                "model-unsupported",
                "a policy with memory cannot be exported",
                hint="use it from Python: Policy.open(RUN).act(observation)",
            )
        if decision.spec.masked:
            raise GalleyError(
                "model-unsupported",
                "a policy that is told which choices are allowed cannot be exported: the file would not ask",
                hint="use it from Python: Policy.open(RUN).act(observation, masks=masks)",
            )
        self.decision = decision.eval()

    @property
    def names(self) -> list[str]:
        """Of the inputs: `observation`, or the keys of its parts."""
        return [leaf.name or "observation" for leaf in self.decision.spec.observations.leaves]

    def forward(self, *parts: Tensor) -> Tensor:
        """Actions, [B, ...]."""
        spec = self.decision.spec
        columns = []
        for leaf, part in zip(spec.observations.leaves, parts, strict=True):
            flat_BD = part.float().reshape(part.shape[0], leaf.stop - leaf.start)
            columns.append(flat_BD - torch.tensor(leaf.low, dtype=torch.float32) if leaf.low else flat_BD)
        actions = self.decision(torch.cat(columns, dim=1) if len(columns) > 1 else columns[0])
        return self._native(actions)

    def _native(self, actions: Tensor) -> Tensor:
        layout = self.decision.spec.actions
        if layout.kind in ("discrete", "multi-discrete"):
            low = torch.tensor([int(x) for x in layout.low])
            actions = actions + (low[0] if layout.kind == "discrete" else low)
        if layout.kind == "binary":
            actions = actions.to(torch.int8)
        return actions.reshape(actions.shape[0], *layout.shape)

    def examples(self, number: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
        """Random observations by name: where the policy's normalisation says that they lie, or around 0.

        Args:
            number: rows.
            seed: of them.
        """
        random, spec = np.random.default_rng(seed), self.decision.spec
        made = {}
        for name, leaf in zip(self.names, spec.observations.leaves, strict=True):
            size = leaf.stop - leaf.start
            if leaf.kind == "image":
                rows: np.ndarray[Any, Any] = random.integers(0, 256, (number, size), np.uint8)
            elif leaf.kind == "discrete":
                rows = random.integers(0, np.asarray(leaf.sizes), (number, size)) + np.asarray(leaf.low, np.int64)
            else:
                rows = random.standard_normal((number, size)).astype(np.float32)
                if spec.normalise:
                    shift, scale = (self.decision.get_buffer(key)[leaf.start : leaf.stop] for key in ("shift", "scale"))
                    rows = (rows * scale.numpy() + shift.numpy()).astype(np.float32)
            made[name] = rows.reshape(number, *leaf.shape)
        return made
