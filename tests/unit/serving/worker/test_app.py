"""A worker's application: one model behind a queue, in virtual time, and its routes."""

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from serving.config import LogSettings
from serving.config.faults import ConstantDelay, FaultSettings
from serving.errors import ServingError
from serving.protocol.codec import decode_infer_response, encode_infer_request
from serving.protocol.tensors import HEADER_LENGTH
from serving.types import InferRequest, ModelMetadata, NamedTensor, TensorSpec
from serving.worker.app import ModelService, create_worker_app
from serving.worker.faults import FaultInjector, InjectedError, draw
from serving.worker.settings import WorkerSettings

METADATA = ModelMetadata(
    name="doubler",
    versions=("1",),
    platform="numpy",
    inputs=(TensorSpec("input", "FP32", (-1, 2)),),
    outputs=(TensorSpec("output", "FP32", (-1, 2)),),
)


class Inline(Executor):
    """Runs the work at once, so that virtual time stands still meanwhile."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Doubler:
    def predict(self, rows):
        return 2 * rows


class Fails:
    def predict(self, rows):
        raise MemoryError("no more")


class LosesRows:
    def predict(self, rows):
        return rows[:-1]


def delayed(ms, **changes):
    return FaultSettings(enabled=True, delay=ConstantDelay(ms=ms), **changes)


def service(faults=None, concurrency=1, model=None, executor=None):
    injector = FaultInjector(faults or FaultSettings(), replica=0)
    return ModelService(model or Doubler(), METADATA, concurrency, injector, executor or Inline())


def request(value=1.0, rows=1):
    return InferRequest(inputs=(NamedTensor("input", "FP32", np.full((rows, 2), value, np.float32)),), id="i")


async def finish_time(serving, value=1.0):
    await serving.infer(request(value))
    return asyncio.get_running_loop().time()


async def finish_times(serving, calls):
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(finish_time(serving)) for _ in range(calls)]
    return [task.result() for task in running]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("concurrency", "ends"), [(1, [0.1, 0.2, 0.3, 0.4]), (3, [0.1, 0.1, 0.1, 0.2]), (0, [0.1] * 4)]
)
async def test_calls_wait_for_a_slot_delay_included(concurrency, ends):
    assert await finish_times(service(delayed(100), concurrency), calls=4) == pytest.approx(ends)


@pytest.mark.looptime
async def test_a_cancelled_call_leaves_the_queue_and_frees_its_slot():
    serving = service(delayed(100))
    async with asyncio.TaskGroup() as tasks:
        running, waiting, last = (tasks.create_task(finish_time(serving)) for _ in range(3))
        await asyncio.sleep(0.05)
        waiting.cancel()
        running.cancel()
    assert last.result() == pytest.approx(0.15)


@pytest.mark.looptime
async def test_calls_are_numbered_as_they_arrive_whoever_leaves():
    faults = next(
        candidate
        for candidate in (delayed(100, error_share=0.5, seed=seed) for seed in range(100))
        if [draw(candidate, 0, call).error for call in range(3)] == [False, True, False]
    )
    serving = service(faults)
    async with asyncio.TaskGroup() as tasks:
        first, second, third = (tasks.create_task(finish_time(serving)) for _ in range(3))
        await asyncio.sleep(0.05)
        second.cancel()
    assert (first.result(), third.result()) == pytest.approx((0.1, 0.2))


async def test_each_call_gets_its_own_answer_from_the_thread():
    with ThreadPoolExecutor(1) as executor:
        serving = service(executor=executor, concurrency=0)
        answers = await asyncio.gather(*(serving.infer(request(value)) for value in range(20)))
    assert [answer.outputs[0].data[0, 0] for answer in answers] == [2 * value for value in range(20)]


async def test_the_answer_is_labelled_as_the_metadata_says():
    answer = await service().infer(request(rows=3))
    assert (answer.model_name, answer.model_version, answer.id) == ("doubler", "1", "i")
    assert (answer.outputs[0].name, answer.outputs[0].datatype) == ("output", "FP32")


@pytest.mark.parametrize(("model", "message"), [(Fails(), "no more"), (LosesRows(), "one output per row, 3")])
async def test_a_model_that_misbehaves_is_an_error_that_says_why(model, message):
    with pytest.raises(ServingError, match=message):
        await service(model=model).infer(request(rows=3))


async def test_a_failed_call_frees_its_slot():
    serving = service(FaultSettings(enabled=True, error_share=1))
    for _ in range(3):
        with pytest.raises(InjectedError):
            await serving.infer(request())


def client(faults):
    settings = WorkerSettings(0, "replica-0", "doubler", "-", "127.0.0.1", 1, 1, faults, LogSettings())
    injector = FaultInjector(faults, replica=0)
    app = create_worker_app(ModelService(Doubler(), METADATA, 1, injector, Inline()), injector, settings)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://worker")


async def infer(worker):
    body, headers = encode_infer_request(request(5.0))
    return await worker.post("/v2/models/doubler/infer", content=body, headers=headers)


async def test_the_worker_speaks_binary_v2():
    async with client(FaultSettings()) as worker:
        assert "binary_tensor_data" in (await worker.get("/v2")).json()["extensions"]
        reply = await infer(worker)
    answer = decode_infer_response(reply.content, int(reply.headers[HEADER_LENGTH]))
    np.testing.assert_array_equal(answer.outputs[0].data, [[10.0, 10.0]])


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_fault_routes_do_not_exist_unless_enabled(method):
    async with client(FaultSettings()) as worker:
        reply = await worker.request(method, "/faults", json={})
    assert reply.status_code == 404
    assert isinstance(reply.json()["error"], str)


async def test_faults_are_switched_while_running():
    async with client(FaultSettings(enabled=True)) as worker:
        assert (await infer(worker)).status_code == 200
        switched = await worker.put("/faults", json={"error_share": 1.0})
        assert switched.json() == (await worker.get("/faults")).json()
        assert switched.json()["error_share"] == 1.0
        failed = await infer(worker)
        assert failed.status_code == 500
        assert "fault injection" in failed.json()["error"]
        await worker.put("/faults", json={"enabled": False, "error_share": 1.0})
        assert (await infer(worker)).status_code == 200


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('{"delay": {"kind": "constant", "ms": -1}}', ["faults.delay.constant.ms", "-1"]),
        ('{"dellay": {"kind": "none"}}', ["faults.dellay"]),
        ("[1]", ["object"]),
        ("{", []),
    ],
)
async def test_bad_faults_are_refused_and_change_nothing(body, named):
    async with client(FaultSettings(enabled=True, seed=4)) as worker:
        before = (await worker.get("/faults")).json()
        reply = await worker.put("/faults", content=body)
        assert reply.status_code == 400
        assert all(part in reply.json()["error"] for part in named)
        assert (await worker.get("/faults")).json() == before
