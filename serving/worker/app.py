"""A worker's HTTP application: the V2 routes over one model, and the switch of its fault injection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
import structlog
from numpy.typing import NDArray
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving.config.faults import FaultSettings
from serving.endpoints import v2_routes
from serving.errors import BadRequest, ServingError
from serving.http_edge import ErrorLayer, error_handlers, json_response, read_body
from serving.protocol.json_text import parse_object
from serving.types import InferRequest, InferResponse, ModelMetadata, NamedTensor
from serving.worker.faults import FaultInjector
from serving.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)

EXTENSIONS = ("binary_tensor_data",)
MAX_BODY_BYTES = 1 << 30
"""The frontend limits what clients send; one call may carry rows of many of their requests."""
MAX_FAULTS_BYTES = 1 << 16


class Model(Protocol):
    """What is served."""

    def predict(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """Answer rows of shape (b, ...) with outputs of shape (b, ...). Called from one thread at a time."""


class ModelService:
    """Answers V2 requests from one model.

    The model runs in a thread, so that health probes are answered meanwhile.

    Args:
        model: what is served.
        metadata: its one input and one output, and its name.
        concurrency: calls that run at once, their injected delays included; the rest wait, first come, first
            served. 0 means unlimited.
        faults: what disturbs the calls.
        executor: one thread to run the model in.
    """

    def __init__(
        self,
        model: Model,
        metadata: ModelMetadata,
        concurrency: int,
        faults: FaultInjector,
        executor: Executor,
    ) -> None:
        self._model = model
        self._metadata = metadata
        self._faults = faults
        self._executor = executor
        self._slots: AbstractAsyncContextManager[None] = (
            asyncio.Semaphore(concurrency) if concurrency else nullcontext()
        )

    def metadata(self) -> ModelMetadata:
        """The model's metadata."""
        return self._metadata

    def ready(self) -> bool:
        """Always: a worker listens only once its model is loaded and warm."""
        return True

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run the model on the request's rows. A cancelled call leaves the queue.

        Raises:
            ServingError: the model failed, or fault injection did.
        """
        rows = request.inputs[0].data
        fault = self._faults.next_fault()
        async with self._slots:
            await self._faults.undergo(fault)
            outputs = await asyncio.get_running_loop().run_in_executor(self._executor, self._predict, rows)
        outputs = fault.corrupted(outputs)
        output = self._metadata.outputs[0]
        return InferResponse(
            model_name=self._metadata.name,
            outputs=(NamedTensor(output.name, output.datatype, outputs),),
            model_version=self._metadata.versions[0],
            id=request.id,
        )

    def _predict(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        try:
            outputs = self._model.predict(rows)
        except Exception as error:  # a user's model may raise anything
            _log.exception("model_failed", model=self._metadata.name, shape=rows.shape)
            raise ServingError(f"model {self._metadata.name!r} failed: {error!r}") from error
        if outputs.shape[:1] != rows.shape[:1]:
            raise ServingError(
                f"model {self._metadata.name!r} must give one output per row, {rows.shape[0]}; "
                f"got outputs of shape {list(outputs.shape)}"
            )
        return outputs


def create_worker_app(service: ModelService, faults: FaultInjector, settings: WorkerSettings) -> Starlette:
    """The application of one worker.

    `GET /faults` and `PUT /faults` exist only where the worker was started with `faults.enabled`.
    """
    routes: Sequence[Route] = v2_routes(
        service,
        max_body_bytes=MAX_BODY_BYTES,
        server_name=f"unstraggle-{settings.name}",
        server_version=version("unstraggle"),
        extensions=EXTENSIONS,
    )
    if settings.faults.enabled:
        routes = [*routes, *_fault_routes(faults)]
    return Starlette(routes=routes, exception_handlers=error_handlers(), middleware=[Middleware(ErrorLayer)])


def _fault_routes(faults: FaultInjector) -> list[Route]:
    async def show(_: Request) -> Response:
        return json_response(faults.settings.model_dump(mode="json"))

    async def replace(request: Request) -> Response:
        faults.replace(_parse_faults(await read_body(request, MAX_FAULTS_BYTES)))
        return await show(request)

    return [Route("/faults", show), Route("/faults", replace, methods=["PUT"])]


def _parse_faults(body: bytes) -> FaultSettings:
    """The settings in a body; what it does not name has its default, but for `enabled`, which is then true."""
    document = {"enabled": True} | parse_object(body)
    try:
        return FaultSettings.model_validate(document)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, ('faults', *problem['loc'])))}: {problem['msg']}, got {problem['input']!r}"
            for problem in error.errors()
        )
        raise BadRequest("; ".join(problems)) from error
