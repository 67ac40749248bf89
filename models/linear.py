"""A linear classifier, for the codes that are exact for such models."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from models.mnist import MNIST_MEAN, MNIST_STD
from models.normalise import Normalise


class LinearClassifier(nn.Module):
    """Multinomial logistic regression on MNIST's pixels: 7,850 parameters.

    Takes images of shape (B, 1, 28, 28), float32 in [0, 1], normalised inside; gives logits of shape (B, 10).
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Normalise([MNIST_MEAN], [MNIST_STD]), nn.Flatten(), nn.Linear(784, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        return cast("Tensor", self.layers(images))
