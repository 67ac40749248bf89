"""Symmetric banded systems, small and many: a thin layer over LAPACK."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpbsv

from coding.scheme import Array


def solve_banded(bands: Array, right_sides: Array) -> NDArray[np.float64]:
    """Solve A x = b for a symmetric positive definite band matrix A and many b.

    It calls LAPACK's `pbsv` itself because the checks of `scipy.linalg.solveh_banded` take several times as long
    as these systems do.

    Args:
        bands: shape (w + 1, n), float64: the diagonal of A and the w diagonals below it. Row r starts with
            A[r, 0]; its last r entries are not used.
        right_sides: shape (n, m), float64.

    Returns:
        Shape (n, m).

    Raises:
        numpy.linalg.LinAlgError: A is not positive definite, in floating point at least.
    """
    _, solution, info = dpbsv(bands, right_sides, lower=1)
    if info:
        raise np.linalg.LinAlgError(f"the band matrix is not positive definite at its leading minor {info}")
    solved: NDArray[np.float64] = solution
    return solved
