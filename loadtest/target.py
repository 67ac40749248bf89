"""A client of one V2 server: one send, one outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import numpy as np
import orjson
from numpy.typing import NDArray

from loadtest.errors import TargetError
from loadtest.records import Outcome
from loadtest.workload import PreparedRequest
from serving.errors import ServingError
from serving.protocol.codec import decode_infer_response, parse_header_length
from serving.protocol.metadata import decode_model_metadata
from serving.protocol.tensors import HEADER_LENGTH
from serving.types import InferResponse, Parameter, TensorSpec

_KEEP_ALIVE_S = 3.0
"""Below the keep-alive time of common servers: no request may meet a connection that is being closed."""

_MAX_ERROR_CHARACTERS = 200


class HttpTarget:
    """A model behind a V2 server.

    Args:
        session: carries the requests; belongs to the caller.
        url: the server's base address.
        model: the model's name in the server.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self.session = session
        self.url = url.rstrip("/")
        self._model_url = f"{self.url}/v2/models/{model}"
        self._infer_url = f"{self._model_url}/infer"

    async def input_spec(self) -> TensorSpec:
        """The model's only input, as its metadata describe it.

        Raises:
            TargetError: the server does not answer, does not know the model, or the model has several inputs.
        """
        try:
            async with self.session.get(self._model_url) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TargetError(f"{self.url} does not answer: {_describe(error)}") from error
        if response.status != 200:
            raise TargetError(f"{self._model_url} answered with status {response.status}: {_text(body)}")
        try:
            (spec,) = decode_model_metadata(body).inputs
        except (ServingError, ValueError) as error:
            rule = "must describe a model with exactly one input"
            raise TargetError(f"{self._model_url} {rule}: {error}") from error
        return spec

    async def send(self, request: PreparedRequest) -> Outcome:
        """Send one request and wait for its outcome. Never raises; every failure is an outcome."""
        try:
            async with self.session.post(
                self._infer_url, data=request.body, headers=request.headers
            ) as response:
                body = await response.read()
        except TimeoutError:
            return Outcome(error="no answer within the client's timeout")
        except aiohttp.ClientError as error:
            return Outcome(error=_describe(error))
        if response.status != 200:
            return Outcome(status=response.status, error=f"status {response.status}: {_text(body)}")
        return _judge(request, body, response.headers.get(HEADER_LENGTH))


@asynccontextmanager
async def connect(url: str, model: str, *, timeout_s: float) -> AsyncIterator[HttpTarget]:
    """Open a client that never makes a request wait for a free connection, nor goes through a proxy.

    Args:
        url: the server's base address.
        model: the model's name in the server.
        timeout_s: longest wait for one outcome, seconds.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        yield HttpTarget(session, url, model)


def _judge(request: PreparedRequest, body: bytes, header_length: str | None) -> Outcome:
    """Turn a reply with status 200 into an outcome: it may still be unusable."""
    try:
        response = decode_infer_response(body, parse_header_length(header_length))
        classes = _classes(response, request.rows)
    except (ServingError, ValueError) as error:
        return Outcome(status=200, error=f"unusable answer: {error}")
    parameters = response.parameters
    return Outcome(
        status=200,
        correct=int(np.count_nonzero(classes == request.labels)),
        obtained=_string(parameters, "obtained"),
        degraded=bool(parameters.get("degraded", False)),
        replicas_used=_integer(parameters, "replicas_used"),
        replicas_missing=_string(parameters, "replicas_missing"),
        error_estimate=_number(parameters, "error_estimate"),
    )


def _classes(response: InferResponse, rows: int) -> NDArray[np.intp]:
    if not response.outputs:
        raise ValueError("it has no output")
    scores = response.outputs[0].data
    if scores.ndim != 2 or scores.shape[0] != rows:
        raise ValueError(f"its first output must have shape [{rows}, classes], got {list(scores.shape)}")
    if not np.isfinite(scores).all():
        raise ValueError("its first output is not finite")
    classes: NDArray[np.intp] = scores.argmax(axis=1)
    return classes


def _string(parameters: Mapping[str, Parameter], name: str) -> str | None:
    value = parameters.get(name)
    return None if value is None else str(value)


def _integer(parameters: Mapping[str, Parameter], name: str) -> int | None:
    value = _number(parameters, name)
    return None if value is None else round(value)


def _number(parameters: Mapping[str, Parameter], name: str) -> float | None:
    value: Any = parameters.get(name)
    return float(value) if isinstance(value, int | float) else None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _text(body: bytes) -> str:
    """The message of a V2 error body, or the start of whatever it is."""
    text = body[: 10 * _MAX_ERROR_CHARACTERS].decode("utf-8", errors="replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(orjson.loads(body)["error"])
    return " ".join(text.split())[:_MAX_ERROR_CHARACTERS]
