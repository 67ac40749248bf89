"""Random changes to training images, all drawn from one generator."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional

from models.recipe import Recipe


def shift(images: Tensor, *, pixels: float, generator: Generator) -> Tensor:
    """Shift every image by its own small random amount along both axes, filling with 0.

    Args:
        images: shape (B, 1, H, H), float32.
        pixels: largest shift along either axis; parts of pixels are interpolated.
        generator: where the draws come from.

    Returns:
        Images of the same shape.
    """
    if pixels == 0:
        return images
    batch, _, _, side = images.shape
    # affine_grid's coordinates run from -1 to 1 over the image: one pixel is 2 / side.
    amounts = (torch.rand(batch, 2, 1, generator=generator) * 2 - 1) * pixels * 2 / side
    matrices = torch.cat([torch.eye(2).expand(batch, 2, 2), amounts], dim=2)
    grid = functional.affine_grid(matrices, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def crop(images: Tensor, *, pixels: int, generator: Generator) -> Tensor:
    """Shift every image by its own random number of whole pixels along both axes, reflecting at the edges.

    Args:
        images: shape (B, C, H, W).
        pixels: largest shift along either axis, below H and W.
        generator: where the draws come from.

    Returns:
        Images of the same shape, with the channels last in memory.
    """
    batch, _, height, width = images.shape
    padded = functional.pad(images, [pixels] * 4, mode="reflect")
    down, right = torch.randint(0, 2 * pixels + 1, (2, batch, 1), generator=generator)
    rows = down + torch.arange(height)
    columns = right + torch.arange(width)
    cut = padded[torch.arange(batch)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return cut.permute(0, 3, 1, 2)


def flip(images: Tensor, *, generator: Generator) -> Tensor:
    """Mirror every second image, at random, from left to right; shape (B, C, H, W)."""
    chosen = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(chosen, images.flip(3), images)


def cutout(images: Tensor, *, pixels: int, generator: Generator) -> Tensor:
    """Grey out a square at a random place of every image.

    Source: DeVries and Taylor, "Improved regularization of convolutional networks with cutout", 2017.

    Args:
        images: shape (B, C, H, W), in [0, 1].
        pixels: the square's side; where it reaches over an edge, less is covered.
        generator: where the draws come from.
    """
    batch, _, height, width = images.shape
    top = torch.randint(0, height, (batch, 1), generator=generator) - pixels // 2
    left = torch.randint(0, width, (batch, 1), generator=generator) - pixels // 2
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows = (rows >= top) & (rows < top + pixels)
    in_columns = (columns >= left) & (columns < left + pixels)
    covered = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]
    return torch.where(covered, torch.tensor(0.5, dtype=images.dtype), images)


def change(images: Tensor, recipe: Recipe, generator: Generator) -> Tensor:
    """All changes to single images that a recipe wants, in the order in which it names them; shape (B, C, H, W)."""
    if recipe.shift_pixels:
        images = shift(images, pixels=recipe.shift_pixels, generator=generator)
    if recipe.crop_pixels:
        images = crop(images, pixels=recipe.crop_pixels, generator=generator)
    if recipe.flip:
        images = flip(images, generator=generator)
    if recipe.cutout_pixels:
        images = cutout(images, pixels=recipe.cutout_pixels, generator=generator)
    return images


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
