"""The runner in virtual time: nothing here waits for real."""

import asyncio

import numpy as np
import pytest

from loadtest.arrivals import draw_schedule
from loadtest.records import Outcome
from loadtest.runner import run_open_loop
from loadtest.stats import summarise
from loadtest.workload import PreparedRequest

pytestmark = pytest.mark.looptime

ANSWERED = Outcome(status=200, correct=1)


def prepared(count):
    return [PreparedRequest(np.zeros(1, dtype=np.int64), b"", {}) for _ in range(count)]


def metronome(rate, count):
    return draw_schedule("constant", rate=rate, requests=count, seed=0)


class Target:
    """Answers after `delay(t)` seconds, t being the time since its first request."""

    def __init__(self, delay):
        self.delay = delay
        self.sent_at = []
        self.cancelled = 0

    async def send(self, request):
        now = asyncio.get_running_loop().time()
        self.sent_at.append(now)
        try:
            await asyncio.sleep(self.delay(now - self.sent_at[0]))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ANSWERED


async def test_a_server_that_stalls_shows_in_the_percentiles():
    # From second 4 to second 6 nothing is answered: 200 of the 1,000 requests fall into the stall. A client that
    # waits for one reply before it sends the next would have met it once, and reported a p99 of 5 ms.
    target = Target(lambda t: 0.005 + (6.0 - t if 4.0 <= t < 6.0 else 0.0))
    run = await run_open_loop(target, prepared(1000), metronome(100, 1000), max_outstanding=1000)
    summary = summarise(run.records)
    assert summary.percentiles_s[50.0] == pytest.approx(0.005, abs=1e-4)
    assert summary.percentiles_s[95.0] == pytest.approx(1.505, abs=1e-3)
    assert summary.percentiles_s[99.0] == pytest.approx(1.905, abs=1e-3)
    assert summary.percentiles_s[100.0] == pytest.approx(2.005, abs=1e-3)
    assert summary.valid


async def test_a_client_that_stalls_counts_against_itself():
    loop = asyncio.get_running_loop()

    class Blocking(Target):
        async def send(self, request):
            if len(self.sent_at) == 400:
                loop.setup_looptime(start=loop.time() + 2.0)  # as a call that blocks the loop for 2 s
            return await super().send(request)

    target = Blocking(lambda _: 0.005)
    run = await run_open_loop(target, prepared(1000), metronome(100, 1000), max_outstanding=1000)
    summary = summarise(run.records)
    assert summary.percentiles_s[99.0] == pytest.approx(1.905, abs=0.02)
    assert summary.sender_lag_p99_s == pytest.approx(1.90, abs=0.02)
    assert summary.service_p50_s == pytest.approx(0.005, abs=1e-4)
    assert not summary.valid


async def test_sends_keep_to_the_schedule_whatever_the_replies_do():
    schedule = draw_schedule("poisson", rate=50, requests=200, seed=4)
    target = Target(lambda _: 100.0)
    run = await run_open_loop(target, prepared(200), schedule, max_outstanding=1000)
    np.testing.assert_allclose(np.diff(target.sent_at), np.diff(schedule), atol=1e-4)
    np.testing.assert_allclose([record.sent_s for record in run.records], schedule, atol=1e-4)
    assert run.peak_outstanding == 200
    assert run.duration_s == pytest.approx(schedule[-1] + 100.0, abs=1e-3)


async def test_requests_over_the_bound_are_not_sent_and_count_as_failed():
    target = Target(lambda _: 10.0)
    run = await run_open_loop(target, prepared(20), metronome(100, 20), max_outstanding=5)
    assert len(target.sent_at) == 5
    assert [record.failed for record in run.records] == [False] * 5 + [True] * 15
    assert "5 requests were outstanding" in run.records[-1].outcome.error
    assert run.peak_outstanding == 5
    assert summarise(run.records).refused == 15


async def test_a_finished_request_makes_room_for_another():
    target = Target(lambda _: 0.015)
    run = await run_open_loop(target, prepared(50), metronome(100, 50), max_outstanding=2)
    assert not any(record.failed for record in run.records)


async def test_records_come_in_the_order_of_the_schedule():
    target = Target(lambda t: 1.0 - t)
    reported = []
    run = await run_open_loop(
        target, prepared(10), metronome(20, 10), max_outstanding=10, on_done=reported.append
    )
    assert [record.index for record in run.records] == list(range(10))
    assert sorted(reported, key=lambda record: record.index) == list(run.records)


async def test_cancelling_the_run_cancels_what_is_in_flight():
    target = Target(lambda _: 100.0)
    running = asyncio.ensure_future(
        run_open_loop(target, prepared(50), metronome(10, 50), max_outstanding=50)
    )
    await asyncio.sleep(2.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert target.cancelled == len(target.sent_at) == 20
