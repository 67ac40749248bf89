"""Interpolation in barycentric form as a matrix: Berrut's rational one, and Lagrange's polynomial."""

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
    return _barycentric(1.0 - 2.0 * (np.arange(nodes.size) % 2), nodes, targets)


def lagrange_matrix(nodes: Array, targets: Array) -> NDArray[np.float64]:
    """The matrix that takes values at `nodes` to the polynomial through them, of degree n - 1, at `targets`.

    Row i holds [w_j / (z - x_j)] / sum_l [w_l / (z - x_l)] with w_j = 1 / prod_l (x_j - x_l) (the second barycentric
    form; Berrut and Trefethen, SIAM Review 2004), which is stable where the nodes lie as Chebyshev's do.

    Args:
        nodes: shape (n,), strictly ascending, n >= 1, on an interval of length about 2.
        targets: shape (m,). A target that is a node gives a unit row.

    Returns:
        Shape (m, n), float64; each row sums to 1.
    """
    gaps = nodes[:, None] - nodes[None, :]
    np.fill_diagonal(gaps, 1.0)
    # Twice each gap, for the products of many gaps on [-1, 1] would leave the range of numbers; a factor cancels.
    return _barycentric(1.0 / np.prod(2.0 * gaps, axis=1), nodes, targets)


def _barycentric(weights: Array, nodes: Array, targets: Array) -> NDArray[np.float64]:
    gaps = targets[:, None] - nodes[None, :]
    coincident = gaps == 0
    terms = weights / np.where(coincident, 1.0, gaps)
    on_node = coincident.any(axis=1)
    terms[on_node] = coincident[on_node]
    normalised: NDArray[np.float64] = terms / terms.sum(axis=1, keepdims=True)
    return normalised
