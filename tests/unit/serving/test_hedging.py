"""When hedges are sent: the tracked percentile, the budget, and the error rate at which they end."""

import pytest

from serving.hedging import (
    CALLS_BEFORE_JUDGING,
    CALLS_BEFORE_TRACKING,
    JUDGED_CALLS,
    LATE_ROWS_AT_ONCE,
    TIMED_CALLS,
    Hedging,
)


def hedging(percentile: float | None = 95.0, budget: float = 0.05) -> Hedging:
    return Hedging(0.1, percentile, budget)


def time(policy: Hedging, *milliseconds: float) -> None:
    for each in milliseconds:
        policy.on_ended("answered", each / 1000)


def test_the_delay_is_the_configured_one_until_enough_calls_have_been_timed() -> None:
    policy = hedging()
    time(policy, *[10] * (CALLS_BEFORE_TRACKING - 1))
    assert policy.delay_s == 0.1
    time(policy, 10)
    assert policy.delay_s == 0.01


@pytest.mark.parametrize(
    ("percentile", "expected"), [(50.0, 0.050), (95.0, 0.095), (99.0, 0.099), (0.5, 0.001)]
)
def test_the_delay_is_the_percentile(percentile: float, expected: float) -> None:
    policy = hedging(percentile)
    time(policy, *reversed(range(1, 101)))
    assert policy.delay_s == pytest.approx(expected)


def test_a_fixed_delay_stays() -> None:
    policy = hedging(None)
    time(policy, *range(1, 101))
    assert policy.delay_s == 0.1


def test_the_delay_follows_a_change_of_load() -> None:
    policy = hedging()
    time(policy, *[10] * TIMED_CALLS)
    time(policy, *[100] * TIMED_CALLS)
    assert policy.delay_s == 0.1
    time(policy, *[10] * TIMED_CALLS)
    assert policy.delay_s == 0.01


def test_calls_cancelled_when_late_count_and_those_whose_caller_left_do_not() -> None:
    policy = hedging(50.0)
    time(policy, *[10] * 50)
    for _ in range(60):
        policy.on_ended("cancelled", 0.005)
    assert policy.delay_s == 0.01
    for _ in range(60):
        policy.on_ended("cancelled", 0.030)
    assert policy.delay_s == 0.03


def test_the_budget_bounds_hedges_to_its_share_of_all_rows() -> None:
    policy = hedging(budget=0.05)
    hedged = 0
    for _ in range(10_000):
        policy.on_sent(1)
        hedged += policy.allow(1)
    assert 500 <= hedged <= 500 + LATE_ROWS_AT_ONCE


def test_a_large_call_overdraws_once_and_is_paid_back() -> None:
    policy = hedging(budget=0.1)
    assert policy.allow(64)
    assert not policy.allow(1)
    policy.on_sent(530)
    assert not policy.allow(1)
    policy.on_sent(20)
    assert policy.allow(1)


def test_what_is_saved_up_is_bounded() -> None:
    policy = hedging(budget=0.05)
    policy.on_sent(1_000_000)
    assert sum(policy.allow(1) for _ in range(100)) == LATE_ROWS_AT_ONCE


def test_nothing_is_hedged_while_many_calls_fail() -> None:
    policy = hedging(budget=10.0)
    for _ in range(CALLS_BEFORE_JUDGING - 1):
        policy.on_ended("failed", 0.001)
    assert policy.allow(1)
    policy.on_sent(1)
    policy.on_ended("failed", 0.001)
    assert policy.failing
    assert not policy.allow(1)
    time(policy, *[10] * (JUDGED_CALLS - 20))
    assert policy.allow(1)


def test_without_a_budget_nothing_is_hedged_once_the_start_is_spent() -> None:
    policy = hedging(budget=0.0)
    assert sum(policy.allow(1) for _ in range(100)) == LATE_ROWS_AT_ONCE
