"""A configured answer for rows that nobody could answer."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from scenario import METADATA, NEVER, REFUSES, WIDTH, after, spoilt, stack

from coding.copies import NoneParams
from coding.letcc import LetccParams
from serving.config import GroupingSettings, LocalReplicas
from serving.config.load import load
from serving.config.schema import Settings
from serving.errors import AnswerNotFinite, ConfigError
from serving.service import default_output
from serving.transport.scripted import Step

NONE = NoneParams(output_domain="as_is")
LETCC = LetccParams(k=4, n=6, wait_for=5, floor=3, output_domain="as_is")


def how(outcome) -> list[str]:
    return [answer.provenance.obtained for answer in outcome.answers]


@pytest.mark.looptime
async def test_rows_that_are_late_get_it_and_their_siblings_get_their_own() -> None:
    async with stack(NONE, [[after(0.01)], [NEVER]], default=7.0) as running:
        outcome = await running.ask([1, 2], timeout_s=0.5)
        assert sorted(zip(outcome.values, how(outcome), strict=True)) in (
            [(2.0, "direct"), (7.0, "default")],
            [(4.0, "direct"), (7.0, "default")],
        )
        assert outcome.seconds == pytest.approx(0.48)
        late = next(answer for answer in outcome.answers if answer.provenance.obtained == "default")
        assert (late.provenance.degraded, late.provenance.replicas_used) == (True, 0)
        assert running.metric('unstraggle_rows_total{degraded="true",obtained="default"}') == 1


@pytest.mark.looptime
async def test_a_group_whose_replicas_failed_gets_it_at_once() -> None:
    async with stack(LETCC, [[after(0.01)]] * 2 + [[REFUSES]] * 4, default=7.0) as running:
        outcome = await running.ask([1, 2, 3, 4])
        assert outcome.values == [7.0] * 4
        assert outcome.seconds < 0.1


@pytest.mark.looptime
async def test_rows_that_never_got_into_a_group_get_it_at_the_deadline() -> None:
    busy = LocalReplicas(count=1, max_in_flight=1)
    async with stack(NONE, [[NEVER]], replicas=busy, default=7.0) as running:
        first = asyncio.create_task(running.ask([1], timeout_s=2.0))
        await asyncio.sleep(0.05)
        outcome = await running.ask([2, 3], timeout_s=0.5)
        assert (outcome.values, how(outcome)) == ([7.0, 7.0], ["default", "default"])
        assert outcome.seconds == pytest.approx(0.5)
        assert (await first).values == [7.0]


@pytest.mark.looptime
async def test_a_decoded_answer_from_the_floor_is_better_than_it() -> None:
    async with stack(LETCC, [[after(0.01)]] * 3 + [[NEVER]] * 3, default=7.0) as running:
        outcome = await running.ask([1, 2, 3, 4], timeout_s=0.5)
        assert how(outcome) == ["decoded"] * 4


@pytest.mark.looptime
async def test_a_row_that_the_model_cannot_answer_still_gets_its_error() -> None:
    async with stack(
        NONE, [[Step(spoilt, 0.01)]] * 2, grouping=GroupingSettings(window_ms=0), default=7.0
    ) as running:
        outcome = await running.ask([1])
        assert outcome.error is None or isinstance(outcome.error, AnswerNotFinite)
        assert outcome.error is not None


def test_it_must_fit_the_output() -> None:
    assert default_output(METADATA, Settings()) is None
    fits = default_output(METADATA, Settings(default_answer=(0.1, 0.2, 0.7)))
    assert fits is not None
    assert fits.shape == (WIDTH,)
    assert fits.dtype == np.float32
    with pytest.raises(ConfigError, match=r"one value for each .* shape \[3\] of model 'double'; got 2"):
        default_output(METADATA, Settings(default_answer=(0.1, 0.2)))
    with pytest.raises(
        ConfigError, match=r"default_answer must be finite as FP32; got \[1e\+39, 0\.0, 0\.0\]"
    ):
        default_output(METADATA, Settings(default_answer=(1e39, 0.0, 0.0)))
    with pytest.raises(ConfigError, match=r"default_answer.*finite, got nan"):
        load(None, {}, ["default_answer=[.nan]"])
