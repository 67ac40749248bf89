"""Stragglers, failures and impatient clients in virtual time: who answers, exactly when, and what is cancelled."""

import asyncio
import math

import numpy as np
import pytest
from scenario import NEVER, REFUSES, WIDTH, Stack, after, misshapen, spoilt, stack

from coding.copies import HedgedParams, NoneParams, ReplicationParams
from coding.letcc import LetccParams
from serving.config import GroupingSettings, LocalReplicas
from serving.errors import (
    AnswerNotFinite,
    DeadlineExceeded,
    Draining,
    QueueFull,
    ReplicaRefused,
    TooFewReplicas,
)
from serving.hedging import Hedging
from serving.transport.scripted import Step

pytestmark = pytest.mark.looptime

LETCC = LetccParams(k=4, n=7, wait_for=5, floor=3, output_domain="as_is", lambda_dec=0.0)
LOOSE = 0.6
"""How far a decoded answer to inputs 1, 2, 3, 4 may be from 2, 4, 6, 8, also with the end of the curve missing."""


async def test_the_answer_comes_with_the_last_replica_it_waits_for_and_the_stragglers_are_cancelled() -> None:
    delays = [0.010, 0.020, 5.0, 0.030, 0.040, 5.0, 0.050]
    async with stack(LETCC, [[after(delay)] for delay in delays]) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert outcome.seconds == pytest.approx(0.050)
        assert outcome.values == pytest.approx([2, 4, 6, 8], abs=LOOSE)
        await asyncio.sleep(0)
        assert running.outcomes() == [["answered"]] * 2 + [["cancelled"]] + [["answered"]] * 2 + [
            ["cancelled"],
            ["answered"],
        ]
        provenance = outcome.answers[0].provenance
        assert (provenance.obtained, provenance.replicas_used, provenance.degraded) == ("decoded", 5, False)
        assert provenance.missing == ("replica-2", "replica-5")


async def test_drained_stragglers_are_left_to_finish_unheard_but_not_for_ever() -> None:
    delays = [0.01] * 5 + [0.05, math.inf]
    async with stack(LETCC, [[after(delay)] for delay in delays], grace_s=2.0) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert outcome.seconds == pytest.approx(0.01)
        await asyncio.sleep(1.9)
        assert running.outcomes()[5:] == [["answered"], ["pending"]]
        await asyncio.sleep(0.2)
        assert running.outcomes()[6] == ["cancelled"]


async def test_a_partial_group_goes_at_the_end_of_the_window_with_a_code_of_its_own_size() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7, grouping=GroupingSettings(window_ms=50)) as running:
        outcome = await running.ask([1, 3])
        assert outcome.seconds == pytest.approx(0.06)
        assert outcome.values == pytest.approx([2, 6], abs=1e-5)
        assert sum(len(transport.calls) for transport in running.transports) == 2 + 7 - 4
        assert outcome.answers[0].provenance.replicas_used == 3


async def test_a_lone_row_is_answered_exactly_by_the_first_replica() -> None:
    scripts = [[after(0.03)], [after(0.01)], [NEVER], [NEVER], [NEVER], [NEVER], [NEVER]]
    async with stack(LETCC, scripts, grouping=GroupingSettings(window_ms=0)) as running:
        outcome = await running.ask([21])
        assert outcome.values == [42.0]
        assert outcome.seconds == pytest.approx(0.01)
        assert outcome.answers[0].provenance.error_estimate == 0.0


async def test_groups_that_are_due_together_share_one_call_per_replica() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        outcome = await running.ask(range(10, 22))
        assert outcome.values == pytest.approx([2 * value for value in range(10, 22)], abs=1.5)
        assert [len(transport.calls) for transport in running.transports] == [1] * 7
        assert running.transports[0].calls[0].request.inputs[0].data.shape == (3, WIDTH)


async def test_requests_of_the_same_moment_share_their_calls_too() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        outcomes = await asyncio.gather(*(running.ask([n, n, n, n]) for n in range(5, 10)))
        assert [outcome.values for outcome in outcomes] == [
            pytest.approx([2 * n] * 4, abs=1e-4) for n in range(5, 10)
        ]
        assert sum(len(transport.calls) for transport in running.transports) == 7


def points_of(running: Stack, replica: int) -> list[float]:
    return [float(call.request.inputs[0].data[0, 0]) for call in running.transports[replica].calls]


async def test_healthy_replicas_take_every_point_of_the_curve_in_turn() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        for _ in range(60):
            await running.ask([1, 2, 3, 4])
        assert len(set(points_of(running, 3))) == 7


async def test_a_replica_that_fell_silent_gets_the_point_that_the_group_can_best_do_without() -> None:
    scripts = [[after(0.01)]] * 6 + [[NEVER]]
    queries = np.array([1, 2, 3, 4], np.float32).reshape(1, 4, 1)
    scheme = LETCC.build(4)
    spared = max(scheme.tasks, key=lambda task: task.rank).index
    async with stack(LETCC, scripts) as running:
        for _ in range(10):
            await running.ask([1, 2, 3, 4])
        # From the third group on, for in the first two a healthy replica may have come last as well.
        assert points_of(running, 6)[2:] == pytest.approx([float(scheme.encode(queries)[spared, 0, 0])] * 8)


async def test_at_the_deadline_it_answers_from_what_is_there_and_says_so() -> None:
    scripts = [[after(0.01)]] * 3 + [[NEVER]] * 4
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask([1, 1, 1, 1], timeout_s=0.5)
        assert outcome.seconds == pytest.approx(0.48)
        assert outcome.values == pytest.approx([2] * 4, abs=1e-4)
        assert all(answer.provenance.degraded for answer in outcome.answers)
        assert running.metric('unstraggle_rows_total{degraded="true",obtained="decoded"}') == 4


async def test_below_the_floor_at_the_deadline_it_fails_and_cancels_everything() -> None:
    scripts = [[after(0.01)]] * 2 + [[NEVER]] * 5
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask([1, 2, 3, 4], timeout_s=0.5)
        assert isinstance(outcome.error, DeadlineExceeded)
        assert "2 of 7 replicas had answered" in str(outcome.error)
        assert outcome.seconds == pytest.approx(0.48)
        await asyncio.sleep(0)
        assert running.outcomes()[2:] == [["cancelled"]] * 5


async def test_requests_in_one_group_keep_their_own_deadlines() -> None:
    scripts = [[after(0.01)]] * 4 + [[after(0.3)]] + [[NEVER]] * 2
    async with stack(LETCC, scripts) as running:
        hasty, patient = await asyncio.gather(
            running.ask([1, 1], timeout_s=0.1), running.ask([1, 1], timeout_s=1.0)
        )
        assert hasty.seconds == pytest.approx(0.08)
        assert hasty.answers[0].provenance.degraded
        assert patient.seconds == pytest.approx(0.3)
        assert not patient.answers[0].provenance.degraded


async def test_failed_replicas_are_not_waited_for() -> None:
    scripts = [[after(0.01)]] * 4 + [[REFUSES]] * 3
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask([1, 1, 1, 1])
        assert outcome.seconds == pytest.approx(0.01)
        assert outcome.answers[0].provenance.degraded
        assert outcome.answers[0].provenance.replicas_used == 4


async def test_too_many_failures_fail_at_once_and_name_the_last_one() -> None:
    scripts = [[NEVER]] * 2 + [[REFUSES]] * 5
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert isinstance(outcome.error, TooFewReplicas)
        assert "out of memory" in str(outcome.error)
        assert outcome.seconds == 0.0


@pytest.mark.parametrize("bad", [spoilt, misshapen])
async def test_an_answer_that_is_not_finite_or_lost_a_row_counts_as_a_failure(bad) -> None:
    scripts = [[after(0.01)]] * 5 + [[Step(bad)]] * 2
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask([3, 3, 3, 3])
        assert outcome.values == pytest.approx([6] * 4, abs=1e-4)
        assert outcome.answers[0].provenance.missing == ("replica-5", "replica-6")


@pytest.mark.parametrize(
    ("others", "expected"), [([Step(spoilt)] * 6, AnswerNotFinite), ([REFUSES] * 6, TooFewReplicas)]
)
async def test_a_row_alone_whose_answers_are_no_numbers_is_not_worth_asking_again(others, expected) -> None:
    async with stack(LETCC, [[step] for step in (Step(spoilt), *others)]) as running:
        outcome = await running.ask([3])
        assert isinstance(outcome.error, expected)


async def test_a_raw_row_goes_alone_and_its_neighbours_are_coded_without_it() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        outcome = await running.ask([3, math.nan, 3, 3, 3], raw=[False, True, False, False, False])
        assert math.isnan(outcome.values[1])
        assert [outcome.values[0], *outcome.values[2:]] == pytest.approx([6] * 4, abs=1e-4)


async def test_one_client_leaving_harms_nobody_and_its_group_goes_on() -> None:
    async with stack(LETCC, [[after(0.05)]] * 7) as running:
        leaving = asyncio.create_task(running.ask([1, 1]))
        staying = asyncio.create_task(running.ask([1, 1]))
        await asyncio.sleep(0.02)
        leaving.cancel()
        outcome = await staying
        assert outcome.values == pytest.approx([2, 2], abs=1e-4)
        assert outcome.seconds == pytest.approx(0.05)


async def test_when_all_clients_of_a_group_leave_its_calls_are_cancelled() -> None:
    async with stack(LETCC, [[after(5.0)]] * 7) as running:
        leaving = asyncio.create_task(running.ask([1, 2, 3, 4]))
        await asyncio.sleep(0.02)
        leaving.cancel()
        await asyncio.sleep(0.001)
        assert running.outcomes() == [["cancelled"]] * 7


async def test_a_row_that_left_before_its_group_was_formed_is_never_sent() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7, grouping=GroupingSettings(window_ms=50)) as running:
        leaving = asyncio.create_task(running.ask([1]))
        await asyncio.sleep(0.02)
        leaving.cancel()
        await asyncio.sleep(0.1)
        assert running.outcomes() == [[]] * 7


async def test_replication_takes_the_first_copy() -> None:
    scripts = [[after(0.5)], [after(0.02)], [NEVER]]
    async with stack(ReplicationParams(copies=3, output_domain="as_is"), scripts) as running:
        outcome = await running.ask([7])
        assert outcome.values == [14.0]
        assert outcome.seconds == pytest.approx(0.02)
        assert outcome.answers[0].provenance.obtained == "replicated"
        await asyncio.sleep(0)
        assert running.outcomes() == [["cancelled"], ["answered"], ["cancelled"]]


async def test_a_hedge_is_sent_only_when_the_first_is_late() -> None:
    hedged = HedgedParams(copies=2, delay_ms=50, output_domain="as_is")
    async with stack(hedged, [[after(0.01), NEVER], [after(0.01)]]) as running:
        prompt = await running.ask([1])
        assert (prompt.seconds, prompt.answers[0].provenance.obtained) == (pytest.approx(0.01), "direct")
        await running.ask([1])
        late = await running.ask([1])
        assert (late.seconds, late.answers[0].provenance.obtained) == (pytest.approx(0.06), "hedged")
        await asyncio.sleep(0.001)
        assert running.outcomes() == [["answered", "cancelled"], ["answered", "answered"]]


async def test_a_hedge_starts_early_when_the_first_failed() -> None:
    hedged = HedgedParams(copies=2, delay_ms=50, output_domain="as_is")
    async with stack(hedged, [[REFUSES], [after(0.01)]]) as running:
        outcome = await running.ask([1])
        assert outcome.seconds == pytest.approx(0.01)
        assert outcome.values == [2.0]


async def test_without_redundancy_rows_spread_over_the_replicas_and_nothing_waits_for_a_window() -> None:
    params = NoneParams(output_domain="as_is")
    async with stack(params, [[after(0.01)]] * 4, grouping=GroupingSettings(window_ms=500)) as running:
        outcome = await running.ask(range(8))
        assert outcome.seconds == pytest.approx(0.01)
        assert outcome.values == [2.0 * value for value in range(8)]
        assert [call.request.inputs[0].data.shape[0] for t in running.transports for call in t.calls] == [
            2
        ] * 4


async def hang(running: Stack, requests: int) -> None:
    for _ in range(requests):
        await running.ask([1, 2, 3, 4])


async def test_a_hung_replica_is_ejected_and_comes_back_when_it_answers_its_probe() -> None:
    settings = LocalReplicas(count=7, hang_after_ms=100, probe_interval_ms=50)
    scripts = [[after(0.01)]] * 6 + [[NEVER]]
    async with stack(LETCC, scripts, replicas=settings) as running:
        running.transports[6].is_ready = False
        await hang(running, 12)
        await asyncio.sleep(0.1)
        assert running.replicas.states["replica-6"] == "ejected"
        sent = len(running.transports[6].calls)
        await hang(running, 7)
        assert len(running.transports[6].calls) == sent
        running.transports[6].is_ready = True
        await asyncio.sleep(0.1)
        assert running.replicas.states["replica-6"] == "healthy"


async def test_a_merely_slow_replica_that_answers_its_probe_is_not_ejected() -> None:
    settings = LocalReplicas(count=7, hang_after_ms=100, probe_interval_ms=50)
    async with stack(LETCC, [[after(0.01)]] * 6 + [[after(0.5)]], replicas=settings) as running:
        await hang(running, 30)
        await asyncio.sleep(0.1)
        assert running.replicas.states["replica-6"] == "healthy"


async def test_never_more_than_the_configured_share_is_ejected() -> None:
    settings = LocalReplicas(count=7, hang_after_ms=100, probe_interval_ms=50, max_ejected_share=0.3)
    async with stack(LETCC, [[after(0.01)]] * 3 + [[NEVER]] * 4, replicas=settings) as running:
        for transport in running.transports[3:]:
            transport.is_ready = False
        for _ in range(3):
            await running.ask([1, 2, 3, 4], timeout_s=0.5)
        await asyncio.sleep(0.2)
        states = list(running.replicas.states.values())
        assert states.count("ejected") == 2
        assert states.count("suspect") == 2


async def test_after_ejections_nobody_waits_for_the_deadline_any_more() -> None:
    settings = LocalReplicas(count=7, hang_after_ms=100, probe_interval_ms=50)
    async with stack(LETCC, [[after(0.01)]] * 4 + [[NEVER]] * 3, replicas=settings) as running:
        for transport in running.transports[4:]:
            transport.is_ready = False
        slow = await running.ask([1, 1, 1, 1], timeout_s=0.5)
        assert slow.seconds == pytest.approx(0.48)
        await asyncio.sleep(0.2)
        quick = await running.ask([1, 1, 1, 1])
        assert quick.seconds == pytest.approx(0.01)
        assert quick.answers[0].provenance.degraded
        assert quick.answers[0].provenance.missing == ("replica-4", "replica-5", "replica-6")


async def test_a_backlogged_replica_is_an_erasure() -> None:
    settings = LocalReplicas(count=7, max_in_flight=1, hang_after_ms=60_000)
    async with stack(LETCC, [[after(0.01)]] * 6 + [[NEVER]], replicas=settings, grace_s=60) as running:
        for _ in range(5):
            outcome = await running.ask([1, 2, 3, 4])
            assert outcome.seconds == pytest.approx(0.01)
        assert len(running.transports[6].calls) == 1
        assert running.metric('unstraggle_replica_skipped_tasks_total{replica="replica-6"}') == 4


async def test_when_every_replica_is_busy_groups_wait_and_then_go_together() -> None:
    settings = LocalReplicas(count=2, max_in_flight=1)
    async with stack(NoneParams(output_domain="as_is"), [[after(0.1)]] * 2, replicas=settings) as running:
        first = [asyncio.create_task(running.ask([n])) for n in range(2)]
        await asyncio.sleep(0.01)
        second = [asyncio.create_task(running.ask([n])) for n in range(4)]
        outcomes = await asyncio.gather(*first, *second)
        assert [outcome.error for outcome in outcomes] == [None] * 6
        assert max(outcome.seconds for outcome in outcomes) == pytest.approx(0.19)
        assert max(len(transport.calls) for transport in running.transports) <= 3


async def test_a_row_still_queued_at_its_deadline_gets_an_error_and_leaves_no_trace() -> None:
    settings = LocalReplicas(count=1, max_in_flight=1)
    async with stack(NoneParams(output_domain="as_is"), [[after(0.4)]], replicas=settings) as running:
        first = asyncio.create_task(running.ask([1]))
        await asyncio.sleep(0.01)
        outcome = await running.ask([2], timeout_s=0.1)
        assert isinstance(outcome.error, DeadlineExceeded)
        assert (await first).values == [2.0]
        assert len(running.transports[0].calls) == 1


async def test_past_the_admission_limit_a_request_is_refused_at_once() -> None:
    async with stack(LETCC, [[after(0.1)]] * 7, grouping=GroupingSettings(max_queued_rows=4)) as running:
        first = asyncio.create_task(running.ask([1, 2, 3, 4]))
        await asyncio.sleep(0)
        refused = await running.ask([5])
        assert isinstance(refused.error, QueueFull)
        assert refused.seconds == 0.0
        assert (await first).error is None


async def test_no_replica_at_all_is_an_error_at_once() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        for number in range(7):
            running.replicas.detach(number, "killed")
        outcome = await running.ask([1, 2, 3, 4])
        assert isinstance(outcome.error, TooFewReplicas)
        assert outcome.seconds == 0.0


async def test_stopping_answers_the_accepted_and_refuses_the_new() -> None:
    async with stack(LETCC, [[after(0.1)]] * 7) as running:
        accepted = asyncio.create_task(running.ask([1, 1, 1, 1]))
        await asyncio.sleep(0.01)
        running.pipeline.stop_accepting()
        assert isinstance((await running.ask([1])).error, Draining)
        assert (await accepted).values == pytest.approx([2] * 4, abs=1e-4)


async def test_the_end_of_the_pipeline_resolves_whoever_still_waits() -> None:
    async with stack(LETCC, [[NEVER]] * 7) as running:
        waiting = asyncio.create_task(running.ask([1, 2, 3, 4]))
        await asyncio.sleep(0.01)
    assert isinstance((await waiting).error, Draining)


async def test_hundreds_of_requests_of_random_sizes_each_get_their_own_answers() -> None:
    generator = np.random.default_rng(1)
    scripts = [[after(float(delay)) for delay in generator.exponential(0.01, 400)] for _ in range(7)]
    async with stack(ReplicationParams(copies=2, output_domain="as_is"), scripts) as running:

        async def client(number: int) -> None:
            await asyncio.sleep(number / 150)
            values = [number + row / 10 for row in range(generator.integers(1, 9))]
            outcome = await running.ask(values)
            assert outcome.values == pytest.approx([2 * value for value in values], rel=1e-6)

        async with asyncio.TaskGroup() as clients:
            for number in range(300):
                clients.create_task(client(number))


SYSTEMATIC = LetccParams(
    k=4, n=6, wait_for=5, output_domain="as_is", lambda_dec=0.0, systematic=True, order="none"
)


async def test_a_systematic_code_answers_each_query_as_soon_as_its_own_replica_has() -> None:
    delays = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]
    patient = LetccParams(k=4, n=6, wait_for=6, output_domain="as_is", systematic=True)
    async with stack(patient, [[after(delay)] for delay in delays]) as running:
        outcomes = await asyncio.gather(*(running.ask([value]) for value in (1, 2, 3, 4)))
        assert [outcome.values for outcome in outcomes] == [[2], [4], [6], [8]]
        seconds = [round(outcome.seconds, 6) for outcome in outcomes]
        assert len(set(seconds)) == 4
        assert set(seconds) <= set(delays)
        for outcome in outcomes:
            (answer,) = outcome.answers
            assert (answer.provenance.obtained, answer.provenance.replicas_used) == ("direct", 1)
            assert answer.provenance.error_estimate == 0


async def test_a_systematic_code_decodes_only_what_is_late() -> None:
    for straggler in range(6):
        scripts = [[after(0.01)] if number != straggler else [NEVER] for number in range(6)]
        async with stack(SYSTEMATIC, scripts) as running:
            outcome = await running.ask([1, 2, 3, 4])
            assert outcome.seconds == pytest.approx(0.01)
            late = [a for a in outcome.answers if a.provenance.obtained == "decoded"]
            assert len(late) <= 1
            for value, answer in zip((2, 4, 6, 8), outcome.answers, strict=True):
                exact = answer.provenance.obtained == "direct"
                assert answer.output[0] == (value if exact else pytest.approx(value, abs=LOOSE))
                assert answer.provenance.replicas_used == (1 if exact else 5)


async def test_at_the_deadline_a_systematic_code_answers_what_it_has() -> None:
    scripts = [[after(0.01)], [after(0.01)], [NEVER], [NEVER], [NEVER], [NEVER]]
    hopeless = LetccParams(k=4, n=6, wait_for=5, floor=3, output_domain="as_is", systematic=True)
    async with stack(hopeless, scripts) as running:
        outcomes = await asyncio.gather(*(running.ask([value], timeout_s=0.2) for value in (1, 2, 3, 4)))
        for value, outcome in zip((2, 4, 6, 8), outcomes, strict=True):
            if outcome.error is None:
                assert outcome.values == [value]
                assert outcome.seconds == pytest.approx(0.01)
            else:
                assert isinstance(outcome.error, DeadlineExceeded)


async def test_a_hedge_storm_stays_within_the_budget() -> None:
    hedged = HedgedParams(copies=2, output_domain="as_is")
    hedging = Hedging(0.05, percentile=95.0, budget=0.05)
    quick, slow = [after(0.01)] * 30, [after(0.1)] * 200
    async with stack(hedged, [quick + slow] * 4, hedging=hedging) as running:
        for _ in range(100):
            await running.ask([1])
        late = [await running.ask([1]) for _ in range(200)]
        assert all(outcome.error is None for outcome in late)
        extra = sum(len(transport.calls) for transport in running.transports) - 300
        assert 10 < extra <= 0.05 * 300 + 10


async def test_a_hedge_that_the_budget_forbids_still_replaces_a_call_that_fails() -> None:
    hedged = HedgedParams(copies=2, output_domain="as_is")
    hedging = Hedging(0.01, percentile=None, budget=0.0)
    assert hedging.allow(10)
    fails_late = Step(ReplicaRefused("replica answered 500"), 0.05)
    async with stack(hedged, [[fails_late], [after(0.01)]], hedging=hedging) as running:
        outcome = await running.ask([1])
        assert outcome.seconds == pytest.approx(0.06)
        assert outcome.values == [2.0]
