"""What a model answers, as far as its outputs tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def are_probabilities(outputs: NDArray[Any]) -> bool:
    """Whether every row, over the last axis, is a distribution over two classes or more."""
    classes = outputs.shape[-1] if outputs.ndim > 1 else 1
    return bool(classes > 1 and outputs.min() >= 0 and np.allclose(outputs.sum(axis=-1), 1.0, atol=1e-3))
