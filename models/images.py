"""Labelled images as they are stored. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Split: TypeAlias = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class Images:
    """Labelled images.

    Attributes:
        images: shape (n, C, H, W), uint8.
        labels: shape (n,), uint8.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __getitem__(self, rows: slice) -> Images:
        """Some of them."""
        return Images(self.images[rows], self.labels[rows])
