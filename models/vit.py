"""A small vision transformer, timm's."""

from __future__ import annotations

from typing import cast

from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from models.cifar10 import CIFAR10_CLASSES, CIFAR10_MEAN, CIFAR10_STD
from models.normalise import Normalise


class SmallViT(nn.Module):
    """Six layers of width 192 over patches of 4 x 4 pixels, their mean classified.

    Source: Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021.

    Takes images of shape (B, 3, 32, 32), float32 in [0, 1], normalised inside; gives logits of shape (B, 10).
    """

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise(CIFAR10_MEAN, CIFAR10_STD)
        self.transformer = VisionTransformer(
            img_size=32,
            patch_size=4,
            num_classes=len(CIFAR10_CLASSES),
            embed_dim=192,
            depth=6,
            num_heads=3,
            mlp_ratio=2.0,
            class_token=False,
            global_pool="avg",
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        return cast("Tensor", self.transformer(self.normalise(images)))
