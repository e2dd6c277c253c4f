"""A saved policy for use: observations as the environment gives them in, actions as it takes them out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from galley.base import GalleyError
from galley.models.control.results import has_policy, load_policy

if TYPE_CHECKING:
    from torch import Tensor

    from galley.models.control.decision import Decision

    Array = np.ndarray[Any, Any]


class Policy:
    """A decision function that plays.

    Args:
        decision: weights, normalisation, bounds.
        seed: of drawn actions.

    Example:
        >>> policy = Policy.open("runs/cartpole-001")  # doctest: +SKIP
        >>> observation, _ = environment.reset()  # doctest: +SKIP
        >>> environment.step(policy.act(observation))  # doctest: +SKIP
    """

    def __init__(self, decision: Decision, *, seed: int = 0) -> None:
        self.decision = decision.eval()
        self._generator = torch.Generator().manual_seed(seed)
        self._remembered: tuple[Tensor, Tensor] | None = None

    @classmethod
    def open(cls, path: Path | str, *, seed: int = 0) -> Policy:
        """The policy of a run.

        Args:
            path: folder of the run, or its result folder.
            seed: of drawn actions.

        Raises:
            GalleyError: as `load_policy`; `run-unfinished` when there is none.
        """
        folder = Path(path)
        for place in (folder, folder / "result"):
            if has_policy(place):
                return cls(load_policy(place), seed=seed)
        raise GalleyError("run-unfinished", f"{folder} holds no policy.json", hint="name a finished run of an agent")

    def act(self, observations: Any, *, sampled: bool = False, masks: Any = None) -> Any:
        """Actions for what the environment shows.

        Args:
            observations: one observation as the environment gives it (its space's shape; dicts and tuples for those
                spaces), or N of them stacked as a vector environment gives them, or flat rows [N, D].
            sampled: draw from the policy's distribution instead of taking the best action.
            masks: allowed choices, as `action_masks()` gives them, or N rows of them; None when all are.

        Returns:
            One action as the environment takes it, or N of them as a vector environment does.

        Raises:
            GalleyError: `environment-invalid` for other shapes, `model-unsupported` when there is nothing to draw from
                or nothing to forbid.
        """
        rows_ND, single = self._rows(observations)
        with torch.inference_mode():
            outputs_NO = self._outputs(torch.from_numpy(rows_ND))
            if masks is not None:
                outputs_NO = self._allowed(outputs_NO, masks)
            actions = (self._drawn(outputs_NO) if sampled else self.decision.best(outputs_NO)).numpy()
        layout = self.decision.spec.actions
        return layout.native(actions[0]) if single else layout.native_many(actions)

    def reset(self, over: Array | None = None) -> None:
        """Forget what was seen: needed at the start of every episode by policies with memory.

        Args:
            over: rows whose episode ended, [N] bool; all when None.
        """
        if over is None or self._remembered is None:
            self._remembered = None
            return
        keep_N1 = torch.from_numpy(~np.asarray(over, bool)).float()[:, None]
        hidden, cell = self._remembered
        self._remembered = hidden * keep_N1, cell * keep_N1

    def _outputs(self, observations_ND: Tensor) -> Tensor:
        decision = self.decision
        seen_ND = decision.normalised(observations_ND)
        if decision.memory is None:
            return decision.outputs(seen_ND)
        before = self._remembered
        if before is not None and before[0].shape[1] != len(seen_ND):
            raise GalleyError(
                "environment-invalid",
                f"the policy remembers {before[0].shape[1]} rows and was given {len(seen_ND)}",
                hint="call reset() before acting on another number of copies",
            )
        after_1NF, self._remembered = decision.memory(decision.encoder(seen_ND)[None], before)
        return decision.from_features(after_1NF[0])

    def _allowed(self, outputs_NO: Tensor, masks: Any) -> Tensor:
        """Outputs with minus infinity for choices that are forbidden."""
        if self.decision.spec.rule != "logits":
            raise GalleyError("model-unsupported", f"a policy of rule {self.decision.spec.rule} knows no masks")
        allowed = torch.as_tensor(np.asarray(masks, bool))
        if allowed.shape not in (outputs_NO.shape, outputs_NO.shape[1:]):
            raise GalleyError(
                "environment-invalid",
                f"masks have the shape {list(allowed.shape)}, expected {list(outputs_NO.shape)}",
            )
        return outputs_NO.masked_fill(~allowed, -torch.inf)

    def _drawn(self, outputs_NO: Tensor) -> Tensor:
        """Actions from the distribution whose parameters the outputs are."""
        spec, log_std = self.decision.spec, self.decision._buffers["log_std"]
        if spec.rule == "logits":
            chances = [part.softmax(dim=1) for part in torch.split(outputs_NO, list(spec.actions.sizes), dim=1)]
            parts = [torch.multinomial(chance, 1, generator=self._generator)[:, 0] for chance in chances]
            return parts[0] if spec.actions.kind == "discrete" else torch.stack(parts, dim=1)
        if spec.rule == "mean" and log_std is not None:
            noise = torch.randn(outputs_NO.shape, generator=self._generator)
            return self.decision.best(outputs_NO + log_std.exp() * noise)
        raise GalleyError(
            "model-unsupported",
            f"this policy (rule {spec.rule}) was saved without a distribution to draw actions from",
            hint="take its best actions: sampled=False",
        )

    def _rows(self, observations: Any) -> tuple[Array, bool]:
        """Flat rows, [N, D], and whether there was one observation without an axis of rows."""
        layout = self.decision.spec.observations
        first = layout.leaves[0]
        if not isinstance(observations, (dict, tuple)):
            array = np.asarray(observations)
            own = len(layout.leaves) == 1 and not first.name
            if array.shape != first.shape and array.shape[1:] != first.shape and array.ndim == 2:
                own = False
            if not own:
                if array.ndim != 2 or array.shape[1] != layout.size:
                    raise self._unlike(array)
                return array.astype(layout.dtype), False
            observations = array
        shape = _shape_of(observations, first.name)
        single = shape == first.shape
        if not single and (len(shape) < 1 or shape[1:] != first.shape):
            raise self._unlike(np.empty(shape))
        if single:
            row = np.empty(layout.size, layout.dtype)
            layout.flatten(observations, row)
            return row[None], True
        try:
            return layout.flatten_many(observations, shape[0]), False
        except ValueError:
            raise self._unlike(np.empty(shape)) from None

    def _unlike(self, array: Array) -> GalleyError:
        layout = self.decision.spec.observations
        shapes = ", ".join(f"{leaf.name}: {list(leaf.shape)}".removeprefix(": ") for leaf in layout.leaves)
        return GalleyError(
            "environment-invalid",
            f"an observation of the shape {list(array.shape)} is not what this policy was trained on ({shapes})",
            hint=f"give one observation, several with an axis of rows before, or flat rows of {layout.size} numbers",
        )


def _shape_of(observations: Any, name: str) -> tuple[int, ...]:
    for key in name.split(".") if name else ():
        try:
            observations = observations[int(key)] if isinstance(observations, tuple) else observations[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise GalleyError(
                "environment-invalid", f"the observation has no part {name!r}, on which the policy was trained"
            ) from None
    return np.asarray(observations).shape
