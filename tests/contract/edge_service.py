"""A model that doubles its input, the routes around it, and a real server for it in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from serving.endpoints import v1_routes, v2_routes
from serving.errors import NotReady
from serving.http_edge import ErrorLayer, error_handlers
from serving.listen import uvicorn_config
from serving.protocol import provenance_parameters
from serving.types import (
    InferRequest,
    InferResponse,
    ModelMetadata,
    NamedTensor,
    Provenance,
    TensorSpec,
)

METADATA = ModelMetadata(
    "my model",
    ("1", "2"),
    "test",
    (TensorSpec("x", "FP32", (-1, 3)),),
    (TensorSpec("y", "FP32", (-1, 3)), TensorSpec("sums", "INT64", (-1,))),
)
PATH = "/v2/models/my%20model"
PROVENANCE = (Provenance("decoded", 10, ("replica-2",), error_estimate=0.25),)


class Doubler:
    """The service behind the routes; its fields script what happens to a request."""

    def __init__(self) -> None:
        self.is_ready = True
        self.known: ModelMetadata | None = METADATA
        self.failure: Exception | None = None
        self.hangs = False
        self.requests: list[InferRequest] = []
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    def metadata(self) -> ModelMetadata:
        if self.known is None:
            raise NotReady("no replica has answered yet")
        return self.known

    def ready(self) -> bool:
        return self.is_ready

    async def infer(self, request: InferRequest) -> InferResponse:
        self.requests.append(request)
        self.started.set()
        if self.failure is not None:
            raise self.failure
        if self.hangs:
            await self._hang()
        x = request.inputs[0].data
        sums = np.nan_to_num(x, posinf=0.0).sum(axis=1).astype("i8")
        outputs = (NamedTensor("y", "FP32", 2 * x), NamedTensor("sums", "INT64", sums))
        return InferResponse(
            "my model", outputs, "1", request.id, parameters=provenance_parameters(PROVENANCE * len(x))
        )

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def build_app(service: Doubler, *, max_body_bytes: int = 100_000) -> Starlette:
    """The routes as a worker mounts them."""
    return Starlette(
        routes=[
            *v2_routes(
                service,
                max_body_bytes=max_body_bytes,
                server_name="unstraggle",
                server_version="0.1.0",
                extensions=("binary_tensor_data", "parameters"),
            ),
            *v1_routes(service, max_body_bytes=max_body_bytes),
        ],
        exception_handlers=error_handlers(),
        middleware=[Middleware(ErrorLayer)],
    )


def client_of(app: Starlette) -> httpx.AsyncClient:
    """A client that calls the application without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://edge")


@contextlib.contextmanager
def live_server(app: Starlette, *, receive_timeout_s: float = 60.0) -> Iterator[int]:
    """Serve the application, as the frontend does, on a free port of 127.0.0.1 and give that port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(app, grace_s=5.0, receive_timeout_s=receive_timeout_s))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
    assert not thread.is_alive()


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll a condition of another thread."""
    give_up = time.perf_counter() + timeout_s
    while not condition():
        assert time.perf_counter() < give_up, "the condition did not come true"
        time.sleep(0.005)
