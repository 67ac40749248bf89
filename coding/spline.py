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

from coding.banded import solve_banded
from coding.products import multiply
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
        nodes: shape (n,), ascending.
        bending: shape (n, n), y to Q gamma. Symmetric; for lam = 0, y' bending y is the integral of u''^2.
        hat: shape (n, n), y to the spline's own values at the nodes: I - lam * bending.
    """

    __slots__ = ("_curvature", "_gaps", "bending", "hat", "nodes")

    def __init__(self, nodes: Array, lam: float) -> None:
        """Solve for all n unit vectors y at once.

        Args:
            nodes: shape (n,), strictly ascending, n >= 1.
            lam: smoothing in the sum convention, at least 0; 0 interpolates.
        """
        n = nodes.size
        self.nodes = nodes
        self.bending: Matrix = np.zeros((n, n))
        self.hat: Matrix = np.eye(n)
        self._gaps = nodes[1:] - nodes[:-1]
        self._curvature = np.zeros((n, n))  # second derivatives at the nodes; those at both ends are 0
        if n > 2:
            differences = _second_differences(self._gaps)
            gamma = solve_banded(_reinsch_bands(self._gaps, lam), differences)
            self._curvature[1:-1] = gamma
            multiply(differences.T, gamma, self.bending)
            self.hat -= lam * self.bending

    def leave_one_out(self) -> Matrix:
        """The matrix that takes y to y_v - u_v(t_v), where u_v is the spline over all nodes but v, at the same lam.

        It is (y_v - u(t_v)) / (1 - hat_vv), in which lam cancels, so that it holds for lam = 0 too. Of a single
        node nothing is left to predict it from: its own value counts as the residual.

        Returns:
            Shape (n, n).
        """
        if self.nodes.size == 1:
            return np.eye(1)
        if self.nodes.size == 2:
            return np.array([[1.0, -1.0], [-1.0, 1.0]])
        residuals: Matrix = self.bending / self.bending.diagonal()[:, None]
        return residuals

    def at(self, targets: Array) -> Matrix:
        """The matrix that takes values at the nodes to the spline's values at `targets`.

        Beyond the end nodes the spline continues as a straight line, as the natural one does.

        Args:
            targets: shape (m,).

        Returns:
            Shape (m, n); each row sums to 1.
        """
        if self.nodes.size == 1:
            return np.ones((targets.size, 1))
        left = gap_of(self.nodes, targets)
        gap = self._gaps[left]
        towards_right = (targets - self.nodes[left]) / gap
        towards_left = 1.0 - towards_right
        sag = gap * gap / 6.0
        matrix = towards_left[:, None] * self.hat[left]
        matrix += towards_right[:, None] * self.hat[left + 1]
        matrix -= (sag * _bow(towards_left))[:, None] * self._curvature[left]
        matrix -= (sag * _bow(towards_right))[:, None] * self._curvature[left + 1]
        return matrix


def gap_of(nodes: Array, targets: Array) -> NDArray[np.intp]:
    """Between which nodes each target lies: the index of the left one; the nearest gap for those outside.

    Args:
        nodes: shape (n,), ascending, n >= 2.
        targets: shape (m,).

    Returns:
        Shape (m,), each from 0 to n - 2.
    """
    inner = nodes[1:-1]
    return np.searchsorted(inner, targets, side="right")


def _second_differences(gaps: Array) -> Matrix:
    """Q': row j takes values to their second divided difference at inner node j.

    Args:
        gaps: shape (n - 1,), the distances h between neighbouring nodes, n >= 3.

    Returns:
        Shape (n - 2, n).
    """
    nodes = gaps.size + 1
    inverse = 1.0 / gaps
    differences = np.zeros((nodes - 2, nodes))
    diagonals = differences.reshape(-1)  # entry (j, j + d) lies at d + j * (n + 1)
    diagonals[0 :: nodes + 1] = inverse[:-1]
    diagonals[1 :: nodes + 1] = -inverse[:-1] - inverse[1:]
    diagonals[2 :: nodes + 1] = inverse[1:]
    return differences


def _curvature_bands(gaps: Array) -> Matrix:
    """R as its diagonal and the one below it: gamma' R gamma is the integral of u''^2.

    Args:
        gaps: shape (n - 1,), the distances h between neighbouring nodes, n >= 3.

    Returns:
        Shape (2, n - 2), as `coding.banded.solve_banded` wants it.
    """
    bands = np.zeros((2, gaps.size - 1))
    bands[0] = (gaps[:-1] + gaps[1:]) / 3.0
    bands[1, :-1] = gaps[1:-1] / 6.0
    return bands


def _reinsch_bands(gaps: Array, lam: float) -> Matrix:
    """R + lam Q'Q as its diagonal and the two below it."""
    if lam == 0:
        return _curvature_bands(gaps)
    inverse = 1.0 / gaps
    left, right = inverse[:-1], inverse[1:]
    middle = left + right
    bands = np.zeros((3, gaps.size - 1))
    bands[:2] = _curvature_bands(gaps)
    bands[0] += lam * (left * left + middle * middle + right * right)
    bands[1, :-1] -= lam * inverse[1:-1] * (middle[:-1] + middle[1:])
    bands[2, :-2] = lam * inverse[1:-2] * inverse[2:-1]
    return bands


def _bow(share: Array) -> Array:
    """How far a unit second derivative at one end of a gap bends the curve: s - s^3, and only s outside."""
    inside = np.minimum(np.maximum(share, 0.0), 1.0)
    bow: Array = share - inside * inside * inside
    return bow
