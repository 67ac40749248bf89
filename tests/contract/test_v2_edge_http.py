"""Bodies, disconnects and errors at the edge, called without a socket."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from edge_service import PATH, Doubler, build_app, client_of
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from structlog.testing import capture_logs

from serving.errors import BodyTooLarge
from serving.http_edge import (
    ErrorLayer,
    decompress,
    error_handlers,
    handle_validation_error,
    while_connected,
)

INFER = f"{PATH}/infer"
LIMIT = 100_000
BODY = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}'


@pytest.fixture
def service() -> Doubler:
    return Doubler()


@pytest.fixture
async def client(service: Doubler) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(service, max_body_bytes=LIMIT)) as client:
        yield client


def scope(path: str = INFER, **headers: str) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path.replace("%20", " "),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "query_string": b"",
    }


class Channel:
    """An ASGI connection played from a list of messages; once they are read it waits until the client leaves."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._incoming = list(messages)
        self.left = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.received = 0

    async def receive(self) -> dict[str, Any]:
        self.received += 1
        if self._incoming:
            return self._incoming.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def chunk(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def chunks_of(count: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(size)


async def test_an_announced_body_over_the_limit_is_refused_unread(service: Doubler) -> None:
    channel = Channel(chunk(bytes(10)))
    await build_app(service, max_body_bytes=LIMIT)(
        scope(content_length="100001"), channel.receive, channel.send
    )
    assert channel.sent[0]["status"] == 413
    message = b"the body has 100001 bytes, over the limit of 100000 bytes (server.max_body_bytes)"
    assert message in channel.sent[1]["body"]
    assert channel.received == 0


async def test_a_body_at_the_limit_is_accepted(client: httpx.AsyncClient) -> None:
    assert (await client.post(INFER, content=BODY.ljust(LIMIT))).status_code == 200
    assert (await client.post(INFER, content=BODY.ljust(LIMIT + 1))).status_code == 413


async def test_a_streamed_body_over_the_limit_is_refused_when_it_passes_it(client: httpx.AsyncClient) -> None:
    reply = await client.post(INFER, content=chunks_of(1000, 30_000))
    assert reply.status_code == 413
    message = "the body is over the limit of 100000 bytes (server.max_body_bytes): 120000 bytes so far"
    assert reply.json() == {"error": message}


async def test_a_body_in_many_chunks_is_joined(service: Doubler) -> None:
    pieces = [chunk(BODY[start : start + 7], more=True) for start in range(0, len(BODY), 7)]
    channel = Channel(*pieces, chunk(b""))
    await build_app(service)(scope(), channel.receive, channel.send)
    assert channel.sent[0]["status"] == 200


@pytest.mark.parametrize("value", ["-1", "ten", "1, 1"])
async def test_a_bad_content_length_is_refused(service: Doubler, value: str) -> None:
    channel = Channel(chunk(BODY))
    await build_app(service)(scope(content_length=value), channel.receive, channel.send)
    assert channel.sent[0]["status"] == 400
    assert b"Content-Length must be a non-negative integer" in channel.sent[1]["body"]


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("gzip", gzip.compress(BODY)),
        ("x-gzip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("GZIP", gzip.compress(BODY)),
        ("identity", BODY),
    ],
)
async def test_compressed_bodies_are_accepted(
    client: httpx.AsyncClient, encoding: str, content: bytes
) -> None:
    reply = await client.post(INFER, content=content, headers={"Content-Encoding": encoding})
    assert reply.status_code == 200


async def test_the_header_length_counts_decompressed_bytes(client: httpx.AsyncClient) -> None:
    tensor = b'{"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}'
    text = b'{"id": "' + b"7" * 300 + b'", "inputs": [' + tensor + b"]}"
    headers = {"Content-Encoding": "gzip", "Inference-Header-Content-Length": str(len(text))}
    body = gzip.compress(text + bytes(12))
    assert len(body) < len(text)
    assert (await client.post(INFER, content=body, headers=headers)).status_code == 200


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip"])
async def test_other_encodings_are_refused_with_those_accepted(
    client: httpx.AsyncClient, encoding: str
) -> None:
    reply = await client.post(INFER, content=BODY, headers={"Content-Encoding": encoding})
    assert reply.status_code == 415
    assert reply.headers["accept-encoding"] == "gzip, deflate, identity"
    assert f'"{encoding}" is not accepted, only gzip, deflate, identity' in reply.json()["error"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain", "the body is not valid gzip"),
        (gzip.compress(BODY)[:-5], "it is cut short"),
        (b"", "it is cut short"),
        (gzip.compress(BODY) + b"more", "the body has 4 bytes after its gzip data"),
    ],
)
async def test_a_body_that_is_not_in_its_encoding_is_refused(
    client: httpx.AsyncClient, content: bytes, message: str
) -> None:
    reply = await client.post(INFER, content=content, headers={"Content-Encoding": "gzip"})
    assert reply.status_code == 400
    assert message in reply.json()["error"]


async def test_the_limit_holds_after_decompression(client: httpx.AsyncClient) -> None:
    body = gzip.compress(BODY.ljust(LIMIT + 1))
    reply = await client.post(INFER, content=body, headers={"Content-Encoding": "gzip"})
    assert reply.status_code == 413
    assert "the decompressed body is over the limit of 100000 bytes" in reply.json()["error"]


def test_a_bomb_is_never_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    inflated = 0
    real = zlib.decompressobj

    class Counting:
        def __init__(self, bits: int) -> None:
            self._engine = real(bits)

        def decompress(self, data: bytes, limit: int) -> bytes:
            nonlocal inflated
            plain = self._engine.decompress(data, limit)
            inflated += len(plain)
            return plain

    bomb = gzip.compress(bytes(20_000_000))
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    with pytest.raises(BodyTooLarge):
        decompress(bomb, "gzip", 1000)
    assert inflated == 1001


async def test_a_client_that_leaves_while_sending_reaches_nobody(service: Doubler) -> None:
    channel = Channel(chunk(BODY[:10], more=True), {"type": "http.disconnect"})
    await build_app(service)(scope(), channel.receive, channel.send)
    assert not service.requests
    assert channel.sent[0]["status"] == 499


async def test_a_client_that_leaves_cancels_its_inference_and_leaks_no_task(service: Doubler) -> None:
    service.hangs = True
    channel = Channel(chunk(BODY))
    before = asyncio.all_tasks()
    serving = asyncio.ensure_future(build_app(service)(scope(), channel.receive, channel.send))
    await asyncio.wait_for(service.started.wait(), 5)
    channel.left.set()
    await asyncio.wait_for(serving, 5)
    assert service.cancelled.is_set()
    assert asyncio.all_tasks() == before


async def test_a_cancelled_server_task_cancels_the_inference(service: Doubler) -> None:
    service.hangs = True
    channel = Channel(chunk(BODY))
    serving = asyncio.ensure_future(build_app(service)(scope(), channel.receive, channel.send))
    await asyncio.wait_for(service.started.wait(), 5)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert service.cancelled.is_set()


async def test_an_answer_stops_the_watch() -> None:
    channel = Channel()
    before = asyncio.all_tasks()

    async def answer() -> int:
        await asyncio.sleep(0)
        return 5

    assert await while_connected(channel.receive, answer()) == 5
    assert asyncio.all_tasks() == before


async def test_a_failure_keeps_its_type_and_cause() -> None:
    async def answer() -> None:
        raise ValueError("it") from KeyError("why")

    with pytest.raises(ValueError, match="it") as caught:
        await while_connected(Channel().receive, answer())
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_client_gone_already_is_noticed() -> None:
    channel = Channel()
    channel.left.set()
    with pytest.raises(ClientDisconnect):
        await while_connected(channel.receive, asyncio.Event().wait())


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/", 404, "Not Found: no route /"),
        ("POST", "/v2/nothing", 404, "Not Found: no route /v2/nothing"),
        (
            "GET",
            "/v2/models/my%20model/infer/more",
            404,
            "Not Found: no route /v2/models/my model/infer/more",
        ),
        ("GET", INFER, 405, "Method Not Allowed: /v2/models/my model/infer takes POST, got GET"),
        ("POST", PATH, 405, "Method Not Allowed: /v2/models/my model takes"),
        ("GET", "/v1/models/my%20model:predict", 405, "takes POST, got GET"),
        ("DELETE", "/v2/health/live", 405, "Method Not Allowed: /v2/health/live takes"),
    ],
)
async def test_routing_errors_have_the_v2_shape(
    client: httpx.AsyncClient, method: str, path: str, status: int, message: str
) -> None:
    reply = await client.request(method, path)
    assert reply.status_code == status
    assert reply.json().keys() == {"error"}
    assert message in reply.json()["error"]
    assert ("allow" in reply.headers) == (status == 405)


async def test_an_unexpected_error_is_logged_and_not_leaked(
    client: httpx.AsyncClient, service: Doubler
) -> None:
    service.failure = RuntimeError("secret detail")
    with capture_logs() as logs:
        reply = await client.post(INFER, content=BODY)
    assert reply.status_code == 500
    (entry,) = logs
    assert reply.json() == {"error": f"internal error (reference {entry['reference']})"}
    assert entry["exc_info"] is service.failure
    assert (entry["log_level"], entry["method"]) == ("error", "POST")


async def test_an_error_after_the_reply_began_goes_on_to_the_server() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("late")

    channel = Channel()
    with pytest.raises(RuntimeError, match="late"):
        await ErrorLayer(app)(scope(), channel.receive, channel.send)
    assert len(channel.sent) == 1


async def test_other_protocols_pass_through() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    channel = Channel()
    await ErrorLayer(app)({"type": "lifespan"}, channel.receive, channel.send)
    assert seen == ["lifespan"]


class _Settings(BaseModel):
    rate: float


async def test_fastapi_applications_answer_in_the_same_shape(service: Doubler) -> None:
    app = FastAPI(
        routes=build_app(service).routes,
        exception_handlers={**error_handlers(), RequestValidationError: handle_validation_error},
    )
    app.add_middleware(ErrorLayer)

    @app.post("/admin")
    async def admin(settings: _Settings) -> None:
        raise LookupError(settings.rate)

    async with client_of(app) as client:
        assert (await client.post(INFER, content=BODY)).status_code == 200
        assert (await client.post(INFER, content=b"")).status_code == 400
        assert (await client.get("/nowhere")).json() == {"error": "Not Found: no route /nowhere"}
        reply = await client.post("/admin", json={"rate": "much"})
        assert reply.status_code == 422
        assert reply.json()["error"].startswith("body.rate: ")
        with capture_logs():
            reply = await client.post("/admin", json={"rate": 1})
        assert reply.status_code == 500
        assert reply.json().keys() == {"error"}
