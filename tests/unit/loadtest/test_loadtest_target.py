import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from loadtest.errors import TargetError
from loadtest.target import connect
from loadtest.workload import prepare_requests
from models.datasets import EvaluationSlice
from serving.protocol.codec import decode_infer_request, encode_infer_response
from serving.protocol.tensors import HEADER_LENGTH
from serving.types import InferResponse, NamedTensor

LABELS = np.array([3, 1, 2, 2])
DIGITS = EvaluationSlice("made up", np.zeros((4, 1, 2, 2), dtype=np.float32), LABELS)


@pytest.fixture
def request_of_four():
    (request,) = prepare_requests("image", DIGITS, [np.arange(4)])
    return request


@asynccontextmanager
async def server(infer, metadata=None):
    """A V2 server around one infer handler."""

    async def describe(_):
        return metadata or web.json_response({"error": "unknown model"}, status=404)

    app = web.Application()
    app.add_routes([web.post("/v2/models/digits/infer", infer), web.get("/v2/models/digits", describe)])
    async with (
        TestServer(app) as running,
        connect(str(running.make_url("")), "digits", timeout_s=5.0) as target,
    ):
        yield target


def answering(scores, **parameters):
    async def infer(request):
        parsed = decode_infer_request(await request.read(), int(request.headers[HEADER_LENGTH]))
        tensor = NamedTensor("scores", "FP32", np.ascontiguousarray(scores, dtype=np.float32))
        body, headers = encode_infer_response(
            InferResponse("digits", (tensor,), parameters=parameters), parsed
        )
        return web.Response(body=body, headers=headers)

    return infer


async def test_an_answer_is_judged_by_its_labels(request_of_four):
    scores = np.eye(5)[[3, 1, 4, 2]]
    provenance = {"obtained": "decoded", "replicas_used": 10, "degraded": True, "error_estimate": 0.5}
    async with server(answering(scores, replicas_missing="r3,r7", **provenance)) as target:
        outcome = await target.send(request_of_four)
    assert outcome.error is None
    assert outcome.correct == 3
    assert (outcome.obtained, outcome.replicas_used, outcome.degraded) == ("decoded", 10, True)
    assert (outcome.replicas_missing, outcome.error_estimate) == ("r3,r7", 0.5)


async def test_a_server_that_does_not_say_how_it_answered(request_of_four):
    async with server(answering(np.eye(5)[LABELS])) as target:
        outcome = await target.send(request_of_four)
    assert (outcome.correct, outcome.obtained, outcome.replicas_used, outcome.degraded) == (
        4,
        None,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("scores", "complaint"),
    [
        (np.zeros((3, 5)), "[4, classes]"),
        (np.zeros((4, 5, 1)), "[4, classes]"),
        (np.where(np.eye(5)[:4] > 0, np.nan, 0.0), "not finite"),
    ],
)
async def test_an_unusable_answer_is_an_error(request_of_four, scores, complaint):
    async with server(answering(scores)) as target:
        outcome = await target.send(request_of_four)
    assert outcome.status == 200
    assert complaint in outcome.error
    assert outcome.correct == 0


async def test_bytes_that_are_no_reply_are_an_error(request_of_four):
    async def infer(_):
        return web.Response(body=b"hello", headers={HEADER_LENGTH: "400"})

    async with server(infer) as target:
        outcome = await target.send(request_of_four)
    assert outcome.error.startswith("unusable answer: ")


async def test_an_error_status_is_an_error_with_the_servers_message(request_of_four):
    async def infer(_):
        return web.json_response({"error": "deadline of 1000 ms passed"}, status=504)

    async with server(infer) as target:
        outcome = await target.send(request_of_four)
    assert outcome.status == 504
    assert outcome.error == "status 504: deadline of 1000 ms passed"


async def test_a_connection_that_is_closed_is_an_error(request_of_four):
    async def infer(request):
        request.transport.close()
        return web.Response()

    async with server(infer) as target:
        outcome = await target.send(request_of_four)
    assert outcome.status is None
    assert "ServerDisconnectedError" in outcome.error


async def test_no_request_waits_for_a_connection(request_of_four):
    everyone_is_here = asyncio.Barrier(120)

    async def infer(_):
        await everyone_is_here.wait()
        return web.json_response({"error": "all of you at once"}, status=503)

    async with server(infer) as target:
        outcomes = await asyncio.gather(*(target.send(request_of_four) for _ in range(120)))
    assert {outcome.status for outcome in outcomes} == {503}


def described(*inputs):
    return web.json_response({"name": "digits", "platform": "", "inputs": list(inputs), "outputs": []})


IMAGE = {"name": "image", "datatype": "FP32", "shape": [-1, 1, 2, 2]}


async def test_the_input_is_the_one_that_the_metadata_describe():
    async with server(answering(np.eye(4)), described(IMAGE)) as target:
        spec = await target.input_spec()
    assert (spec.name, spec.datatype, spec.shape) == ("image", "FP32", (-1, 1, 2, 2))


@pytest.mark.parametrize("inputs", [(), (IMAGE, {**IMAGE, "name": "mask"})])
async def test_a_model_must_have_one_input(inputs):
    async with server(answering(np.eye(4)), described(*inputs)) as target:
        with pytest.raises(TargetError, match="exactly one input"):
            await target.input_spec()


async def test_an_unknown_model_is_an_error_that_says_so():
    async with server(answering(np.eye(4))) as target:
        with pytest.raises(TargetError, match="status 404: unknown model"):
            await target.input_spec()


async def test_a_server_that_is_not_there_is_an_error_that_says_so(unused_tcp_port):
    async with connect(f"http://127.0.0.1:{unused_tcp_port}", "digits", timeout_s=1.0) as target:
        with pytest.raises(TargetError, match="does not answer"):
            await target.input_spec()
