"""A replica that is a V2 server, reached over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

from serving.errors import (
    BadReplicaAnswer,
    BadRequest,
    ReplicaRefused,
    ReplicaTimeout,
    ServingError,
    TransportError,
)
from serving.protocol.codec import decode_infer_response, encode_infer_request, parse_header_length
from serving.protocol.json_text import list_at, parse_object
from serving.protocol.metadata import decode_model_metadata
from serving.protocol.tensors import HEADER_LENGTH
from serving.transport.answers import check_answer
from serving.transport.http1 import Http1Client, Origin, Reply
from serving.types import InferRequest, InferResponse, ModelMetadata

_HEADER_LENGTH = HEADER_LENGTH.lower()
BINARY_EXTENSION = "binary_tensor_data"
DESCRIBE_TIMEOUT_S = 5.0
"""Longest wait for metadata, which no server has to compute."""
LONGEST_REFUSAL = 500
"""Characters of a replica's error message that are passed on."""


@dataclass(frozen=True, slots=True)
class _Description:
    """What a server says of itself."""

    metadata: ModelMetadata
    binary: bool


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
        origin = Origin.parse(base_url)
        self._base_url = origin.url
        self._model_path = f"/v2/models/{quote(model_name, safe='')}"
        self._infer_path = f"{self._model_path}/infer"
        self._probe_timeout_s = probe_timeout_s
        self._calls = Http1Client(origin, connect_timeout_s=connect_timeout_s, keep_alive_s=keep_alive_s)
        self._probes = Http1Client(origin, connect_timeout_s=connect_timeout_s, keep_alive_s=0.0)
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
        reply = self._accepted(await self._calls.exchange("POST", self._infer_path, headers, body))
        try:
            header_length = parse_header_length(reply.headers.get(_HEADER_LENGTH))
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
                self._accepted(await self._probes.exchange("GET", f"{self._model_path}/ready"))
        except (TransportError, TimeoutError):
            return False
        return True

    async def aclose(self) -> None:
        """Close every connection; calls that are under way fail. Idempotent."""
        await self._probes.aclose()
        await self._calls.aclose()

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
                reply = self._accepted(await self._calls.exchange("GET", self._model_path))
        except TimeoutError as error:
            raise ReplicaTimeout(
                f"{self._base_url} gave no metadata within {DESCRIBE_TIMEOUT_S:g} s"
            ) from error
        return _Description(decode_model_metadata(reply.body), BINARY_EXTENSION in extensions)

    async def _extensions(self) -> Sequence[object]:
        """What the server can do beyond the protocol; a server that does not say can do nothing."""
        try:
            reply = self._accepted(await self._calls.exchange("GET", "/v2"))
        except ReplicaRefused:
            return ()
        try:
            return list_at(parse_object(reply.body), "extensions")
        except BadRequest as error:
            raise BadReplicaAnswer(f"{self._base_url}: the server metadata is malformed: {error}") from error

    def _accepted(self, reply: Reply) -> Reply:
        if reply.status != HTTPStatus.OK:
            raise ReplicaRefused(f"{self._base_url} answered {reply.status}: {_message(reply.body)}")
        return reply


def _message(body: bytes) -> str:
    """The V2 error message in a body, or the body itself."""
    try:
        message = parse_object(body).get("error")
    except BadRequest:
        message = None
    text = message if isinstance(message, str) else body[:LONGEST_REFUSAL].decode(errors="replace")
    return text[:LONGEST_REFUSAL]
