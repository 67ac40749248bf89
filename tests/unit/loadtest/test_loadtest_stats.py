import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.records import Outcome, Record
from loadtest.stats import Interval, percentile, percentile_interval, rank, summarise

INF = math.inf


def record(index, latency_s, *, lag_s=0.0, rows=1, correct=1, error=None, **outcome):
    intended = 0.1 * index
    done = intended + (1.0 if math.isinf(latency_s) else latency_s)
    if math.isinf(latency_s):
        error = error or "status 504: too late"
    return Record(
        index, intended, intended + lag_s, done, rows, Outcome(error=error, correct=correct, **outcome)
    )


@pytest.mark.parametrize(
    ("percent", "count", "expected"),
    [
        (50, 1, 1),
        (50, 2, 1),
        (50, 3, 2),
        (99, 100, 99),
        (99, 101, 100),
        (99.9, 100, 100),
        (99.9, 1000, 999),
        (99.9, 2000, 1998),
        (100, 7, 7),
        (7, 100, 7),
        (0.001, 10, 1),
    ],
)
def test_rank(percent, count, expected):
    assert rank(percent, count) == expected


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 3.0), (60, 3.0), (61, 4.0), (80, 4.0), (81, INF), (99, INF)]
)
def test_percentiles_of_five_values_one_of_them_infinite(percent, expected):
    assert percentile(np.array([4.0, INF, 1.0, 3.0, 2.0]), percent) == expected


def test_more_than_one_percent_of_failures_makes_p99_infinite():
    values = np.ones(1000)
    values[:10] = INF
    assert percentile(values, 99.0) == 1.0
    values[10] = INF
    assert percentile(values, 99.0) == INF


@given(
    st.lists(st.floats(0, 10) | st.just(INF), min_size=1, max_size=60),
    st.sampled_from([1.0, 25.0, 50.0, 95.0, 99.0, 99.9, 100.0]),
)
def test_a_percentile_is_the_smallest_value_that_enough_requests_stay_within(values, percent):
    result = percentile(np.array(values), percent)
    assert result in values
    assert sum(value <= result for value in values) * 100 >= percent * len(values) * (1 - 1e-12)
    assert sum(value < result for value in values) * 100 < percent * len(values)


@pytest.mark.parametrize("percent", [50.0, 99.0])
def test_intervals_of_independent_requests_cover_the_true_percentile(percent):
    generator = np.random.default_rng(7)
    truth = -math.log(1.0 - percent / 100.0)
    covered = [
        _covers(percentile_interval(generator.exponential(size=600), percent), truth) for _ in range(400)
    ]
    assert np.mean(covered) >= 0.95


def test_intervals_widen_when_neighbours_share_their_latency():
    generator = np.random.default_rng(8)
    truth = math.log(2.0)
    covered = [
        _covers(percentile_interval(np.repeat(generator.exponential(size=100), 10), 50.0), truth)
        for _ in range(400)
    ]
    # Taken for 1,000 independent requests, the same samples would cover the median in about 46 % of cases.
    assert np.mean(covered) >= 0.90


def test_too_small_a_sample_has_no_upper_bound_for_p99():
    values = np.linspace(0.01, 1.0, 100)
    interval = percentile_interval(values, 99.0)
    assert interval.high == INF
    assert 0.9 < interval.low < 1.0


def _covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def test_summary_by_hand():
    records = [
        record(0, 0.010, rows=2, correct=2, replicas_used=8),
        record(1, 0.030, rows=2, correct=1, replicas_used=10, degraded=True),
        record(2, 0.020, rows=2, correct=2, replicas_used=None),
        record(3, INF, rows=2, correct=0),
    ]
    summary = summarise(records)
    assert summary.percentiles_s[50.0] == pytest.approx(0.020)
    assert [summary.percentiles_s[p] for p in (95.0, 99.0, 99.9, 100.0)] == [INF] * 4
    assert (summary.requests, summary.errors, summary.refused, summary.degraded) == (4, 1, 0, 1)
    assert summary.accuracy == pytest.approx(5 / 6)
    assert summary.replicas_used == pytest.approx(9.0)
    assert summary.error_counts == (("status 504: too late", 1),)
    assert summary.valid


def test_a_run_without_any_answer_has_no_accuracy():
    summary = summarise([record(index, INF) for index in range(3)])
    assert summary.accuracy is None
    assert summary.percentiles_s[50.0] == INF
    assert summary.errors == 3


@pytest.mark.parametrize(("lag_s", "valid"), [(0.0049, True), (0.0051, False)])
def test_a_sender_late_by_over_a_tenth_of_the_median_makes_the_run_invalid(lag_s, valid):
    records = [record(index, 0.050, lag_s=lag_s if index < 3 else 0.0) for index in range(100)]
    assert summarise(records).valid is valid


def test_requests_that_were_never_sent_count_as_refused_errors_and_not_into_the_lag():
    refused = Record(1, 0.1, None, 0.1, 1, Outcome(error="not sent"))
    summary = summarise([record(0, 0.01), refused])
    assert (summary.refused, summary.errors) == (1, 1)
    assert summary.sender_lag_p99_s == 0.0
