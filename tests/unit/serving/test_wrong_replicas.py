"""Replicas that lie, in virtual time: their answers are left out, counted, and in the end not asked for."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from scenario import NEVER, Stack, after, stack
from structlog.testing import capture_logs

from coding.letcc import LetccParams
from serving.config import GroupingSettings, LocalReplicas
from serving.transport.scripted import Step
from serving.types import InferRequest, InferResponse, NamedTensor

pytestmark = pytest.mark.looptime

LETCC = LetccParams(k=4, n=12, wait_for=10, max_wrong=2, output_domain="as_is", lambda_dec=0.0)
REPLICAS = LocalReplicas(count=12, wrong_ejection_s=30.0)
ROWS = [1, 2, 3, 4]
LOOSE = 0.6
"""How far a decoded answer to inputs 1, 2, 3, 4 may be from 2, 4, 6, 8."""


def lie(request: InferRequest) -> InferResponse:
    """Thirty times the right answer, with the wrong sign."""
    return InferResponse("double", (NamedTensor("output", "FP32", request.inputs[0].data * np.float32(-60)),))


LIES = Step(lie, 0.01)


def wrong(running: Stack, replica: int) -> float:
    return running.metric(f'unstraggle_replica_wrong_arrivals_total{{replica="replica-{replica}"}}')


async def ask_until_ejected(running: Stack, replica: int, *, at_most: int) -> int:
    """How many groups it took."""
    for group in range(1, at_most + 1):
        await running.ask(ROWS)
        if running.replicas.states[f"replica-{replica}"] == "ejected":
            return group
    raise AssertionError(f"not ejected after {at_most} groups")


async def test_a_lie_has_no_part_in_the_answer_which_says_so() -> None:
    scripts = [[after(0.01)]] * 11 + [[LIES]]
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask(ROWS)
        assert outcome.values == pytest.approx([2, 4, 6, 8], abs=LOOSE)
        provenance = outcome.answers[0].provenance
        assert provenance.wrong == ("replica-11",)
        assert "replica-11" not in provenance.missing
        assert provenance.replicas_used == 9
        assert wrong(running, 11) == 1
        assert running.metric("unstraggle_replica_wrong_arrivals_total") == 1


async def test_replicas_that_are_honest_are_left_in_peace() -> None:
    async with stack(LETCC, [[after(0.01)]] * 12) as running:
        for _ in range(40):
            outcome = await running.ask(ROWS)
            assert outcome.answers[0].provenance.wrong == ()
        assert running.metric("unstraggle_replica_wrong_arrivals_total") == 0


async def test_without_max_wrong_nobody_is_looked_at() -> None:
    scripts = [[after(0.01)]] * 11 + [[LIES]]
    async with stack(replace(LETCC, max_wrong=0), scripts) as running:
        outcome = await running.ask(ROWS)
        assert outcome.values != pytest.approx([2, 4, 6, 8], abs=LOOSE)
        assert wrong(running, 11) == 0


async def test_two_liars_are_ejected_and_probes_do_not_bring_them_back() -> None:
    scripts = [[after(0.01)]] * 10 + [[LIES]] * 2
    async with stack(LETCC, scripts, replicas=REPLICAS) as running:
        await ask_until_ejected(running, 10, at_most=6)
        await ask_until_ejected(running, 11, at_most=6)
        asked = len(running.transports[11].calls)
        for _ in range(20):
            await asyncio.sleep(1.0)
            outcome = await running.ask(ROWS)
            assert outcome.values == pytest.approx([2, 4, 6, 8], abs=LOOSE)
            assert outcome.answers[0].provenance.wrong == ()
        assert running.replicas.states["replica-11"] == "ejected"
        assert len(running.transports[11].calls) == asked
        assert running.metric('unstraggle_replica_state{replica="replica-11",state="ejected"}') == 1


async def test_after_its_term_it_is_tried_again_and_a_relapse_is_dearer() -> None:
    scripts = [[after(0.01)]] * 11 + [[LIES]]
    async with stack(LETCC, scripts, replicas=REPLICAS) as running:
        assert await ask_until_ejected(running, 11, at_most=5) >= 3
        await asyncio.sleep(31)
        assert running.replicas.states["replica-11"] == "healthy"
        assert await ask_until_ejected(running, 11, at_most=3) <= 2
        await asyncio.sleep(31)
        assert running.replicas.states["replica-11"] == "ejected"
        await asyncio.sleep(30)
        assert running.replicas.states["replica-11"] == "healthy"


async def test_one_that_is_mended_comes_back_for_good() -> None:
    scripts = [[after(0.01)]] * 11 + [[LIES] * 5 + [after(0.01)]]
    async with stack(LETCC, scripts, replicas=REPLICAS) as running:
        await ask_until_ejected(running, 11, at_most=5)
        running.transports[11].calls.extend(
            running.transports[11].calls[:1] * 5
        )  # past the lies in its script
        await asyncio.sleep(31)
        for _ in range(40):
            outcome = await running.ask(ROWS)
            assert outcome.answers[0].provenance.wrong == ()
        assert running.replicas.states["replica-11"] == "healthy"


async def test_lies_that_come_too_late_are_not_looked_at() -> None:
    scripts = [[after(0.01)]] * 10 + [[Step(lie, 0.05)]] * 2
    async with stack(LETCC, scripts, grace_s=0.2) as running:
        for _ in range(6):
            await running.ask(ROWS)
            await asyncio.sleep(0.1)
        assert running.outcomes()[11] == ["answered"] * 6
        assert wrong(running, 11) == 0
        assert running.replicas.states["replica-11"] == "healthy"


async def test_no_more_are_ejected_than_allowed() -> None:
    scripts = [[after(0.01)]] * 11 + [[LIES]]
    careful = LocalReplicas(count=12, max_ejected_share=0.05)
    async with stack(LETCC, scripts, replicas=careful) as running:
        for _ in range(10):
            outcome = await running.ask(ROWS)
            assert outcome.values == pytest.approx([2, 4, 6, 8], abs=LOOSE)
        assert running.replicas.states["replica-11"] == "healthy"
        assert wrong(running, 11) >= 5


async def test_a_group_that_is_answered_in_parts_is_looked_at_once() -> None:
    scripts = [[after(0.01)]] * 8 + [[LIES], [after(0.3)], [NEVER], [NEVER]]
    async with stack(LETCC, scripts) as running:
        hasty, patient = await asyncio.gather(
            running.ask([1, 2], timeout_s=0.1), running.ask([3, 4], timeout_s=1.0)
        )
        assert hasty.answers[0].provenance.degraded
        assert not patient.answers[0].provenance.degraded
        assert hasty.answers[0].provenance.wrong == patient.answers[0].provenance.wrong == ("replica-8",)
        assert wrong(running, 8) == 1


async def test_groups_of_one_batch_lose_each_their_own() -> None:
    scripts = [[after(0.01)]] * 11 + [[Step(lie, 0.001)]]
    async with stack(LETCC, scripts) as running:
        outcome = await running.ask(range(1, 13))
        assert outcome.values == pytest.approx([2 * value for value in range(1, 13)], abs=1.5)
        assert wrong(running, 11) == 3
        assert running.replicas.states["replica-11"] == "ejected"


async def test_a_lone_row_waits_for_a_majority() -> None:
    # Replicas 0 and 1 answer first, and lie.
    scripts = [[Step(lie, 0.001)], [Step(lie, 0.002)]] + [[after(0.01 * number)] for number in range(1, 11)]
    async with stack(LETCC, scripts, grouping=GroupingSettings(window_ms=0)) as running:
        outcome = await running.ask([21])
        assert outcome.values == [42.0]
        assert outcome.answers[0].provenance.wrong == ("replica-0", "replica-1")
        assert outcome.answers[0].provenance.replicas_used == 3


async def test_the_log_tells_of_a_replica_once_in_a_while_with_a_count() -> None:
    scripts = [[after(0.01)]] * 11 + [[LIES]]
    careful = LocalReplicas(count=12, max_ejected_share=0.0)
    with capture_logs() as logs:
        async with stack(LETCC, scripts, replicas=careful) as running:
            for _ in range(10):
                await running.ask(ROWS)
            await asyncio.sleep(11)
            await running.ask(ROWS)
            await asyncio.sleep(11)
            await running.ask(ROWS)
            counted = wrong(running, 11)
    told = [entry for entry in logs if entry["event"] == "wrong_arrivals"]
    assert {entry["replica"] for entry in told} == {"replica-11"}
    assert 1 <= len(told) <= 3
    assert told[0]["count"] == 1
    assert counted >= 8
