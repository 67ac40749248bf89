"""Statistics over records: pure functions that know about infinite latencies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.records import Record

MAX_LAG_SHARE = 0.10
"""A run whose sender was late by more than this share of the median latency (at p99) measured the sender."""

PERCENTS = (50.0, 95.0, 99.0, 99.9, 100.0)
"""The percentiles of a summary; 100 is the maximum."""

_Z_95 = 1.959963984540054
_BLOCK = 20
_MIN_BLOCKS = 10


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval; a bound is infinite where the sample is too small to give one."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in figures. Latencies count from the intended send time; a failed request's is infinite.

    Attributes:
        requests: requests in the schedule.
        errors: requests without a usable answer, the refused ones among them.
        refused: requests never sent, because too many were outstanding.
        error_counts: the distinct errors and how often each occurred, the most frequent first.
        percentiles_s: percent to latency, seconds, for each of `PERCENTS`.
        p50_interval_s: where the true median lies.
        p99_interval_s: where the true 99th percentile lies.
        service_p50_s: median time from the actual send to the answer, seconds.
        sender_lag_p99_s: how late the sender was, seconds.
        accuracy: share of the answered rows whose class is right; None when nothing was answered.
        degraded: answered requests that the server marked as degraded.
        replicas_used: mean number of replicas behind an answer; None when the server does not say.
        valid: the sender kept to its schedule (see `MAX_LAG_SHARE`).
    """

    requests: int
    errors: int
    refused: int
    error_counts: tuple[tuple[str, int], ...]
    percentiles_s: dict[float, float]
    p50_interval_s: Interval
    p99_interval_s: Interval
    service_p50_s: float
    sender_lag_p99_s: float
    accuracy: float | None
    degraded: int
    replicas_used: float | None
    valid: bool


def rank(percent: float, count: int) -> int:
    """The nearest rank, 1-based: the smallest r with r / count >= percent / 100."""
    # Products such as 0.07 * 100 land a hair above the whole number that they stand for.
    return max(1, math.ceil(percent * count / 100.0 - 1e-9))


def percentile(values: NDArray[np.float64], percent: float) -> float:
    """The nearest-rank percentile: a value that occurred, and never one below the true rank.

    Interpolation would report less than the worst of a small sample, and is undefined next to infinity.

    Args:
        values: shape (n,), n >= 1, in any order; may hold infinities.
        percent: over 0 and up to 100.
    """
    position = rank(percent, values.size) - 1
    return float(np.partition(values, position)[position])


def percentile_interval(values: NDArray[np.float64], percent: float) -> Interval:
    """A distribution-free 95 % interval of a percentile, by order statistics.

    The number of values below the true percentile is binomial, so two ranks around the percentile's own
    enclose it. Neighbouring requests share groups, stragglers and queues: as in Woodruff's intervals for
    clustered samples (JASA 47, 1952), the binomial variance is inflated by the design effect, here that of
    blocks of 20 consecutive requests.

    Args:
        values: shape (n,), n >= 1, in the order of the schedule; may hold infinities.
        percent: over 0 and below 100.
    """
    count = values.size
    share = percent / 100.0
    below = values <= percentile(values, percent)
    spread = _Z_95 * math.sqrt(count * share * (1.0 - share) * _design_effect(below, share))
    low_rank = math.floor(count * share - spread)
    high_rank = math.ceil(count * share + spread) + 1
    ordered = np.sort(values)
    low = float(ordered[low_rank - 1]) if low_rank >= 1 else 0.0
    high = float(ordered[high_rank - 1]) if high_rank <= count else math.inf
    return Interval(low, high)


def _design_effect(below: NDArray[np.bool_], share: float) -> float:
    """Variance of the blocks' counts over that of independent requests; at least 1."""
    blocks = below.size // _BLOCK
    if blocks < _MIN_BLOCKS:
        return 1.0
    counts = below[: blocks * _BLOCK].reshape(blocks, _BLOCK).sum(axis=1)
    return max(1.0, float(np.var(counts, ddof=1)) / (_BLOCK * share * (1.0 - share)))


def summarise(records: Sequence[Record]) -> Summary:
    """Compute every figure of one run.

    Args:
        records: one per request, in the order of the schedule; at least one.
    """
    latencies = np.array([record.latency_s for record in records])
    lags = np.array([record.lag_s for record in records if record.lag_s is not None])
    failures = Counter(record.outcome.error for record in records if record.outcome.error is not None)
    lag_p99 = percentile(lags, 99.0) if lags.size else 0.0
    median = percentile(latencies, 50.0)
    return Summary(
        requests=len(records),
        errors=sum(failures.values()),
        refused=len(records) - lags.size,
        error_counts=tuple(failures.most_common()),
        percentiles_s={percent: percentile(latencies, percent) for percent in PERCENTS},
        p50_interval_s=percentile_interval(latencies, 50.0),
        p99_interval_s=percentile_interval(latencies, 99.0),
        service_p50_s=percentile(np.array([record.service_s for record in records]), 50.0),
        sender_lag_p99_s=lag_p99,
        accuracy=accuracy(records),
        degraded=sum(record.outcome.degraded for record in records if not record.failed),
        replicas_used=_mean_replicas(records),
        valid=lag_p99 <= MAX_LAG_SHARE * median,
    )


def accuracy(records: Sequence[Record]) -> float | None:
    """The share of answered rows whose class is right; None when no row was answered.

    Failed requests are counted as errors, once, and not again as wrong answers.
    """
    answered = [record for record in records if not record.failed]
    rows = sum(record.rows for record in answered)
    return sum(record.outcome.correct for record in answered) / rows if rows else None


def _mean_replicas(records: Sequence[Record]) -> float | None:
    used = [record.outcome.replicas_used for record in records if record.outcome.replicas_used is not None]
    return sum(used) / len(used) if used else None
