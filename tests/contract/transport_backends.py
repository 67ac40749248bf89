"""What the transports are tested against: each backend can be made to answer, fail, dawdle, hang or die."""

import asyncio
import contextlib
import os
import signal
import socket

import aiohttp
import numpy as np
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from serving.config.faults import FaultSettings
from serving.config.schema import LocalReplicas, ModelSettings
from serving.endpoints import v2_routes
from serving.errors import ReplicaRefused, ReplicaUnreachable, ServingError
from serving.http_edge import ErrorLayer, error_handlers
from serving.supervisor import Supervisor
from serving.transport.http_v2 import HttpV2Transport
from serving.transport.scripted import ScriptedTransport, Step
from serving.types import InferRequest, InferResponse, ModelMetadata, NamedTensor, TensorSpec

MODEL = "a doubler é?"
WIDTH = 4
METADATA = ModelMetadata(
    name=MODEL,
    versions=("1",),
    platform="numpy",
    inputs=(TensorSpec("input", "FP32", (-1, WIDTH)),),
    outputs=(TensorSpec("output", "FP32", (-1, WIDTH)),),
)
SOURCE = f"python:transport_model:doubler?input_shape={WIDTH}"
A_WHILE_S = 30.0


def request_of(rows):
    return InferRequest(inputs=(NamedTensor("input", "FP32", np.asarray(rows, np.float32)),))


def doubled(request):
    output = NamedTensor("output", "FP32", 2 * request.inputs[0].data)
    return InferResponse(model_name=MODEL, outputs=(output,))


def connections_to(port):
    """How many connections this process holds open to a port of this machine."""
    return sum(
        c.status == psutil.CONN_ESTABLISHED and bool(c.raddr) and c.raddr.port == port
        for c in psutil.Process().net_connections("tcp")
    )


class ScriptedBackend:
    """No server at all: the script says what happens."""

    async def answering(self):
        return ScriptedTransport([Step(doubled)], METADATA)

    async def failing(self):
        return ScriptedTransport([Step(ReplicaRefused("the script answered 500"))], METADATA)

    async def dawdling(self):
        return ScriptedTransport([Step(doubled, delay_s=A_WHILE_S)], METADATA)

    async def hanging(self):
        return ScriptedTransport([Step(doubled, delay_s=float("inf"))], METADATA, ready=False)

    async def dead(self):
        gone = ReplicaUnreachable("the script refused the connection")
        return ScriptedTransport([Step(gone)], gone, ready=False)

    def open_connections(self):
        return 0

    async def aclose(self):
        pass


class Doubler:
    """An inference service in this process."""

    def __init__(self):
        self.delay_s = 0.0
        self.fails = False
        self.cancelled = 0

    def metadata(self):
        return METADATA

    def ready(self):
        return True

    async def infer(self, request):
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise ServingError("told to fail")
        return doubled(request)


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):
        yield


@contextlib.asynccontextmanager
async def serving(service, extensions=("binary_tensor_data",)):
    """A V2 server in this process; gives its port."""
    routes = v2_routes(
        service, max_body_bytes=1 << 26, server_name="test", server_version="1", extensions=extensions
    )
    app = Starlette(routes=routes, exception_handlers=error_handlers(), middleware=[Middleware(ErrorLayer)])
    config = uvicorn.Config(
        app, lifespan="off", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


@contextlib.contextmanager
def mute_server():
    """A listener that takes connections and never says anything; gives its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener.getsockname()[1]


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class ServedBackend:
    """A V2 server in this process."""

    def __init__(self):
        self.service = Doubler()
        self._stack = contextlib.AsyncExitStack()
        self._port = 0

    async def answering(self):
        self._port = await self._stack.enter_async_context(serving(self.service))
        return self._transport()

    async def failing(self):
        self.service.fails = True
        return await self.answering()

    async def dawdling(self):
        self.service.delay_s = A_WHILE_S
        return await self.answering()

    async def hanging(self):
        self._port = self._stack.enter_context(mute_server())
        return self._transport()

    async def dead(self):
        self._port = unused_port()
        return self._transport()

    def open_connections(self):
        return connections_to(self._port)

    async def aclose(self):
        await self._stack.aclose()

    def _transport(self):
        return HttpV2Transport(f"http://127.0.0.1:{self._port}", MODEL)


class Watch:
    """Hears what the supervisor reports."""

    def __init__(self):
        self.urls = asyncio.Queue()
        self.deaths = asyncio.Queue()

    def started(self, number, base_url):
        self.urls.put_nowait(base_url)

    def died(self, number, exitcode, reason):
        self.deaths.put_nowait(exitcode)


class WorkerBackend:
    """A worker process."""

    def __init__(self, supervisor, watch):
        self._supervisor = supervisor
        self._watch = watch
        self._url = watch.urls.get_nowait()
        self._stopped = None

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls):
        watch = Watch()
        settings = LocalReplicas(
            count=1, concurrency=0, restart_backoff_s=0.01, faults=FaultSettings(enabled=True)
        )
        async with Supervisor(settings, ModelSettings(name=MODEL, source=SOURCE), watch) as supervisor:
            yield cls(supervisor, watch)

    async def answering(self):
        return await self._with_faults({})

    async def failing(self):
        return await self._with_faults({"error_share": 1})

    async def dawdling(self):
        return await self._with_faults({"delay": {"kind": "constant", "ms": A_WHILE_S * 1000}})

    async def hanging(self):
        self._stopped = self._supervisor.pids[0]
        os.kill(self._stopped, signal.SIGSTOP)
        return self._transport()

    async def dead(self):
        transport = self._transport()
        os.kill(self._supervisor.pids[0], signal.SIGKILL)
        await self._watch.deaths.get()
        self._url = await self._watch.urls.get()
        return transport

    def open_connections(self):
        return connections_to(int(self._url.rsplit(":", 1)[1]))

    async def aclose(self):
        if self._stopped is not None:
            os.kill(self._stopped, signal.SIGCONT)
            self._stopped = None

    async def _with_faults(self, faults):
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self._url}/faults", json=faults) as reply,
        ):
            assert reply.status == 200, await reply.text()
        return self._transport()

    def _transport(self):
        return HttpV2Transport(self._url, MODEL)
