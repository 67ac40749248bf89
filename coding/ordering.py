"""The order of a group: similar inputs next to each other, for a short and smooth curve through them."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coding.products import gram
from coding.scheme import Array

OrderName: TypeAlias = Literal["nearest", "none"]
"""The names of the configuration (`scheme.order`)."""

ORDERS: tuple[OrderName, ...] = ("nearest", "none")
"""Every legal `OrderName`."""

_LONGEST_AXIS = 16

_FARTHEST = 1e30
"""Stands for distances that are not finite."""


def nearest_order(rows: Array) -> NDArray[np.intp]:
    """Order rows so that each is followed by a similar one.

    A chain that goes on to the nearest row not yet visited, from the start that makes it shortest. Images are
    compared at low resolution, which costs less and, among digits, orders better: a shift by a pixel is no
    difference. Shortening the chain further (2-opt, or the shortest one of all) did not make answers better
    for groups of 8.

    Args:
        rows: shape (k, ...), finite; any k >= 1 (one group, or a queue that will be cut into groups).

    Returns:
        A permutation, shape (k,): `rows[permutation]` is the chain.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        distances = _squared_distances(_pooled(rows))
    return np.array(_shortest_greedy_chain(distances), np.intp)


def inverse_order(permutation: NDArray[np.intp]) -> NDArray[np.intp]:
    """The permutation that undoes this one: `ordered[inverse_order(p)]` for `ordered = rows[p]` is `rows`."""
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(permutation.size)
    return inverse


def _pooled(rows: Array) -> Array:
    """Sum over blocks along the long axes of images; vectors of features stay as they are.

    Returns:
        Shape (k, features), float32 at least.
    """
    pooled = rows.astype(np.promote_types(rows.dtype, np.float32), copy=False)
    if rows.ndim > 2:
        for axis in range(1, rows.ndim):
            pooled = _pool_axis(pooled, axis)
    return pooled.reshape(rows.shape[0], math.prod(pooled.shape[1:]))


def _pool_axis(values: Array, axis: int) -> Array:
    """Sum over equal blocks along one axis, so that at most 16 remain; a rest at the end is left out."""
    length = values.shape[axis]
    block = -(-length // _LONGEST_AXIS)
    if block <= 1:
        return values
    stop = length // block * block
    before = (slice(None),) * axis
    # Whole slices are added: reductions over short blocks spend their time between the blocks.
    pooled = values[(*before, slice(0, stop, block))].copy()
    for offset in range(1, block):
        pooled += values[(*before, slice(offset, stop, block))]
    return pooled


def _squared_distances(features: Array) -> Array:
    """Squared Euclidean distances between rows, shape (k, k), never negative."""
    centred = features - features.mean(axis=0)
    products = gram(centred)
    norms = products.diagonal()
    distances: Array = np.maximum(norms[:, None] + norms - 2.0 * products, 0.0)
    if math.isfinite(distances.sum()):
        return distances
    # Brought to a length at which no square overflows; a finite stand-in for what still is not finite keeps
    # chains permutations.
    largest = float(np.abs(features).max())
    if math.isfinite(largest) and largest > 1.0:
        return _squared_distances(features / largest)
    return np.nan_to_num(distances, nan=_FARTHEST, posinf=_FARTHEST)


def _shortest_greedy_chain(distances: Array) -> list[int]:
    """From each start, always go on to the nearest row not yet visited; the shortest of these chains.

    In plain Python: for a group's few rows, a step of all chains by numpy costs more than all steps here.

    Args:
        distances: squared, shape (k, k), finite.
    """
    k = len(distances)
    neighbours = distances.argsort(axis=1, kind="stable").tolist()
    lengths = np.sqrt(distances).tolist()
    shortest, best = math.inf, list(range(k))
    for start in range(k):
        chain, length, last = [start], 0.0, start
        visited = {start}
        for _ in range(k - 1):
            for row in neighbours[last]:
                if row not in visited:
                    break
            length += lengths[last][row]
            if length >= shortest:
                break
            chain.append(row)
            visited.add(row)
            last = row
        else:
            shortest, best = length, chain
    return best
