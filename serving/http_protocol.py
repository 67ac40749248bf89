"""HTTP/1.1 as uvicorn speaks it, with what a server in front of strangers needs besides.

A request must come within a time and its head within a size, what is not HTTP is answered in the shape of every other
error, and the head and the body of a reply leave in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers; browsers and proxies send a few kilobytes."""
LINGER_S: Final = 1.0
"""How long a refused client may go on sending, unheard, until its connection is closed."""


class HttpProtocol(HttpToolsProtocol):
    """One connection; uvicorn makes them.

    Args:
        receive_timeout_s: longest time from the first byte of a request to its last. A longer one gets 408.
        uvicorns: what uvicorn gives to its protocols.
    """

    def __init__(self, *, receive_timeout_s: float, **uvicorns: Any) -> None:  # noqa: ANN401
        super().__init__(**uvicorns)
        self._receive_timeout_s = receive_timeout_s
        self._receiving: asyncio.TimerHandle | None = None
        self._heads = 0
        self._in_head = False
        self._head_parsed = 0
        self._head_received = 0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; one that never says anything is closed like one that has fallen silent."""
        super().connection_made(_PairedWrites(transport, self.loop))
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._received()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._refused:
            return
        between_requests = self._receiving is None
        head = self._heads + between_requests if between_requests or self._in_head else None
        super().data_received(data)
        if self._in_head and head == self._heads:
            # All of them belong to a head that goes on; that of its headers which has not ended is not seen else.
            self._head_received += len(data)
            self._check_head(self._head_received)

    def shutdown(self) -> None:
        """The server stops: what is half received will not be served."""
        if self._receiving is not None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down")
        else:
            super().shutdown()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._heads += 1
        self._in_head = True
        self._head_parsed = self._head_received = 0
        self._receiving = self.loop.call_later(self._receive_timeout_s, self._give_up)

    def on_url(self, url: bytes) -> None:
        """A piece of its URL."""
        super().on_url(url)
        self._head_parsed += len(url)
        self._check_head(self._head_parsed)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        super().on_header(name, value)
        self._head_parsed += len(name) + len(value)
        self._check_head(self._head_parsed)

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._in_head = False
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._received()
        if not self._refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What came is not HTTP."""
        self._refuse(HTTPStatus.BAD_REQUEST, "the request is not valid HTTP/1.1")

    def _check_head(self, byte_count: int) -> None:
        if byte_count > MAX_HEAD_BYTES:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the request's head is over the limit of {MAX_HEAD_BYTES} bytes",
            )

    def _received(self) -> None:
        self._in_head = False
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _give_up(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the request did not come within {self._receive_timeout_s:g} s (server.receive_timeout_s)",
        )

    def _may_answer(self) -> bool:
        """Whether a reply of ours would be taken for the answer to what is coming in."""
        cycle = self.cycle
        if self.pipeline:
            return False
        if cycle is None or (self._in_head and cycle.response_complete):
            return True
        if cycle.response_complete:
            return self._receiving is None  # else it was answered early, and its rest is still coming in
        return not self._in_head and not cycle.response_started

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to say: a request to upgrade may be ignored (RFC 9110, 7.8), and is answered as it stands."""

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer for the application, and close; only close where another answer is due first."""
        may_answer = self._may_answer()
        self._received()
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        if not may_answer:
            self.transport.close()
            return
        body = orjson.dumps({"error": message})
        head: Mapping[str, str] = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            *(f"{key}: {value}" for key, value in head.items()),
        ]
        self.transport.write("\r\n".join((*lines, "", "")).encode("ascii") + body)
        # Closing at once would reset the connection while the client still sends, and the reply with it.
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


class _PairedWrites(asyncio.Transport):
    """A transport that holds the first write of a turn of the loop for the second.

    uvicorn writes the head and the body of a reply one after the other. In one piece they cost one system call
    instead of two, and wake the client once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: bytes | bytearray | memoryview | None = None
        self._flush_soon: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write together with what is held, or hold it until the next write or the next turn."""
        if self._held is None:
            self._held = data
            self._flush_soon = self._loop.call_soon(self._flush)
        else:
            self._flush(data)

    def _flush(self, *more: bytes | bytearray | memoryview) -> None:
        if self._flush_soon is not None:
            self._flush_soon.cancel()
        held, self._held = self._held, None
        # A client may go between the reply's making and its writing, which is no error of ours.
        if held is not None and not self._transport.is_closing():
            self._transport.writelines((held, *more))

    def write_eof(self) -> None:
        """Write what is held, and say that nothing follows."""
        self._flush()
        if not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Write what is held, and close."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """As the transport below."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """As the transport below."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport below."""
        self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
