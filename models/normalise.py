"""Normalisation as a model's first layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """(x - mean) / std per channel, with mean and std as buffers.

    It lives inside the model so that clients send plain pixels in [0, 1]. Codes may be applied before it: it is
    affine, and an encoding whose rows sum to 1 commutes with every affine map.

    Args:
        mean: one value per channel, C of them.
        std: one positive value per channel, C of them.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images of shape (B, C, H, W), float32."""
        return (images - self.mean) / self.std


class NormalisedModel(nn.Module):
    """A model behind its normalisation, so that it takes pixels in [0, 1]."""

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.normalise = Normalise(mean, std)
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Run the model on images of shape (B, C, H, W), float32 in [0, 1]."""
        return cast("Tensor", self.model(self.normalise(images)))
