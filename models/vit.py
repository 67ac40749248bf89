"""A small vision transformer, timm's, behind a convolutional stem."""

from __future__ import annotations

from typing import cast

from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from models.cifar10 import CIFAR10_CLASSES, CIFAR10_MEAN, CIFAR10_STD
from models.normalise import Normalise

_PATCH = 4
_WIDTH = 128


class _Stem(nn.Module):
    """Three convolutions, two of them of stride 2, in the place of one of stride 4: a token for each 4 x 4 pixels.

    Source: Xiao, Singh, Mintun, Darrell, Dollar, Girshick, "Early convolutions help transformers see better",
    NeurIPS 2021. Takes the arguments with which timm makes a patch embedding.
    """

    def __init__(self, img_size: int, patch_size: int, in_chans: int, embed_dim: int, **_: object) -> None:
        super().__init__()
        self.grid_size = (img_size // patch_size, img_size // patch_size)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.layers = nn.Sequential(
            nn.Conv2d(in_chans, embed_dim // 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(embed_dim // 4),
            nn.ReLU(),
            nn.Conv2d(embed_dim // 4, embed_dim // 2, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(embed_dim // 2),
            nn.ReLU(),
            nn.Conv2d(embed_dim // 2, embed_dim, 3, stride=2, padding=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Tokens of shape (B, 64, width) from images."""
        return cast("Tensor", self.layers(images)).flatten(2).transpose(1, 2)


class SmallViT(nn.Module):
    """Four layers of width 128 over tokens of 4 x 4 pixels, their mean classified.

    Source: Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021.

    Takes images of shape (B, 3, 32, 32), float32 in [0, 1], normalised inside; gives logits of shape (B, 10).
    """

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise(CIFAR10_MEAN, CIFAR10_STD)
        self.transformer = VisionTransformer(
            img_size=32,
            patch_size=_PATCH,
            num_classes=len(CIFAR10_CLASSES),
            embed_dim=_WIDTH,
            depth=4,
            num_heads=4,
            mlp_ratio=2.0,
            class_token=False,
            global_pool="avg",
            embed_layer=_Stem,
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        return cast("Tensor", self.transformer(self.normalise(images)))
