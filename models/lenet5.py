"""LeNet-5 (LeCun et al., "Gradient-based learning applied to document recognition", 1998)."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from models.mnist import MNIST_MEAN, MNIST_STD
from models.normalise import Normalise


class LeNet5(nn.Module):
    """Two convolutions and three dense layers: 61,706 parameters.

    As in the paper but for the usual simplifications: every second-layer map sees every first-layer map, ReLU
    stands for the scaled tanh, the maximum for trained average pooling, and logits for distances.

    Takes images of shape (B, 1, 28, 28), float32 in [0, 1], normalised inside; gives logits of shape (B, 10).
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            Normalise([MNIST_MEAN], [MNIST_STD]),
            nn.Conv2d(1, 6, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        return cast("Tensor", self.layers(images))
