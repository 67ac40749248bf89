"""Where on [-1, 1] queries and tasks sit: Chebyshev or equispaced points, ascending.

The papers' formulas run in descending order; splines want ascending ones. All sets but ApproxIFER's are built
symmetric to the last bit, so that a code treats both ends of a group alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_integer

Points: TypeAlias = NDArray[np.float64]

SplineNodesName: TypeAlias = Literal["chebyshev", "equispaced"]
"""The names of the configuration for splines (`scheme.nodes`)."""

BerrutNodesName: TypeAlias = Literal["chebyshev", "equispaced", "approxifer"]
"""The names of the configuration for rational interpolation."""

SPLINE_NODES: tuple[SplineNodesName, ...] = ("chebyshev", "equispaced")
"""Every legal `SplineNodesName`."""

BERRUT_NODES: tuple[BerrutNodesName, ...] = (*SPLINE_NODES, "approxifer")
"""Every legal `BerrutNodesName`."""


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


def equispaced(n: int) -> NDArray[np.float64]:
    """The centres of n equal cells of [-1, 1].

    (2k - 1 - n) / n for k = 1..n. The ends of the interval are not among them.

    Args:
        n: how many, at least 1.

    Returns:
        Shape (n,), float64, strictly ascending.

    Raises:
        BadParameter: n is less than 1.
    """
    require_integer("n", n, 1)
    return np.arange(1 - n, n, 2) / n


def approxifer_tasks(n: int) -> NDArray[np.float64]:
    """The tasks' points beta as the authors of ApproxIFER evaluate them: the upper end included, the lower one not.

    cos(i pi / n) for i = 0..n - 1, in ascending order. Source: Soleymani et al., "ApproxIFER", arXiv 2109.09868, and
    their published scripts.

    Args:
        n: how many, at least 1.

    Returns:
        Shape (n,), float64, strictly ascending.

    Raises:
        BadParameter: n is less than 1.
    """
    require_integer("n", n, 1)
    return np.sin(np.pi * np.arange(2 - n, n + 1, 2) / (2 * n))


def code_points(nodes: BerrutNodesName, k: int, n: int) -> tuple[Points, Points]:
    """Where the queries and the tasks of a code sit.

    | nodes | alpha | beta |
    |---|---|---|
    | `chebyshev` | first kind | second kind (BACC, LeTCC) |
    | `equispaced` | centres of k equal cells | centres of n equal cells |
    | `approxifer` | first kind | second kind of n + 1, without the lower end |

    Args:
        nodes: one of `BERRUT_NODES`.
        k: queries, at least 1.
        n: tasks, at least 1.

    Returns:
        alpha, shape (k,), and beta, shape (n,).
    """
    alpha, beta = _POINTS[nodes]
    return alpha(k), beta(n)


def systematic_points(nodes: SplineNodesName, k: int, n: int) -> tuple[Points, Points, tuple[int, ...]]:
    """Where the queries and the tasks of a systematic code sit: a task on every query, the others between queries.

    The n - k coded tasks are spread over the k - 1 gaps as evenly as whole numbers allow, and within a gap evenly, by
    place (see `task_places`). A group of one has no gaps: all its tasks are its query, at points that do not matter.

    Args:
        nodes: one of `SPLINE_NODES`.
        k: queries, at least 1.
        n: tasks, at least k.

    Returns:
        alpha, shape (k,); beta, shape (n,), strictly ascending for k > 1; for each query the index of its own task.
    """
    alpha, _ = code_points(nodes, k, n)
    if k == 1:
        return alpha, equispaced(n), (0,)
    gaps, spare = k - 1, n - k
    counts = [spare * (gap + 1) // gaps - spare * gap // gaps for gap in range(gaps)]
    if spare < gaps:  # in the middle of each stretch of gaps that share one
        counts = [0] * gaps
        for task in range(spare):
            counts[(2 * task + 1) * gaps // (2 * spare)] += 1
    between = [
        gap + 0.5 + (step + 1) / (count + 1) for gap, count in enumerate(counts) for step in range(count)
    ]
    coded = np.array(between)
    points = 2.0 * coded / k - 1.0 if nodes == "equispaced" else -np.cos(np.pi * coded / k)
    beta = np.concatenate([alpha, points])
    order = np.argsort(beta, kind="stable")
    return alpha, beta[order], tuple(np.argsort(order)[:k].tolist())


def task_places(nodes: BerrutNodesName, k: int, n: int) -> Points:
    """Where the tasks of a code sit, counted in queries: query number j, from 0, is at place j + 1/2.

    Args:
        nodes: one of `BERRUT_NODES`.
        k: queries, at least 1.
        n: tasks, at least 1.

    Returns:
        Shape (n,), in [0, k], ascending.
    """
    _, beta = code_points(nodes, k, n)
    if nodes == "equispaced":
        return k * (beta + 1.0) / 2.0
    return k * (1.0 - np.arccos(np.clip(beta, -1.0, 1.0)) / np.pi)


_POINTS: Mapping[BerrutNodesName, tuple[Callable[[int], Points], Callable[[int], Points]]] = MappingProxyType(
    {
        "chebyshev": (chebyshev_first_kind, chebyshev_second_kind),
        "equispaced": (equispaced, equispaced),
        "approxifer": (chebyshev_first_kind, approxifer_tasks),
    }
)
