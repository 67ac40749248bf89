"""What all HTTP routes share: bodies read within their limit, clients that leave noticed, errors rendered.

Every error on every path has V2's shape, `{"error": "..."}`. Nothing here derives from `BaseHTTPMiddleware`,
which runs the application in a task of its own and hides the client's disconnect from it.
"""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import orjson
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import BadRequest, BodyTooLarge, ServingError, UnsupportedEncoding
from serving.protocol import parse_header_length

_T = TypeVar("_T")
ErrorHandler = Callable[[Request, Any], Coroutine[Any, Any, Response]]

LIMIT_SETTING: Final = "server.max_body_bytes"
ACCEPTED_ENCODINGS: Final = "gzip, deflate, identity"
_WINDOW_BITS: Final[Mapping[str, int]] = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_CLIENT_LEFT: Final = 499


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON reply."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


async def read_body(request: Request, max_body_bytes: int) -> bytes:
    """The whole request body, decompressed.

    Raises:
        BodyTooLarge: it is over the limit as announced, received or decompressed; no more than that is held.
        UnsupportedEncoding: its content encoding is none of gzip, deflate and identity.
        BadRequest: a bad Content-Length, or a body that its content encoding does not fit.
        ClientDisconnect: the client left before it had sent it all.
    """
    encoding = _content_encoding(request)
    announced = parse_header_length(request.headers.get("content-length"), "Content-Length")
    if announced is not None and announced > max_body_bytes:
        raise BodyTooLarge(f"the body has {announced} bytes, over the limit of {_limit(max_body_bytes)}")
    body = await _receive_all(request.receive, max_body_bytes)
    if encoding is None:
        return body
    # In a thread, since a small body may take long to inflate; zlib lets the event loop run meanwhile.
    return await asyncio.to_thread(decompress, body, encoding, max_body_bytes)


def _content_encoding(request: Request) -> str | None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in _WINDOW_BITS:
        raise UnsupportedEncoding(
            f'Content-Encoding "{encoding[:60]}" is not accepted, only {ACCEPTED_ENCODINGS}'
        )
    return encoding


async def _receive_all(receive: Receive, max_body_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_body_bytes:
            raise BodyTooLarge(f"the body is over the limit of {_limit(max_body_bytes)}: {size} bytes so far")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def decompress(body: bytes, encoding: str, max_body_bytes: int) -> bytes:
    """Undo a content encoding; never holds more than the limit, whatever the body would inflate to.

    Args:
        body: the compressed bytes.
        encoding: "gzip" or "deflate".
        max_body_bytes: the limit on the result.

    Raises:
        BodyTooLarge: the result is over the limit.
        BadRequest: the body is not in that encoding, is cut short, or goes on after its end.
    """
    engine = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        plain = engine.decompress(body, max_body_bytes + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not valid {encoding}: {error}") from error
    if len(plain) > max_body_bytes:
        raise BodyTooLarge(f"the decompressed body is over the limit of {_limit(max_body_bytes)}")
    if not engine.eof:
        raise BadRequest(f"the body is not valid {encoding}: it is cut short")
    if engine.unused_data:
        raise BadRequest(f"the body has {len(engine.unused_data)} bytes after its {encoding} data")
    return plain


def _limit(max_body_bytes: int) -> str:
    return f"{max_body_bytes} bytes ({LIMIT_SETTING})"


async def while_connected(receive: Receive, answer: Awaitable[_T]) -> _T:
    """Await an answer, but cancel it if the client leaves first.

    Args:
        receive: the request's channel, its body read.
        answer: what to await.

    Raises:
        ClientDisconnect: the client left; `answer` was cancelled and has finished.
    """
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_raise_on_disconnect(receive))
            result = await answer
            watch.cancel()
    except BaseExceptionGroup as failures:
        # One thing went wrong first: the answer, or the watch, which then cancelled the answer.
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    return result


async def _raise_on_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect


def error_response(error: Exception, scope: Scope) -> Response:
    """The reply to a request that ended in this error; an unexpected one is logged and not leaked."""
    if isinstance(error, ServingError):
        return json_response({"error": str(error)}, error.status, _headers_of(error))
    if isinstance(error, HTTPException):
        return json_response({"error": _routing_message(error, scope)}, error.status_code, error.headers)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=_CLIENT_LEFT)
    reference = secrets.token_hex(6)
    structlog.get_logger(__name__).error(
        "unexpected error", reference=reference, method=scope["method"], path=scope["path"], exc_info=error
    )
    return json_response({"error": f"internal error (reference {reference})"}, 500)


def _headers_of(error: ServingError) -> dict[str, str]:
    if isinstance(error, UnsupportedEncoding):
        return {**error.headers, "Accept-Encoding": ACCEPTED_ENCODINGS}
    return error.headers


def _routing_message(error: HTTPException, scope: Scope) -> str:
    path = scope["path"][:100]
    if error.status_code == 404:
        return f"{error.detail}: no route {path}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return f"{error.detail}: {path} takes {allowed}, got {scope['method']}"
    return error.detail


def error_handlers() -> dict[int | type[Exception], ErrorHandler]:
    """For `exception_handlers` of Starlette or FastAPI: expected errors, unknown routes, wrong methods."""
    return {HTTPException: _handle, ServingError: _handle, ClientDisconnect: _handle}


async def _handle(request: Request, error: Exception) -> Response:
    return error_response(error, request.scope)


class _ValidationError(Protocol):
    def errors(self) -> Sequence[Any]: ...


async def handle_validation_error(_: Request, error: _ValidationError) -> Response:
    """For FastAPI's `RequestValidationError`, where FastAPI parses the bodies: 422, naming each field."""
    problems = (f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors())
    return json_response({"error": "; ".join(problems)}, 422)


class ErrorLayer:
    """Pure ASGI layer around an application: whatever escapes it becomes an error reply.

    With Starlette or FastAPI, add it as a middleware: their last resort answers in plain text and re-raises.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            if started:
                raise
            await error_response(error, scope)(scope, receive, send)
