"""Intended send times: drawn once, before the first send, from a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadtest.config import ArrivalKind

_STREAM = 1
"""Keeps the schedule's random numbers apart from those of the workload under the same seed."""


def draw_schedule(kind: ArrivalKind, *, rate: float, requests: int, seed: int) -> NDArray[np.float64]:
    """The intended send time of every request, in seconds from the start, ascending.

    "poisson" spaces them by independent exponential gaps of mean 1 / rate, as many independent users do;
    "constant" by exactly 1 / rate. Nothing that happens during the run changes them: a schedule that waits
    for replies would send least just when the server is slowest.

    Args:
        kind: how the times are spread.
        rate: requests per second, over 0.
        requests: length of the schedule.
        seed: the same seed gives the same schedule.

    Returns:
        Shape (requests,).
    """
    if kind == "constant":
        return np.arange(requests, dtype=np.float64) / rate
    generator = np.random.default_rng([seed, _STREAM])
    gaps: NDArray[np.float64] = generator.exponential(1.0 / rate, size=requests)
    return np.cumsum(gaps)
