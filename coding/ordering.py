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
    chains = _greedy_chains(distances)
    lengths = np.sqrt(distances[chains[:-1], chains[1:]]).sum(axis=0)
    return chains[:, lengths.argmin()]


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
    before, length, after = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    block = -(-length // _LONGEST_AXIS)
    if block <= 1:
        return values
    blocks = length // block
    whole = values[(slice(None),) * axis + (slice(blocks * block),)]
    pooled: Array = whole.reshape(*before, blocks, block, *after).sum(axis=axis + 1)
    return pooled


def _squared_distances(features: Array) -> Array:
    """Squared Euclidean distances between rows, shape (k, k), never negative."""
    # Brought to a length at which no square overflows; a finite stand-in for infinity keeps chains permutations.
    scale = float(np.abs(features).max(initial=0.0))
    scaled = features / scale if scale > 1.0 else features
    centred = scaled - scaled.mean(axis=0)
    products = gram(centred)
    norms = products.diagonal()
    distances: Array = norms[:, None] + norms[None, :] - 2.0 * products
    return np.nan_to_num(np.maximum(distances, 0.0), nan=_FARTHEST, posinf=_FARTHEST)


def _greedy_chains(distances: Array) -> NDArray[np.intp]:
    """From each start, always go on to the nearest row not yet visited; all starts advance together.

    Returns:
        Shape (k, k): column s is the chain that starts at row s.
    """
    k = distances.shape[0]
    starts = np.arange(k)
    chains = np.empty((k, k), np.intp)
    chains[0] = starts
    visited = np.zeros((k, k), np.bool_)
    visited[starts, starts] = True
    for step in range(1, k):
        nearest = np.where(visited, np.inf, distances[chains[step - 1]]).argmin(axis=1)
        visited[starts, nearest] = True
        chains[step] = nearest
    return chains
