"""A replica that is a V2 server, reached over HTTP.

aiohttp does the work; `tests/bench/test_bench_upstream.py` compares it with the alternatives. What decides is
how a client lives with cancellation: abandoned stragglers are the normal case here, not the exception.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

import aiohttp
from yarl import URL

from serving.errors import (
    BadReplicaAnswer,
    BadRequest,
    ReplicaRefused,
    ReplicaTimeout,
    ReplicaUnreachable,
    ServingError,
    TransportError,
)
from serving.protocol.codec import decode_infer_response, encode_infer_request, parse_header_length
from serving.protocol.json_text import list_at, parse_object
from serving.protocol.metadata import decode_model_metadata
from serving.protocol.tensors import HEADER_LENGTH
from serving.transport.answers import check_answer
from serving.types import InferRequest, InferResponse, ModelMetadata

BINARY_EXTENSION = "binary_tensor_data"
DESCRIBE_TIMEOUT_S = 5.0
"""Longest wait for metadata, which no server has to compute."""
LARGE_BODY = 1 << 20
"""Bytes; aiohttp wants longer bodies as a stream."""
LONGEST_REFUSAL = 500
"""Characters of a replica's error message that are passed on."""


@dataclass(frozen=True, slots=True)
class _Description:
    """What a server says of itself."""

    metadata: ModelMetadata
    binary: bool


class _Reply(NamedTuple):
    body: bytes
    headers: Mapping[str, str]


class HttpV2Transport:
    """Client of one model on one V2 server. Cheap to make; must be made while the event loop runs.

    Tensors go in binary where the server lists that extension, else as JSON. The server is asked once, by
    `metadata` or by the first `infer`. Connections are not limited here: the dispatcher limits the calls, and
    a call over HTTP/1.1 has a connection to itself.

    A cancelled call closes its connection, which tells the server; the next call opens another.

    Args:
        base_url: where the server is, such as http://10.0.0.7:8000.
        model_name: the model's name in the URL.
        connect_timeout_s: longest wait for a connection, seconds.
        probe_timeout_s: longest wait for the answer to `ready`, seconds.
        keep_alive_s: how long an idle connection is kept, seconds. It must be less than what the server
            allows, or calls meet connections that are being closed; the default suits servers that allow 5 s.
    """

    def __init__(
        self,
        base_url: str,
        model_name: str,
        *,
        connect_timeout_s: float = 1.0,
        probe_timeout_s: float = 0.4,
        keep_alive_s: float = 4.0,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        model_url = f"{self._base_url}/v2/models/{quote(model_name, safe='')}"
        self._server_url = URL(f"{self._base_url}/v2", encoded=True)
        self._model_url = URL(model_url, encoded=True)
        self._ready_url = URL(f"{model_url}/ready", encoded=True)
        self._infer_url = URL(f"{model_url}/infer", encoded=True)
        self._probe_timeout_s = probe_timeout_s
        self._calls = _session(
            aiohttp.TCPConnector(limit=0, keepalive_timeout=keep_alive_s), connect_timeout_s
        )
        self._probes = _session(aiohttp.TCPConnector(limit=0, force_close=True), connect_timeout_s)
        self._closed = False
        self._description: _Description | None = None
        self._describing = asyncio.Lock()

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run the model on the request's rows.

        Raises:
            TransportError: the replica did not give a well-formed answer.
        """
        description = await self._described()
        try:
            body, headers = encode_infer_request(request, binary=description.binary)
        except ServingError as error:
            raise TransportError(f"{self._base_url} cannot be sent this request: {error}") from error
        reply = await self._post(body, headers)
        try:
            header_length = parse_header_length(reply.headers.get(HEADER_LENGTH))
            response = decode_infer_response(reply.body, header_length)
            check_answer(request, response, description.metadata.outputs)
        except (BadRequest, BadReplicaAnswer) as error:
            raise BadReplicaAnswer(f"{self._base_url}: {error}") from error
        return response

    async def metadata(self) -> ModelMetadata:
        """The model's metadata as this replica reports it now.

        Raises:
            TransportError: the replica did not give a well-formed answer.
        """
        self._description = await self._describe()
        return self._description.metadata

    async def ready(self) -> bool:
        """Probe the replica on a connection of its own, never queued behind inference. Never raises."""
        try:
            async with asyncio.timeout(self._probe_timeout_s):
                await self._get(self._probes, self._ready_url)
        except (TransportError, TimeoutError):
            return False
        return True

    async def aclose(self) -> None:
        """Close every connection; calls that are under way fail. Idempotent."""
        self._closed = True
        await self._probes.close()
        await self._calls.close()

    async def _described(self) -> _Description:
        if self._description is None:
            async with self._describing:
                if self._description is None:
                    self._description = await self._describe()
        return self._description

    async def _describe(self) -> _Description:
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                extensions = await self._extensions()
                reply = await self._get(self._calls, self._model_url)
        except TimeoutError as error:
            raise ReplicaTimeout(
                f"{self._base_url} gave no metadata within {DESCRIBE_TIMEOUT_S:g} s"
            ) from error
        return _Description(decode_model_metadata(reply.body), BINARY_EXTENSION in extensions)

    async def _extensions(self) -> Sequence[object]:
        """What the server can do beyond the protocol; a server that does not say can do nothing."""
        try:
            reply = await self._get(self._calls, self._server_url)
        except ReplicaRefused:
            return ()
        try:
            return list_at(parse_object(reply.body), "extensions")
        except BadRequest as error:
            raise BadReplicaAnswer(f"{self._base_url}: the server metadata is malformed: {error}") from error

    async def _get(self, session: aiohttp.ClientSession, url: URL) -> _Reply:
        with self._translated():
            async with session.get(url, allow_redirects=False) as response:
                return await self._accept(response)

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> _Reply:
        payload = body if len(body) < LARGE_BODY else io.BytesIO(body)
        with self._translated():
            async with self._calls.post(
                self._infer_url, data=payload, headers=headers, allow_redirects=False
            ) as response:
                return await self._accept(response)

    async def _accept(self, response: aiohttp.ClientResponse) -> _Reply:
        body = await response.read()
        if response.status != HTTPStatus.OK:
            raise ReplicaRefused(f"{self._base_url} answered {response.status}: {_message(body)}")
        return _Reply(body, response.headers)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Map aiohttp's exceptions to ours."""
        if self._closed:
            raise ReplicaUnreachable(f"the transport to {self._base_url} is closed")
        try:
            yield
        except aiohttp.ServerTimeoutError as error:
            raise ReplicaTimeout(f"{self._base_url} does not accept connections in time") from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, aiohttp.InvalidURL) as error:
            raise ReplicaUnreachable(f"{self._base_url} cannot be reached: {error}") from error
        except aiohttp.ClientError as error:
            raise BadReplicaAnswer(f"{self._base_url} does not speak HTTP as expected: {error!r}") from error


def _session(connector: aiohttp.TCPConnector, connect_timeout_s: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # The deadline is the caller's; a call without an answer is cancelled, not timed out here.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        # Compression would cost more than it saves, and the environment's proxies are not for replicas.
        skip_auto_headers=("Accept-Encoding",),
        trust_env=False,
    )


def _message(body: bytes) -> str:
    """The V2 error message in a body, or the body itself."""
    try:
        message = parse_object(body).get("error")
    except BadRequest:
        message = None
    text = message if isinstance(message, str) else body[:LONGEST_REFUSAL].decode(errors="replace")
    return text[:LONGEST_REFUSAL]
