"""The contract of `serving.transport.base.Transport`, for every transport alike."""

import asyncio

import numpy as np
import pytest
import pytest_asyncio
from transport_backends import METADATA, ScriptedBackend, ServedBackend, WorkerBackend, request_of

from serving.errors import ReplicaRefused, ReplicaUnreachable

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROW = request_of([[1, 2, 3, 4]])
PROBE_PATIENCE_S = 2.0
PATIENCE_S = 5.0
ON_THE_WAY_S = 0.1


@pytest.fixture
def scripted():
    return ScriptedBackend()


@pytest_asyncio.fixture(loop_scope="module")
async def served():
    backend = ServedBackend()
    yield backend
    await backend.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_worker():
    async with WorkerBackend.running() as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="module")
async def worker(shared_worker):
    yield shared_worker
    await shared_worker.aclose()


@pytest.fixture(params=["scripted", "served", pytest.param("worker", marks=pytest.mark.live)])
def backend(request):
    return request.getfixturevalue(request.param)


async def settle(backend, tasks_before):
    """Wait until nothing is left of what was begun; fails if something stays."""
    async with asyncio.timeout(PATIENCE_S):
        while backend.open_connections() or asyncio.all_tasks() - tasks_before:  # noqa: ASYNC110, nothing tells
            await asyncio.sleep(0.01)


async def test_answers(backend):
    transport = await backend.answering()
    answer = await transport.infer(request_of([[1, 2, 3, 4], [5, 6, 7, 8]]))
    assert answer.model_name == METADATA.name
    (output,) = answer.outputs
    assert (output.name, output.datatype) == ("output", "FP32")
    np.testing.assert_array_equal(output.data, np.array([[2, 4, 6, 8], [10, 12, 14, 16]], np.float32))
    await transport.aclose()


async def test_tells_the_metadata(backend):
    transport = await backend.answering()
    metadata = await transport.metadata()
    assert (metadata.name, metadata.inputs, metadata.outputs) == (
        METADATA.name,
        METADATA.inputs,
        METADATA.outputs,
    )
    await transport.aclose()


async def test_is_ready_while_calls_are_under_way(backend):
    transport = await backend.dawdling()
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(transport.infer(ROW)) for _ in range(20)]
        await asyncio.sleep(ON_THE_WAY_S)
        assert await transport.ready() is True
        for call in calls:
            call.cancel()
    await transport.aclose()


async def test_concurrent_calls_get_their_own_answers(backend):
    transport = await backend.answering()
    requests = [request_of(np.full((1 + number % 5, 4), number)) for number in range(40)]
    answers = await asyncio.gather(*(transport.infer(request) for request in requests))
    for request, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer.outputs[0].data, 2 * request.inputs[0].data)
    await transport.aclose()


async def test_an_error_status_is_a_refusal(backend):
    transport = await backend.failing()
    with pytest.raises(ReplicaRefused, match="500"):
        await transport.infer(ROW)
    await transport.aclose()


async def test_a_dead_replica_is_unreachable(backend):
    transport = await backend.dead()
    with pytest.raises(ReplicaUnreachable):
        await transport.infer(ROW)
    with pytest.raises(ReplicaUnreachable):
        await transport.metadata()
    assert await transport.ready() is False
    await transport.aclose()


async def test_a_hung_replica_is_not_ready_in_good_time(backend):
    tasks = asyncio.all_tasks()
    transport = await backend.hanging()
    async with asyncio.timeout(PROBE_PATIENCE_S):
        assert await transport.ready() is False
    await transport.aclose()
    await backend.aclose()
    await settle(backend, tasks)


async def test_a_call_to_a_hung_replica_can_be_cancelled(backend):
    transport = await backend.hanging()
    tasks = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(ON_THE_WAY_S):
            await transport.infer(ROW)
    await settle(backend, tasks)
    await transport.aclose()


async def test_cancelled_calls_leak_nothing(backend):
    transport = await backend.dawdling()
    await transport.metadata()
    tasks = asyncio.all_tasks()
    calls = [asyncio.create_task(transport.infer(ROW)) for _ in range(10)]
    await asyncio.sleep(ON_THE_WAY_S)
    for call in calls:
        call.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError)
        for end in await asyncio.gather(*calls, return_exceptions=True)
    )
    await settle(backend, tasks)
    await transport.aclose()


async def test_calls_cancelled_at_any_moment_leak_nothing(backend):
    transport = await backend.answering()
    tasks = asyncio.all_tasks()
    for turns in range(60):
        call = asyncio.create_task(transport.infer(ROW))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    answer = await transport.infer(ROW)
    np.testing.assert_array_equal(answer.outputs[0].data, [[2, 4, 6, 8]])
    await transport.aclose()
    await settle(backend, tasks)


async def test_cancelling_one_call_leaves_its_siblings_answered(backend):
    transport = await backend.answering()
    first, second = (asyncio.create_task(transport.infer(ROW)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).outputs[0].data.shape == (1, 4)
    await transport.aclose()


async def test_once_closed_everything_is_unreachable(backend):
    transport = await backend.answering()
    await transport.infer(ROW)
    await transport.aclose()
    await transport.aclose()
    assert backend.open_connections() == 0
    assert await transport.ready() is False
    for call in (transport.infer(ROW), transport.metadata()):
        with pytest.raises(ReplicaUnreachable):
            await call


async def test_closing_fails_the_calls_under_way(backend):
    transport = await backend.dawdling()
    call = asyncio.create_task(transport.infer(ROW))
    await asyncio.sleep(ON_THE_WAY_S)
    await transport.aclose()
    with pytest.raises(ReplicaUnreachable):
        async with asyncio.timeout(PATIENCE_S):
            await call
