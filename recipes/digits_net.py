"""A researcher's own model: plain PyTorch, nothing of Galley."""

from torch import Tensor, nn


class Net(nn.Module):
    """Digits [B, 1, 8, 8] to scores [B, num_classes]."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.head(self.features(x))
        return scores
