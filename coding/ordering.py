"""The order of a group: similar inputs next to each other, for a short and smooth curve through them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coding.scheme import Array

OrderName: TypeAlias = Literal["nearest", "none"]
"""The names of the configuration (`scheme.order`)."""

ORDERS: tuple[OrderName, ...] = ("nearest", "none")
"""Every legal `OrderName`."""

_LONGEST_AXIS = 32


def nearest_order(rows: Array) -> NDArray[np.intp]:
    """Order rows so that each is followed by a similar one.

    Args:
        rows: shape (k, ...), finite; any k >= 1 (one group, or a queue that will be cut into groups).

    Returns:
        A permutation, shape (k,): `rows[permutation]` is the chain.
    """
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
    """Average over blocks along the long axes of images; vectors of features stay as they are.

    Returns:
        Shape (k, features), float32 at least.
    """
    pooled = rows.astype(np.promote_types(rows.dtype, np.float32), copy=False)
    if rows.ndim > 2:
        for axis in range(1, rows.ndim):
            pooled = _pool_axis(pooled, axis)
    return pooled.reshape(rows.shape[0], -1)


def _pool_axis(values: Array, axis: int) -> Array:
    """Average over equal blocks along one axis, so that at most 32 remain; a rest at the end is left out."""
    length = values.shape[axis]
    block = -(-length // _LONGEST_AXIS)
    if block == 1:
        return values
    kept = length // block
    whole = values[(slice(None),) * axis + (slice(0, kept * block),)]
    split = whole.reshape(*values.shape[:axis], kept, block, *values.shape[axis + 1 :])
    pooled: Array = split.mean(axis=axis + 1)
    return pooled


def _squared_distances(features: Array) -> Array:
    """Squared Euclidean distances between rows, shape (k, k), never negative."""
    centred = features - features.mean(axis=0)
    norms = np.einsum("kd,kd->k", centred, centred)
    distances: Array = norms[:, None] + norms[None, :] - 2.0 * (centred @ centred.T)
    np.maximum(distances, 0.0, out=distances)
    return distances


def _greedy_chains(distances: Array) -> NDArray[np.intp]:
    """From each start, always go on to the nearest row not yet visited; all starts advance together.

    Returns:
        Shape (k, k): column s is the chain that starts at row s.
    """
    k = distances.shape[0]
    starts = np.arange(k)
    chains = np.empty((k, k), np.intp)
    chains[0] = starts
    visited = np.zeros((k, k))
    visited[starts, starts] = np.inf
    for step in range(1, k):
        nearest = (distances[chains[step - 1]] + visited).argmin(axis=1)
        visited[starts, nearest] = np.inf
        chains[step] = nearest
    return chains
