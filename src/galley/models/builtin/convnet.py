"""A small convolutional net for images of any size: three blocks, then an average over the picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn


class ConvNet(nn.Module):
    """Scores classes of images [B, channels, height, width], or [B, height, width] for grey ones.

    Args:
        num_classes: how many classes there are.
        input_shape: of an image: (channels, height, width) or (height, width).
        width: features of the first block; each block doubles them.
    """

    def __init__(self, num_classes: int, input_shape: Sequence[int] = (1, 0, 0), width: int = 32) -> None:
        super().__init__()
        sizes = [input_shape[0] if len(input_shape) == 3 else 1, width, 2 * width, 4 * width]
        self.blocks = nn.Sequential(*(self._block(a, b) for a, b in itertools.pairwise(sizes)))
        self.head = nn.Linear(sizes[-1], num_classes)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Sequential:
        # GroupNorm, because statistics over a batch would make a row's result depend on the rows beside it.
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(8, outputs),
            nn.GELU(),
            nn.MaxPool2d(2, ceil_mode=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, num_classes]."""
        if x.ndim == 3:
            x = x[:, None]
        scores: Tensor = self.head(self.blocks(x).mean(dim=(2, 3)))
        return scores
