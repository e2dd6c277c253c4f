"""A researcher's own network on their own arrays: nothing in it knows of Galley.

python examples/own_module.py
"""

import sys
from pathlib import Path

import numpy as np
from torch import Tensor, nn

import galley


class Rings(nn.Module):
    """Points [B, 2] to scores of rings [B, num_classes]."""

    def __init__(self, num_classes: int, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the rings."""
        scores: Tensor = self.head(self.layers(x))
        return scores


def write_rings(path: Path, *, rows: int = 3_000, seed: int = 0) -> None:
    """Noisy points on three rings around each other; no line tells them apart."""
    random = np.random.default_rng(seed)
    ring = random.integers(3, size=rows)
    angle = random.uniform(0, 2 * np.pi, size=rows)
    radius = 1 + ring + random.normal(scale=0.2, size=rows)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    np.savez(path, x=points.astype(np.float32), y=ring)


def main(*overrides: str) -> galley.Run:
    write_rings(Path("rings.npz"))
    recipe = {"task": "classify", "model": f"{__file__}:Rings", "data": "rings.npz", "budget": {"epochs": 10}}
    run = galley.train(recipe, *overrides)
    print(run.verdict.sentence)

    module, _ = run.load()
    print(sum(weights.numel() for weights in module.parameters()), "weights")
    return run


if __name__ == "__main__":
    main(*sys.argv[1:])
