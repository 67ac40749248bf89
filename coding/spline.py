"""The natural cubic smoothing spline as a matrix, for any number of nodes.

For values y at nodes t_1 < ... < t_n the spline u minimises

    sum_v (y_v - u(t_v))^2  +  lam * integral u''(z)^2 dz,

the convention of `scipy.interpolate.make_smoothing_spline`. The coding papers (LeTCC) minimise the *mean* of
the squares plus lambda times the integral instead: see `sum_convention`. For fixed nodes and lam the map from
y to u(z) is linear, hence a matrix that can be built once and applied to any number of outputs.

It is built through Reinsch's banded system (Reinsch 1967; Green and Silverman 1994, section 2.3). With
h_i = t_(i+1) - t_i, Q (n x (n - 2)) the second divided differences and R ((n - 2) x (n - 2)) tridiagonal,

    (R + lam Q'Q) gamma = Q'y,      u(t) = y - lam Q gamma,

where gamma are the second derivatives at the inner nodes. The kernel form of the same spline is badly
conditioned; this one is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from coding.scheme import Array

Matrix = NDArray[np.float64]


def sum_convention(lambda_paper: float, points: int) -> float:
    """The lam of this module for a lambda of the papers.

    Multiplying the papers' objective by the number of points |F| turns their mean into our sum, so
    lam = |F| * lambda: at a fixed lambda, lam falls as arrivals drop out; at a fixed lam it does not.
    """
    return points * lambda_paper


class SmoothingSpline:
    """The smoothing spline over fixed nodes: matrices that take values at the nodes, wherever they come from.

    One node gives a constant, two give a line, whatever lam is.

    Attributes:
        hat: shape (n, n), y to the spline's own values at the nodes, u(t). The identity for lam = 0.
        leave_one_out: shape (n, n), y to y_v - u_v(t_v), where u_v is the spline over all nodes but v
            with the same lam. Of a single node nothing is left to predict it from: its own value counts as
            the residual.
    """

    __slots__ = ("_curvature", "_gaps", "_nodes", "hat", "leave_one_out")

    def __init__(self, nodes: Array, lam: float) -> None:
        """Solve for all n unit vectors y at once.

        Args:
            nodes: shape (n,), strictly ascending, n >= 1.
            lam: smoothing in the sum convention, at least 0; 0 interpolates.
        """
        n = nodes.size
        self._nodes = nodes
        self._gaps = np.diff(nodes)
        self._curvature = np.zeros((n, n))  # second derivatives at the nodes; those at both ends are 0
        self.hat: Matrix = np.eye(n)
        self.leave_one_out: Matrix = np.eye(n) if n == 1 else np.array([[1.0, -1.0], [-1.0, 1.0]])
        if n > 2:
            differences = _second_differences(self._gaps)
            gamma = solveh_banded(
                _banded_system(self._gaps, lam), differences.T, lower=True, check_finite=False
            )
            self._curvature[1:-1] = gamma
            bending = differences @ gamma
            self.hat -= lam * bending
            # (y_v - u(t_v)) / (1 - hat_vv); lam cancels, so that this holds for an interpolating spline too
            self.leave_one_out = bending / bending.diagonal()[:, None]

    def at(self, targets: Array) -> Matrix:
        """The matrix that takes values at the nodes to the spline's values at `targets`.

        Beyond the end nodes the spline continues as a straight line, as the natural one does.

        Args:
            targets: shape (m,).

        Returns:
            Shape (m, n); each row sums to 1.
        """
        if self._nodes.size == 1:
            return np.ones((targets.size, 1))
        left = np.clip(np.searchsorted(self._nodes, targets, side="right") - 1, 0, self._nodes.size - 2)
        gap = self._gaps[left]
        towards_right = (targets - self._nodes[left]) / gap
        towards_left = 1.0 - towards_right
        sag = gap * gap / 6.0
        matrix: Matrix = (
            towards_left[:, None] * self.hat[left]
            + towards_right[:, None] * self.hat[left + 1]
            - (sag * _bow(towards_left))[:, None] * self._curvature[left]
            - (sag * _bow(towards_right))[:, None] * self._curvature[left + 1]
        )
        return matrix


def _second_differences(gaps: Array) -> Matrix:
    """Q: column j takes values to their second divided difference at inner node j."""
    inner = gaps.size - 1
    inverse = 1.0 / gaps
    differences = np.zeros((inner + 2, inner))
    column = np.arange(inner)
    differences[column, column] = inverse[:-1]
    differences[column + 1, column] = -inverse[:-1] - inverse[1:]
    differences[column + 2, column] = inverse[1:]
    return differences


def _banded_system(gaps: Array, lam: float) -> Matrix:
    """R + lam Q'Q as its diagonal and the two below it, the layout of LAPACK's `pbsv`."""
    inverse = 1.0 / gaps
    middle = -inverse[:-1] - inverse[1:]
    bands = np.zeros((3, gaps.size - 1))
    bands[0] = (gaps[:-1] + gaps[1:]) / 3.0 + lam * (inverse[:-1] ** 2 + middle**2 + inverse[1:] ** 2)
    bands[1, :-1] = gaps[1:-1] / 6.0 + lam * inverse[1:-1] * (middle[:-1] + middle[1:])
    bands[2, :-2] = lam * inverse[1:-2] * inverse[2:-1]
    return bands


def _bow(share: Array) -> Array:
    """How far a unit second derivative at one end of a gap bends the curve: s - s^3, and only s outside."""
    clipped = np.clip(share, 0.0, 1.0)
    bow: Array = share - clipped * clipped * clipped
    return bow
