"""RepVGG for small images, from timm's blocks."""

from __future__ import annotations

from typing import cast

from timm.models.byobnet import RepVggBlock
from timm.utils.model import reparameterize_model
from torch import Tensor, nn

from models.cifar10 import CIFAR10_CLASSES, CIFAR10_MEAN, CIFAR10_STD
from models.normalise import Normalise

_BLOCKS = (
    (32, 1),
    (64, 2), (64, 1),
    (128, 2), (128, 1), (128, 1),
    (256, 2), (256, 1),
)  # fmt: skip
"""Channels and stride of each block: sides of 32, 16, 8 and 4 pixels."""


class RepVgg(nn.Module):
    """A plain stack of 3 x 3 convolutions that is trained with branches beside each of them.

    Source: Ding, Zhang, Ma, Han, Ding, Sun, "RepVGG: Making VGG-style ConvNets great again", CVPR 2021; ours
    is narrower and shorter, and begins at full resolution, as images of 32 x 32 pixels ask for.

    Takes images of shape (B, 3, 32, 32), float32 in [0, 1], normalised inside; gives logits of shape (B, 10).
    """

    def __init__(self) -> None:
        super().__init__()
        channels = 3
        blocks: list[nn.Module] = []
        for width, stride in _BLOCKS:
            blocks.append(RepVggBlock(channels, width, stride=stride))
            channels = width
        self.normalise = Normalise(CIFAR10_MEAN, CIFAR10_STD)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, len(CIFAR10_CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        features = self.blocks(self.normalise(images)).mean(dim=(2, 3))
        return cast("Tensor", self.head(features))

    def merged(self) -> nn.Module:
        """The same function with each block's branches added up into one convolution; a copy, for evaluation.

        Of a new network, it is the form to load such weights into: timm's own (`inference_mode`) forgets the padding.
        """
        return reparameterize_model(self.eval(), inplace=False)
