"""A small HTTP/1.1 client for the fan-out: pooled connections, one exchange at a time on each.

A group costs N exchanges, most of them a few kilobytes, and some are abandoned. General clients spend more on each than
the server does on all its own work (`tests/bench/test_bench_upstream.py`); this one writes a request in one
piece, parses the reply with httptools and does nothing else: no redirects, cookies, proxies, compression or retries.
A cancelled exchange closes its connection, which tells the server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import quote, urlsplit

import httptools

from serving.errors import BadReplicaAnswer, ReplicaTimeout, ReplicaUnreachable

DEFAULT_PORTS = {"http": 80, "https": 443}


class Reply(NamedTuple):
    """A whole reply; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server is, and the path that all its routes begin with."""

    url: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    authority: str
    path: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Read a base address such as https://10.0.0.7:8000/models."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        return cls(
            url=url.rstrip("/"),
            host=host,
            port=parts.port or DEFAULT_PORTS[parts.scheme],
            tls=ssl.create_default_context() if parts.scheme == "https" else None,
            authority=parts.netloc.rpartition("@")[2],
            path=quote(parts.path.rstrip("/"), safe="/%"),
        )


class Http1Client:
    """Talks to one origin. Must be made while the event loop runs.

    Args:
        origin: the server.
        connect_timeout_s: longest wait for a connection, seconds.
        keep_alive_s: how long an idle connection is kept, seconds; 0 closes each after its exchange.
    """

    def __init__(self, origin: Origin, *, connect_timeout_s: float, keep_alive_s: float) -> None:
        self._origin = origin
        self._connect_timeout_s = connect_timeout_s
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()
        self._idle: deque[tuple[float, _Connection]] = deque()
        self._open: set[_Connection] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    async def exchange(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """Send one request and read its reply, whatever its status.

        Raises:
            ReplicaTimeout: no connection in time.
            ReplicaUnreachable: refused, reset, no such host, or this client is closed.
            BadReplicaAnswer: the reply is not HTTP.
        """
        if self._closed:
            raise ReplicaUnreachable(f"the transport to {self._origin.url} is closed")
        request = self._head(method, path, headers or {}, len(body)) + body
        connection = self._take_idle() or await self._connect()
        try:
            reply = await connection.exchange(request)
        except BaseException:
            connection.abort()
            raise
        if not self._keep(connection):
            connection.abort()
            await connection.lost.wait()
        return reply

    async def aclose(self) -> None:
        """Close every connection; exchanges under way fail. Idempotent."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        for connection in closing:
            await connection.lost.wait()

    def _head(self, method: str, path: str, headers: Mapping[str, str], length: int) -> bytes:
        lines = [f"{method} {self._origin.path}{path} HTTP/1.1", f"Host: {self._origin.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if length:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join((*lines, "\r\n")).encode("latin-1")

    async def _connect(self) -> _Connection:
        origin = self._origin
        connection = _Connection(origin.url, self._open)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._loop.create_connection(
                    lambda: connection, origin.host, origin.port, ssl=origin.tls
                )
        except TimeoutError as error:
            connection.forget()
            raise ReplicaTimeout(f"{origin.url} does not accept connections in time") from error
        except OSError as error:
            connection.forget()
            raise ReplicaUnreachable(f"{origin.url} cannot be reached: {error}") from error
        except BaseException:
            connection.forget()
            raise
        if self._closed:
            connection.abort()
            raise ReplicaUnreachable(f"the transport to {origin.url} is closed")
        return connection

    def _take_idle(self) -> _Connection | None:
        """The connection that was used last: the others may then grow old and be closed."""
        while self._idle:
            _, connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def _keep(self, connection: _Connection) -> bool:
        if self._closed or not self._keep_alive_s or not connection.usable:
            return False
        self._idle.append((self._loop.time() + self._keep_alive_s, connection))
        if self._reaper is None:
            self._reaper = self._loop.call_later(self._keep_alive_s, self._reap)
        return True

    def _reap(self) -> None:
        """Close the connections that have been idle for too long; come again while there are others."""
        self._reaper = None
        while self._idle and self._idle[0][0] <= self._loop.time():
            self._idle.popleft()[1].abort()
        if self._idle:
            self._reaper = self._loop.call_at(self._idle[0][0], self._reap)


class _Connection(asyncio.Protocol):
    """One connection. httptools calls the `on_` methods while it parses."""

    def __init__(self, url: str, registry: set[_Connection]) -> None:
        self._url = url
        self._registry = registry
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._reply: asyncio.Future[Reply] | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._started = False
        self.lost = asyncio.Event()
        self.usable = True

    async def exchange(self, request: bytes) -> Reply:
        """Send a request and wait for its reply."""
        if self._transport is None:
            raise ReplicaUnreachable(f"{self._url} is not connected")
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._reply
        finally:
            self._reply = None

    def abort(self) -> None:
        """Close at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        """Close a connection that was given up while it was made; uvloop may never say that it is lost."""
        self.abort()
        self._registry.discard(self)
        self.lost.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        # A stream's transport; uvloop's does not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._registry.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came; anything that nobody asked for ends the connection."""
        if self._reply is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            failure = BadReplicaAnswer(f"{self._url} does not speak HTTP as expected: {error!r}")
            failure.__cause__ = error
            self._fail(failure)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; a reply that ends with its connection is whole now."""
        self.usable = False
        self._registry.discard(self)
        self.lost.set()
        framed = {"content-length", "transfer-encoding"} & self._headers.keys()
        if exc is None and self._started and not framed:
            self._finish()
        failure = ReplicaUnreachable(
            f"{self._url} cannot be reached: it closed the connection before its reply was whole"
        )
        failure.__cause__ = exc or EOFError("end of stream")
        self._fail(failure)

    def on_message_begin(self) -> None:
        """A reply begins."""
        self._headers = {}
        self._chunks = []
        self._started = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._started = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """The reply is whole, unless it only says that one will follow (1xx)."""
        if self._parser.get_status_code() >= 200:
            self.usable = self.usable and self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        if self._reply is not None and not self._reply.done():
            body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._reply.set_result(Reply(self._parser.get_status_code(), self._headers, body))

    def _fail(self, failure: BadReplicaAnswer | ReplicaUnreachable) -> None:
        self.usable = False
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(failure)
