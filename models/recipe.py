"""How a shipped model is trained, as a value; free of torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; together with the data and the library versions it fixes the weights.

    Attributes:
        epochs: passes over the training rows.
        seed: seed of everything random: initial weights, order, changes to the rows.
        batch_rows: rows per step.
        learning_rate: the highest one; it rises over the first tenth of the steps and falls along a cosine.
        weight_decay: decoupled weight decay of AdamW.
        shift_pixels: largest random shift along each axis, parts of pixels interpolated, filling with 0.
        crop_pixels: largest random shift along each axis in whole pixels, reflecting at the edges.
        flip: whether every second row is mirrored from left to right.
        cutout_pixels: side of a square that is greyed out at random; 0 for none.
        mixup_share: share of the rows that are mixed with another one (see `models.augment.mixup`).
        teacher: a shipped model whose answers the targets are mixed with; None for labels alone.
        teacher_share: the teacher's share of the targets.
    """

    epochs: int
    learning_rate: float
    weight_decay: float
    seed: int = 0
    batch_rows: int = 200
    shift_pixels: float = 0.0
    crop_pixels: int = 0
    flip: bool = False
    cutout_pixels: int = 0
    mixup_share: float = 0.0
    teacher: str | None = None
    teacher_share: float = 0.0
