"""The HTTP transport against servers that are unlike ours, old-fashioned, or broken."""

import asyncio
import contextlib
import json
import re
from contextlib import aclosing

import numpy as np
import pytest
from transport_backends import (
    METADATA,
    MODEL,
    WIDTH,
    Doubler,
    connections_to,
    doubled,
    mute_server,
    request_of,
    serving,
)

from serving.errors import (
    BadReplicaAnswer,
    ReplicaRefused,
    ReplicaTimeout,
    ReplicaUnreachable,
    TransportError,
)
from serving.protocol.codec import encode_infer_response
from serving.protocol.metadata import encode_model_metadata
from serving.transport import http_v2
from serving.transport.http_v2 import HttpV2Transport
from serving.types import InferRequest

ROW = request_of([[1, 2, 3, 4]])


def transport_to(port, model=MODEL, **options):
    return HttpV2Transport(f"http://127.0.0.1:{port}", model, **options)


class Spy(Doubler):
    """Remembers whether the last request asked for a binary answer."""

    binary = None

    async def infer(self, request):
        self.binary = request.binary_output
        return await super().infer(request)


@pytest.mark.parametrize(("extensions", "binary"), [(("binary_tensor_data",), True), ((), False)])
async def test_tensors_go_in_the_form_that_the_server_knows(extensions, binary):
    spy = Spy()
    async with serving(spy, extensions) as port, aclosing(transport_to(port)) as transport:
        answer = await transport.infer(ROW)
    assert spy.binary is binary
    np.testing.assert_array_equal(answer.outputs[0].data, [[2, 4, 6, 8]])
    assert answer.outputs[0].data.dtype == np.float32


async def test_what_json_cannot_carry_is_a_transport_error():
    async with serving(Doubler(), extensions=()) as port, aclosing(transport_to(port)) as transport:
        with pytest.raises(TransportError, match="JSON"):
            await transport.infer(request_of([[1, 2, 3, np.inf]]))


async def test_calls_in_a_row_share_a_connection():
    async with serving(Doubler()) as port, aclosing(transport_to(port)) as transport:
        for _ in range(5):
            await transport.infer(ROW)
            assert connections_to(port) == 1
        await transport.ready()
        assert connections_to(port) == 1


async def test_an_idle_connection_is_given_up_in_time():
    async with serving(Doubler()) as port, aclosing(transport_to(port, keep_alive_s=0.05)) as transport:
        await transport.infer(ROW)
        async with asyncio.timeout(5):
            while connections_to(port):  # noqa: ASYNC110, nothing tells
                await asyncio.sleep(0.01)
        assert (await transport.infer(ROW)).outputs


async def test_a_cancelled_call_is_noticed_by_the_server():
    service = Doubler()
    service.delay_s = 30
    async with serving(service) as port, aclosing(transport_to(port)) as transport:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await transport.infer(ROW)
        async with asyncio.timeout(5):
            while not service.cancelled:  # noqa: ASYNC110, nothing tells
                await asyncio.sleep(0.01)


async def test_large_batches_pass():
    rows = np.random.default_rng(0).random((1 << 17, WIDTH), np.float32)
    async with serving(Doubler()) as port, aclosing(transport_to(port)) as transport:
        answer = await transport.infer(request_of(rows))
    np.testing.assert_array_equal(answer.outputs[0].data, 2 * rows)


async def test_proxies_of_the_environment_are_ignored(monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(Doubler()) as port, aclosing(transport_to(port)) as transport:
        assert (await transport.infer(ROW)).outputs


async def test_an_unknown_model_is_refused_with_the_servers_words():
    async with serving(Doubler()) as port, aclosing(transport_to(port, "another")) as transport:
        with pytest.raises(ReplicaRefused, match=r'404: unknown model "another"'):
            await transport.metadata()
        assert await transport.ready() is False


async def test_metadata_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(http_v2, "DESCRIBE_TIMEOUT_S", 0.05)
    with mute_server() as port:
        async with aclosing(transport_to(port)) as transport:
            with pytest.raises(ReplicaTimeout):
                await transport.metadata()


def canned_reply(body, status="200 OK", headers=""):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


SERVER = canned_reply(json.dumps({"name": "s", "extensions": ["binary_tensor_data"]}).encode())
DESCRIPTION = canned_reply(encode_model_metadata(METADATA))


@contextlib.asynccontextmanager
async def canned(infer=b"", server=SERVER, description=DESCRIPTION):
    """A server with a set reply per path, which hangs up after `infer`; gives its port."""

    async def serve(reader, writer):
        path = b""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not path.endswith(b"/infer"):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ")[1]
                length = re.search(rb"Content-Length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(infer if path.endswith(b"/infer") else server if path == b"/v2" else description)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await listening.wait_closed()


def good_body(rows=1, width=WIDTH):
    request = InferRequest(inputs=request_of(np.zeros((rows, width))).inputs, binary_output=True)
    body, headers = encode_infer_response(doubled(request), request)
    return body, "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def reply_with(rows=1, width=WIDTH, cut=0):
    body, headers = good_body(rows, width)
    return canned_reply(body[: len(body) - cut], headers=headers)


BODY, HEADERS = good_body()
NO_ANSWERS = {
    "rows": (reply_with(rows=2), BadReplicaAnswer, "1 rows"),
    "width": (reply_with(width=5), BadReplicaAnswer, "shape"),
    "short tensor": (reply_with(cut=4), BadReplicaAnswer, "bytes"),
    "not json": (canned_reply(b"hello"), BadReplicaAnswer, "malformed"),
    "empty": (canned_reply(b""), BadReplicaAnswer, "malformed"),
    "no outputs": (canned_reply(b'{"model_name": "m"}'), BadReplicaAnswer, "lacks output"),
    "bad length header": (
        canned_reply(BODY, headers="Inference-Header-Content-Length: x\r\n"),
        BadReplicaAnswer,
        "integer",
    ),
    "not http": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", BadReplicaAnswer, "HTTP"),
    "refusal": (canned_reply(b'{"error": "queue full"}', "503 No"), ReplicaRefused, "503: queue full"),
    "refusal in prose": (canned_reply(b"<html>no", "502 No"), ReplicaRefused, "502: <html>no"),
    "redirect": (
        canned_reply(b"", "307 Go", "Location: http://127.0.0.1:9/\r\n"),
        ReplicaRefused,
        "307",
    ),
    "cut off": (
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}\r\n{HEADERS}\r\n".encode() + BODY[:-4],
        ReplicaUnreachable,
        "reached",
    ),
    "hangs up": (b"", ReplicaUnreachable, "reached"),
}


@pytest.mark.parametrize(("reply", "error", "message"), NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_no_answer_is_an_error_of_ours(reply, error, message):
    async with canned(reply) as port:
        async with aclosing(transport_to(port)) as transport:
            with pytest.raises(error, match=message) as caught:
                await transport.infer(ROW)
            assert caught.value.__cause__ is not None or error is ReplicaRefused
        assert connections_to(port) == 0


async def test_a_canned_answer_is_believed():
    async with canned(reply_with()) as port, aclosing(transport_to(port)) as transport:
        assert (await transport.infer(ROW)).outputs[0].data.shape == (1, WIDTH)


@pytest.mark.parametrize(
    "broken",
    [
        {"description": canned_reply(b"[]")},
        {"description": canned_reply(b'{"inputs": 3}')},
        {"server": canned_reply(b"{")},
        {"server": canned_reply(b'{"extensions": "binary_tensor_data"}')},
    ],
)
async def test_broken_metadata_is_a_bad_answer(broken):
    async with canned(reply_with(), **broken) as port, aclosing(transport_to(port)) as transport:
        for call in (transport.metadata(), transport.infer(ROW)):
            with pytest.raises(BadReplicaAnswer):
                await call


async def test_a_server_without_server_metadata_gets_json():
    async with (
        canned(
            canned_reply(b'{"outputs":[{"name":"output","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'),
            server=canned_reply(b"{}", "404 Not Found"),
        ) as port,
        aclosing(transport_to(port)) as transport,
    ):
        answer = await transport.infer(ROW)
    np.testing.assert_array_equal(answer.outputs[0].data, [[1, 2, 3, 4]])
