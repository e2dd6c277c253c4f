"""From flat observations to features: vectors as they are, images through convolutions, categories one-hot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.nn.functional import one_hot

from galley.base import GalleyError

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import Leaf, ObservationLayout

IMAGE_FEATURES = 512


class Encoder(nn.Module):
    """Features of flat observations, [B, D] to [B, F].

    Args:
        layout: what the columns mean.
        source: `file.py:Class` of a user's module that takes its place; made with `input_shape` if it asks for it,
            it gives features [B, F] of observations in the environment's shape.
    """

    def __init__(self, layout: ObservationLayout, source: str = "") -> None:
        super().__init__()
        self.layout = layout
        self.own: nn.Module | None = _own_module(source, layout) if source else None
        self.images = nn.ModuleDict()
        if self.own is None:
            for number, leaf in enumerate(layout.leaves):
                if leaf.kind == "image":
                    self.images[str(number)] = ImageEncoder(leaf)
        self.num_features = self._count()

    def _count(self) -> int:
        if self.own is not None:
            with torch.no_grad():
                return int(self(torch.zeros(1, self.layout.size)).shape[1])
        return sum(IMAGE_FEATURES if leaf.kind == "image" else leaf.num_features for leaf in self.layout.leaves)

    def forward(self, observations_BD: Tensor) -> Tensor:
        """Features, [B, F] float32."""
        if self.own is not None:
            leaf = self.layout.leaves[0]
            return cast("Tensor", self.own(observations_BD.float().reshape(-1, *leaf.shape)))
        if self.layout.is_vector:
            return observations_BD.float()
        return torch.cat([self._leaf(i, leaf, observations_BD) for i, leaf in enumerate(self.layout.leaves)], dim=1)

    def _leaf(self, number: int, leaf: Leaf, observations_BD: Tensor) -> Tensor:
        part = observations_BD[:, leaf.start : leaf.stop]
        if leaf.kind == "image":
            return cast("Tensor", self.images[str(number)](part))
        if leaf.kind == "discrete":
            return torch.cat([one_hot(part[:, i].long(), size).float() for i, size in enumerate(leaf.sizes)], dim=1)
        return part.float()


class ImageEncoder(nn.Module):
    """Three convolutions and a linear layer, for images of 36 pixels a side and more; two small ones below.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.shape = leaf.shape
        self.channels_first = leaf.shape[0] <= leaf.shape[2] and leaf.shape[0] <= 16
        height, width, channels = (leaf.shape[1], leaf.shape[2], leaf.shape[0]) if self.channels_first else leaf.shape
        if min(height, width) >= 36:
            layers: list[nn.Module] = [
                *(nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
                *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
            ]
        else:
            layers = [nn.Conv2d(channels, 16, 2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Flatten()]
        self.convolutions = nn.Sequential(*layers)
        with torch.no_grad():
            size = int(self.convolutions(torch.zeros(1, channels, height, width)).shape[1])
        self.linear = nn.Linear(size, IMAGE_FEATURES)

    def forward(self, pixels_BP: Tensor) -> Tensor:
        """Features of flat pixels from 0 to 255."""
        image = pixels_BP.reshape(-1, *self.shape).float() / 255.0
        if not self.channels_first:
            image = image.permute(0, 3, 1, 2)
        return torch.relu(self.linear(self.convolutions(image)))


def _own_module(source: str, layout: ObservationLayout) -> nn.Module:
    from galley.models.user_module import split_reference, user_module

    if len(layout.leaves) != 1:
        raise GalleyError(
            "model-unsupported", f"{source}: a network of one's own takes observations of one space, not of several"
        )
    path, name = split_reference(source)
    return user_module(path, name, {"input_shape": list(layout.leaves[0].shape)})
