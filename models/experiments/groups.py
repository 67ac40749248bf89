"""The random groups and straggler sets of an experiment: drawn once, shared by everything that is compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CodeSetting:
    """One point at which schemes are compared.

    Attributes:
        k: queries in a group, K.
        n: replicas, N.
        s: replicas that never answer, S; each group has its own.
        lambda_dec: smoothing of the decoding spline, in the sum-of-squares convention, for every variant alike.
        lambda_enc: the same of the encoding spline; 0 goes through every query.
    """

    k: int
    n: int
    s: int
    lambda_dec: float = 1e-5
    lambda_enc: float = 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """G groups and who answers them.

    Attributes:
        groups: shape (G, K), indices of the queries, no index twice in a group.
        survivors: shape (G, N - S), indices of the replicas that answer, ascending.
    """

    groups: NDArray[np.intp]
    survivors: NDArray[np.intp]


def draw_groups(setting: CodeSetting, *, rows: int, groups: int, seed: int) -> Draw:
    """Draw groups of distinct queries and straggler sets, both uniformly.

    Args:
        setting: K, N and S.
        rows: number of queries to draw from; at least K.
        groups: G.
        seed: the same seed and setting give the same draw.
    """
    random = np.random.default_rng((seed, setting.k, setting.n, setting.s))
    queries = np.stack([random.choice(rows, setting.k, replace=False) for _ in range(groups)])
    replicas = random.permuted(np.tile(np.arange(setting.n), (groups, 1)), axis=1)
    return Draw(groups=queries, survivors=np.sort(replicas[:, setting.s :], axis=1))
