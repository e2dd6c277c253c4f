"""Parameters side by side in one flat tensor, and Adam over it as one operation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn


class FlatParameters:
    """Parameters of one or several modules as views of one tensor, and their gradients as views of another.

    The modules go on working as before; `backward` adds into `gradient`, which has to be zeroed first. Whoever writes
    gradients out by hand writes into the views.

    Args:
        parameters: of one dtype on one device; neighbours in this order are neighbours in memory. Those that stand
            twice, such as a shared encoder's, are taken once.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters: tuple[nn.Parameter, ...] = tuple(dict.fromkeys(parameters))
        first = self.parameters[0]
        sizes = [parameter.numel() for parameter in self.parameters]
        self.starts: tuple[int, ...] = tuple(itertools.accumulate(sizes, initial=0))
        self.data: Tensor = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        self.gradient: Tensor = torch.zeros_like(self.data)
        for parameter, start, size in zip(self.parameters, self.starts, sizes, strict=False):
            view = self.data[start : start + size].view(parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = self.gradient[start : start + size].view(parameter.shape)

    def clip(self, max_norm: float) -> float:
        """Shorten the gradient to at most this L2 norm.

        Returns:
            The norm before.
        """
        norm = float(torch.linalg.vector_norm(self.gradient))
        if norm > max_norm:
            self.gradient.mul_(max_norm / (norm + 1e-6))
        return norm


class FlatAdam:
    """Adam, equal to `torch.optim.Adam`, in one fused operation.

    Args:
        flat: what it moves, along `flat.gradient`.
        betas: decay of the means of gradients and of their squares.
        epsilon: added to the root of the second.

    Source: Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, algorithm 1.
    """

    def __init__(
        self, flat: FlatParameters, *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ) -> None:
        self._flat = flat
        self._betas = betas
        self._epsilon = epsilon
        self._mean = torch.zeros_like(flat.data)
        self._square = torch.zeros_like(flat.data)
        self._count = torch.zeros((), dtype=torch.float32, device=flat.data.device)

    def step(self, learning_rate: float) -> None:
        """Move the parameters once."""
        self._count += 1
        # The means of a unit that died shrink into denormal numbers, on which a processor is five times slower.
        torch.set_flush_denormal(True)
        torch._fused_adam_(
            [self._flat.data],
            [self._flat.gradient],
            [self._mean],
            [self._square],
            [],
            [self._count],
            lr=learning_rate,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=0.0,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
        )
        torch.set_flush_denormal(False)

    def state(self) -> dict[str, Any]:
        """For a checkpoint; the parameters belong to somebody else."""
        return {"mean": self._mean.clone(), "square": self._square.clone(), "count": self._count.clone()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._count.copy_(state["count"])


class FlatRmsprop:
    """RMSProp, equal to `torch.optim.RMSprop`, or as TensorFlow 1 had it.

    Args:
        flat: what it moves, along `flat.gradient`.
        decay: of the mean of squares.
        epsilon: added to its root.
        tensorflow: epsilon inside the root, and the mean of squares begins at one, so that first steps are small.

    Source: Hinton, lecture 6e of "Neural Networks for Machine Learning", 2012; for TensorFlow's form,
    Stable-Baselines3's `RMSpropTFLike`.
    """

    def __init__(
        self, flat: FlatParameters, *, decay: float = 0.99, epsilon: float = 1e-5, tensorflow: bool = False
    ) -> None:
        self._flat = flat
        self._decay = decay
        self._epsilon = epsilon
        self._tensorflow = tensorflow
        self._square = torch.ones_like(flat.data) if tensorflow else torch.zeros_like(flat.data)

    def step(self, learning_rate: float) -> None:
        """Move the parameters once."""
        gradient = self._flat.gradient
        self._square.mul_(self._decay).addcmul_(gradient, gradient, value=1 - self._decay)
        root = (self._square + self._epsilon).sqrt_() if self._tensorflow else self._square.sqrt().add_(self._epsilon)
        self._flat.data.addcdiv_(gradient, root, value=-learning_rate)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"square": self._square.clone()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._square.copy_(state["square"])
