"""The pipeline in virtual time: against closed forms, and against itself."""

from __future__ import annotations

import asyncio
import math
import time

import numpy as np
import pytest

from serving.config.load import load
from serving.config.schema import Settings
from serving.simulate import Load, simulate
from serving.virtual_time import run_in_virtual_time


def settings(*overrides: str) -> Settings:
    return load(None, {}, ["replicas.count=12", "deadline_ms=100000", *overrides]).settings


def constant(seconds: float):
    return lambda replica, call: seconds


def lognormal(replica: int, call: int) -> float:
    return 0.05 * float(np.random.default_rng([replica, call]).lognormal(0.0, 0.3))


def test_hours_pass_in_no_time_and_in_order() -> None:
    seen: list[float] = []

    async def work() -> float:
        loop = asyncio.get_running_loop()

        async def note(after_s: float) -> None:
            await asyncio.sleep(after_s)
            seen.append(loop.time())

        await asyncio.gather(note(7200), note(1), note(3600))
        return loop.time()

    started = time.perf_counter()
    assert run_in_virtual_time(work()) == pytest.approx(7200)
    assert time.perf_counter() - started < 5
    assert seen == pytest.approx([1, 3600, 7200])


def test_what_cannot_happen_is_an_error_and_no_hang() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="waits for something that cannot happen"):
        run_in_virtual_time(work())


def test_without_queues_a_request_takes_its_slowest_row() -> None:
    outcome = simulate(settings("scheme.kind=none"), Load(0.1, 400, 8), lognormal)
    # The median of the largest of 8: exp(sigma * quantile(0.5 ** (1 / 8))).
    assert outcome.percentile_s(50) == pytest.approx(0.05 * math.exp(0.3 * 1.383), rel=0.05)
    assert (outcome.errors, outcome.sent) == (0, 1.0)
    assert outcome.rows == {"direct": 3200}


def test_one_replica_is_a_queue_as_the_book_has_it() -> None:
    """M/D/1 at half load: the mean wait is half the service time times rho / (1 - rho)."""
    one = settings(
        "scheme.kind=none", "replicas.count=1", "replicas.max_in_flight=1000", "grouping.window_ms=0"
    )
    outcome = simulate(one, Load(50.0, 20000, 1), constant(0.01))
    assert outcome.latencies_s.mean() == pytest.approx(0.01 + 0.005, rel=0.05)


def test_copies_cost_what_they_cost_and_codes_answer_from_wait_for() -> None:
    copies = simulate(settings("scheme.kind=replication"), Load(1.0, 200, 8), lognormal)
    assert copies.sent == pytest.approx(2.0, abs=0.01)
    coded = simulate(settings("scheme.kind=letcc"), Load(1.0, 200, 8), lognormal)
    assert coded.sent == pytest.approx(1.5)
    assert coded.rows == {"decoded": 1600}
    assert coded.decoded_from == {10: 1600}


def test_the_same_seed_gives_the_same_result_and_progress_ends_at_the_total() -> None:
    told: list[int] = []
    one, other = (
        simulate(settings("scheme.kind=hedged"), Load(5.0, 100, 4, seed=3), lognormal, told.append)
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.latencies_s, other.latencies_s)
    assert sum(told) == 200


def test_requests_that_are_too_late_are_errors_and_the_latest_of_all() -> None:
    late = settings("scheme.kind=none", "deadline_ms=50", "deadline_reserve_ms=0")
    outcome = simulate(late, Load(1.0, 50, 1), lambda replica, call: 0.2 if call % 5 == 0 else 0.01)
    assert 0 < outcome.errors < 50
    assert outcome.percentile_s(100) == math.inf
    assert outcome.percentile_s(10) < 0.05
