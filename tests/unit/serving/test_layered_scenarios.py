"""Exact first, hedges for the late, decoded at the objective: in virtual time."""

import asyncio

import pytest
from scenario import NEVER, REFUSES, after, stack

from coding.layered import LayeredParams
from serving.config import GroupingSettings
from serving.errors import DeadlineExceeded
from serving.hedging import Hedging

pytestmark = pytest.mark.looptime

LAYERED = LayeredParams(k=4, n=5, wait_for=5, floor=4, output_domain="as_is", lambda_dec=0.0, lambda_enc=0.0)
OBJECTIVE_S = 0.25
LOOSE = 0.6
"""How far a decoded answer to inputs 1, 2, 3, 4 may be from 2, 4, 6, 8."""


def layered(scripts, *, budget: float = 1.0, hedging: Hedging | None = None, **more):
    return stack(
        LAYERED,
        scripts,
        hedging=hedging or Hedging(0.1, percentile=None, budget=budget),
        objective_s=OBJECTIVE_S,
        **more,
    )


def how(outcome) -> list[str]:
    return sorted(answer.provenance.obtained for answer in outcome.answers)


def calls(running) -> int:
    return sum(len(transport.calls) for transport in running.transports)


async def test_without_stragglers_all_answers_are_exact_and_nothing_is_sent_twice() -> None:
    async with layered([[after(0.01)]] * 5) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert outcome.seconds == pytest.approx(0.01)
        assert outcome.values == [2, 4, 6, 8]
        assert how(outcome) == ["direct"] * 4
        assert calls(running) == 5


async def test_a_late_query_is_sent_again_to_whoever_is_free_and_its_answer_is_exact() -> None:
    # Whichever task the slow replica has, the second call of some other replica answers after 10 ms.
    for slow in range(5):
        scripts = [[NEVER if number == slow else after(0.01), after(0.02)] for number in range(5)]
        async with layered(scripts) as running:
            outcome = await running.ask([1, 2, 3, 4])
            assert outcome.values == [2, 4, 6, 8]
            if "hedged" in how(outcome):
                assert how(outcome) == ["direct"] * 3 + ["hedged"]
                assert outcome.seconds == pytest.approx(0.12)
                assert calls(running) == 6
            else:  # the slow one had the coded task
                assert outcome.seconds == pytest.approx(0.01)


async def test_what_is_late_at_the_objective_is_decoded_then_and_not_before() -> None:
    # Two groups: in the first, all answer; it uses up the first steps. In the second, one replica never answers.
    scripts = [[after(0.01), NEVER if number == 2 else after(0.01), NEVER] for number in range(5)]
    async with layered(scripts) as running:
        await running.ask([1, 2, 3, 4])
        outcomes = [await running.ask([1, 2, 3, 4])]
        late = [outcome for outcome in outcomes if "decoded" in how(outcome)]
        for outcome in late:
            assert how(outcome) == ["decoded"] + ["direct"] * 3
            assert outcome.seconds == pytest.approx(OBJECTIVE_S)
            assert outcome.values == pytest.approx([2, 4, 6, 8], abs=LOOSE)
        assert late or outcomes[0].seconds == pytest.approx(0.01)


async def test_a_slot_whose_copy_fails_too_is_decoded_at_once() -> None:
    """No replica is left that could answer exactly: there is nothing to be patient for."""
    scripts = [[REFUSES if number == 1 else after(0.01), REFUSES] for number in range(5)]
    async with layered(scripts) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert outcome.error is None
        assert outcome.seconds == pytest.approx(0.01)
        assert how(outcome) in (["decoded"] + ["direct"] * 3, ["direct"] * 4)


async def test_a_call_that_fails_is_replaced_at_once() -> None:
    for broken in range(5):
        scripts = [[REFUSES if number == broken else after(0.01), after(0.02)] for number in range(5)]
        async with layered(scripts) as running:
            outcome = await running.ask([1, 2, 3, 4])
            assert outcome.values == [2, 4, 6, 8]
            assert outcome.seconds <= 0.021
            assert "decoded" not in how(outcome)


async def test_without_budget_the_late_are_decoded_at_the_objective() -> None:
    hedging = Hedging(0.1, percentile=None, budget=0.0)
    assert hedging.allow(10)
    decoded = 0
    for slow in range(5):
        scripts = [[NEVER if number == slow else after(0.01)] for number in range(5)]
        async with layered(scripts, hedging=hedging) as running:
            outcome = await running.ask([1, 2, 3, 4])
            assert calls(running) == 5
            if "decoded" in how(outcome):
                decoded += 1
                assert outcome.seconds == pytest.approx(OBJECTIVE_S)
    assert decoded == 4


async def test_after_the_objective_the_answer_comes_as_soon_as_enough_have_arrived() -> None:
    hedging = Hedging(0.1, percentile=None, budget=0.0)
    assert hedging.allow(10)
    scripts = [[after(delay)] for delay in (0.01, 0.01, 0.01, 0.4, 5.0)]
    async with layered(scripts, hedging=hedging) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert outcome.seconds == pytest.approx(0.4)


async def test_answers_from_fewer_than_wait_for_are_marked_and_below_the_floor_there_is_none() -> None:
    hedging = Hedging(0.1, percentile=None, budget=0.0)
    assert hedging.allow(10)
    async with layered([[after(0.01)]] * 4 + [[NEVER]], hedging=hedging) as running:
        outcomes = [await running.ask([1, 2, 3, 4], timeout_s=0.5) for _ in range(3)]
        late = [outcome for outcome in outcomes if "decoded" in how(outcome)]
        assert late
        for outcome in late:
            assert outcome.seconds == pytest.approx(OBJECTIVE_S)
            assert sum(answer.provenance.degraded for answer in outcome.answers) == 1
    async with layered([[after(0.01)]] * 3 + [[NEVER]] * 2, hedging=hedging) as running:
        outcome = await running.ask([1, 2, 3, 4], timeout_s=0.5)
        assert isinstance(outcome.error, DeadlineExceeded)
        assert outcome.seconds == pytest.approx(0.48)


async def test_a_hedge_storm_stays_within_the_budget() -> None:
    """Every replica becomes ten times as slow: a copy of every late query would double the load just then."""
    hedging = Hedging(0.05, percentile=95.0, budget=0.05)
    quick, slow = [after(0.01)] * 60, [after(0.1)] * 500
    async with layered([quick + slow] * 5, hedging=hedging) as running:
        for _ in range(60):
            await running.ask([1, 2, 3, 4])
        late = [await running.ask([1, 2, 3, 4]) for _ in range(100)]
        assert all(outcome.error is None for outcome in late)
        extra = calls(running) - 5 * 160
        assert 10 < extra <= 0.05 * 800 + 10


async def test_groups_that_share_a_late_call_share_its_copy() -> None:
    scripts = [[NEVER if number == 0 else after(0.01), after(0.02)] for number in range(5)]
    async with layered(scripts, grouping=GroupingSettings(window_ms=10)) as running:
        outcome = await running.ask([1, 2, 3, 4, 5, 6, 7, 8])
        assert outcome.values == pytest.approx([2, 4, 6, 8, 10, 12, 14, 16])
        assert calls(running) <= 6


async def test_a_caller_who_leaves_cancels_copies_that_only_it_wanted() -> None:
    async with layered([[NEVER]] * 5) as running:
        asking = asyncio.create_task(running.ask([1, 2, 3, 4], timeout_s=2.0))
        await asyncio.sleep(0.15)
        sent = calls(running)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert sent > 5
        assert all(outcome == "cancelled" for each in running.outcomes() for outcome in each)
