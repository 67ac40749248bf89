"""Random changes to training digits, all drawn from one generator."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional


def move(images: Tensor, *, degrees: float, pixels: float, generator: Generator) -> Tensor:
    """Turn and shift every image by its own small random amount, filling with 0.

    Args:
        images: shape (B, 1, H, H), float32.
        degrees: largest turn in either direction.
        pixels: largest shift along either axis.
        generator: where the draws come from.

    Returns:
        Images of the same shape.
    """
    if degrees == 0 and pixels == 0:
        return images
    batch, _, _, side = images.shape
    angle, right, down = (torch.rand(3, batch, generator=generator) * 2 - 1).unbind()
    angle = angle * math.radians(degrees)
    # affine_grid's coordinates run from -1 to 1 over the image: one pixel is 2 / side.
    right, down = right * pixels * 2 / side, down * pixels * 2 / side
    cosine, sine = torch.cos(angle), torch.sin(angle)
    rows = [torch.stack([cosine, -sine, right], 1), torch.stack([sine, cosine, down], 1)]
    grid = functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def mixup(images: Tensor, targets: Tensor, *, share: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Replace a share of the rows by random mixtures with other rows of the batch, targets alike.

    Mixup (Zhang, Cisse, Dauphin, Lopez-Paz, ICLR 2018) with alpha = 1, that is, uniform mixing weights. It
    makes the network nearly linear between digits, which is what decoding of coded queries lives on.

    Args:
        images: shape (B, ...), float32.
        targets: shape (B, C), float32, class probabilities.
        share: probability that a row is mixed.
        generator: where the draws come from.

    Returns:
        Images and targets of the same shapes.
    """
    batch = len(images)
    weight = torch.rand(batch, generator=generator)
    weight = torch.where(torch.rand(batch, generator=generator) < share, weight, 1.0)
    partner = torch.randperm(batch, generator=generator)
    over_images = weight.view(-1, *[1] * (images.dim() - 1))
    over_targets = weight.view(-1, 1)
    return (
        torch.lerp(images[partner], images, over_images),
        torch.lerp(targets[partner], targets, over_targets),
    )
