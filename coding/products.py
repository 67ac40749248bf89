"""Matrix products that stay on the calling thread.

The products of a code are bound by memory, so that a second thread gains little; and on a busy machine BLAS's
wait for one costs ten times the product. OpenBLAS divides a product among threads once it has more than 2^18
multiplications, so ours are computed in strips below that.
"""

from __future__ import annotations

import numpy as np

from coding.scheme import Array

_MULTIPLICATIONS = 2**18
_SHORTEST_STRIP = 16


def multiply(matrix: Array, columns: Array, out: Array) -> None:
    """Write the product of a small matrix and wide columns into `out`.

    Args:
        matrix: shape (r, c).
        columns: shape (..., c, d), of the matrix's dtype.
        out: shape (..., r, d), of the matrix's dtype; any strides.
    """
    width = columns.shape[-1]
    strip = max(_SHORTEST_STRIP, _MULTIPLICATIONS // max(1, matrix.size))
    if width <= strip:
        np.matmul(matrix, columns, out=out)
        return
    for start in range(0, width, strip):
        stop = start + strip
        np.matmul(matrix, columns[..., start:stop], out=out[..., start:stop])


def product(matrix: Array, columns: Array) -> Array:
    """The product of a small matrix and wide columns.

    Args:
        matrix: shape (r, c).
        columns: shape (c, d), of the matrix's dtype.

    Returns:
        Shape (r, d), C-contiguous.
    """
    if matrix.size * columns.shape[1] <= _MULTIPLICATIONS:
        whole: Array = matrix.dot(columns)  # a microsecond faster than matmul into an array of ours
        return whole
    out = np.empty((matrix.shape[0], columns.shape[1]), matrix.dtype)
    multiply(matrix, columns, out)
    return out


def gram(rows: Array) -> Array:
    """All inner products between rows.

    Args:
        rows: shape (k, d), or (g, k, d) for g products at once; any strides.

    Returns:
        Shape (k, k) or (g, k, k), in the dtype of `rows`.
    """
    k, width = rows.shape[-2:]
    if k * k * width <= _MULTIPLICATIONS:
        whole: Array = rows.dot(rows.T) if rows.ndim == 2 else np.matmul(rows, rows.swapaxes(1, 2))
        return whole
    strip = max(_SHORTEST_STRIP, _MULTIPLICATIONS // (k * k))
    products: Array = np.zeros((*rows.shape[:-2], k, k), rows.dtype)
    for start in range(0, width, strip):
        part = rows[..., start : start + strip]
        products += np.matmul(part, part.swapaxes(-2, -1))
    return products
