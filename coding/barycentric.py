"""Berrut's rational interpolation as a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coding.scheme import Array


def berrut_matrix(nodes: Array, targets: Array) -> NDArray[np.float64]:
    """The matrix that takes values at `nodes` to Berrut's interpolant at `targets`.

    Row i holds w_j(z) = [(-1)^j / (z - x_j)] / sum_l [(-1)^l / (z - x_l)] for z = targets[i] (Berrut 1988;
    BACC). The signs alternate over the given nodes: for a decode, number the points that survived,
    not those that were sent, or the interpolant gets poles between them.

    Args:
        nodes: shape (n,), strictly ascending, n >= 1.
        targets: shape (m,). A target that is a node gives a unit row.

    Returns:
        Shape (m, n), float64; each row sums to 1.
    """
    gaps = targets[:, None] - nodes[None, :]
    coincident = gaps == 0
    signs = 1.0 - 2.0 * (np.arange(nodes.size) % 2)
    weights = signs / np.where(coincident, 1.0, gaps)
    on_node = coincident.any(axis=1)
    weights[on_node] = coincident[on_node]
    normalised: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return normalised
