"""The scripted transport: a script, followed to the letter, in virtual time."""

import asyncio
import math

import pytest
from transport_backends import METADATA, doubled, request_of

from serving.errors import BadReplicaAnswer, ReplicaTimeout, ReplicaUnreachable
from serving.transport.scripted import ScriptedTransport, Step

pytestmark = pytest.mark.looptime

ONE, TWO = request_of([[1, 1, 1, 1]]), request_of([[2, 2, 2, 2]])


def records(transport):
    return [(call.started, call.ended, call.outcome) for call in transport.calls]


async def test_steps_are_followed_in_order_and_the_last_repeats():
    fixed = doubled(TWO)
    transport = ScriptedTransport(
        [Step(ReplicaTimeout("too late"), delay_s=2), Step(fixed), Step(doubled, delay_s=1)], METADATA
    )
    with pytest.raises(ReplicaTimeout, match="too late"):
        await transport.infer(ONE)
    assert await transport.infer(ONE) is fixed
    for _ in range(2):
        assert (await transport.infer(ONE)).outputs[0].data[0, 0] == 2
    assert records(transport) == [
        (0, 2, "failed"),
        (2, 2, "answered"),
        (2, 3, "answered"),
        (3, 4, "answered"),
    ]


async def test_concurrent_calls_run_side_by_side():
    transport = ScriptedTransport([Step(doubled, delay_s=3), Step(doubled, delay_s=1)], METADATA)
    slow, fast = await asyncio.gather(transport.infer(ONE), transport.infer(TWO))
    assert (slow.outputs[0].data[0, 0], fast.outputs[0].data[0, 0]) == (2, 4)
    assert records(transport) == [(0, 3, "answered"), (0, 1, "answered")]
    assert [call.request for call in transport.calls] == [ONE, TWO]


async def test_cancellation_is_recorded():
    transport = ScriptedTransport([Step(doubled, delay_s=math.inf)], METADATA)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(7):
            await transport.infer(ONE)
    assert records(transport) == [(0, 7, "cancelled")]
    assert transport.pending == 0


async def test_a_pending_call_shows_as_such_and_fails_when_closed():
    transport = ScriptedTransport([Step(doubled, delay_s=math.inf)], METADATA)
    call = asyncio.create_task(transport.infer(ONE))
    await asyncio.sleep(1)
    assert (transport.pending, records(transport)) == (1, [(0, None, "pending")])
    await transport.aclose()
    with pytest.raises(ReplicaUnreachable):
        await call
    assert records(transport) == [(0, 1, "failed")]


async def test_an_error_is_a_fresh_one_each_time():
    transport = ScriptedTransport([Step(BadReplicaAnswer("NaN"))], METADATA)
    errors = await asyncio.gather(*(transport.infer(ONE) for _ in range(2)), return_exceptions=True)
    assert [str(error) for error in errors] == ["NaN", "NaN"]
    assert errors[0] is not errors[1]


async def test_readiness_is_whatever_the_test_sets():
    transport = ScriptedTransport([Step(doubled)], METADATA, ready=False)
    assert await transport.ready() is False
    transport.is_ready = True
    assert await transport.ready() is True


def test_a_script_needs_a_step():
    with pytest.raises(ValueError, match="at least one step"):
        ScriptedTransport([], METADATA)
