"""The order of a group: similar inputs next to each other, for a short and smooth curve through them."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
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
    dtype = np.promote_types(rows.dtype, np.float32)
    if rows.ndim <= 2:
        return rows.astype(dtype, copy=False).reshape(rows.shape[0], math.prod(rows.shape[1:]))
    sums = [rows[sample].astype(dtype, copy=False) for sample in _block_samples(rows.shape[1:])]
    while len(sums) > 1:  # a power of two
        sums = [one + other for one, other in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0].reshape(rows.shape[0], math.prod(sums[0].shape[1:]))


@lru_cache(maxsize=64)
def _block_samples(item_shape: tuple[int, ...]) -> tuple[tuple[slice, ...], ...]:
    """Cut images into equal blocks, at most 16 along an axis, and pick places of a block to sum over.

    All places of blocks that are at most 2 long, as for images of up to 32 x 32. Of larger blocks the middle alone:
    most of a large image is then never read, which is what costs, and the chains are as short.

    Returns:
        Indexes into rows, each with one place of every block; rests at the end are left out.
    """
    blocks = [max(1, -(-length // _LONGEST_AXIS)) for length in item_shape]
    if max(blocks) <= 2:
        ranges = [range(block) for block in reversed(blocks)]
        places = [place[::-1] for place in itertools.product(*ranges)]
    else:
        places = [tuple(block // 2 for block in blocks)]
    return tuple(
        (
            slice(None),
            *(
                slice(start, length // block * block, block)
                for start, length, block in zip(place, item_shape, blocks, strict=True)
            ),
        )
        for place in places
    )


def _squared_distances(features: Array) -> Array:
    """Squared Euclidean distances between rows, shape (k, k), never negative."""
    centred = features - np.add.reduce(features) / len(features)
    products = gram(centred)
    norms = products.diagonal()
    distances: Array = norms[:, None] + norms
    distances -= 2.0 * products
    np.maximum(distances, 0.0, out=distances)
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
