"""Where on [-1, 1] queries and tasks sit: Chebyshev points, ascending.

The papers' formulas run in descending order; splines want ascending ones. Both sets are built symmetric to
the last bit, so that a code treats both ends of a group alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_integer


def chebyshev_first_kind(n: int) -> NDArray[np.float64]:
    """The n roots of the Chebyshev polynomial T_n: the queries' points alpha.

    cos((2k - 1) pi / 2n) for k = 1..n, in ascending order. The ends of the interval are
    not among them.

    Args:
        n: how many, at least 1.

    Returns:
        Shape (n,), float64, strictly ascending.

    Raises:
        BadParameter: n is less than 1.
    """
    require_integer("n", n, 1)
    return np.sin(np.pi * np.arange(1 - n, n, 2) / (2 * n))


def chebyshev_second_kind(n: int) -> NDArray[np.float64]:
    """The n extrema of the Chebyshev polynomial T_(n-1), both ends included: the tasks' points beta.

    cos((k - 1) pi / (n - 1)) for k = 1..n, in ascending order; 0 for n = 1.

    Args:
        n: how many, at least 1.

    Returns:
        Shape (n,), float64, strictly ascending.

    Raises:
        BadParameter: n is less than 1.
    """
    require_integer("n", n, 1)
    return np.sin(np.pi * np.arange(1 - n, n, 2) / (2 * max(n - 1, 1)))
