"""V2 servers that answer after a set delay and compute nothing, all in one process of their own.

They stand for replicas where a benchmark must not measure the replicas: plain asyncio, one `write` per reply, for
lenet5's metadata (`[-1, 1, 28, 28]` FP32 in, `[-1, 10]` FP32 out). As a program it takes one delay in
milliseconds per replica and prints their base addresses on one line of JSON:

    python tests/bench/scripted_server.py 5 5 5 200

Inside a test, `ScriptedServers` starts and ends such a process.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

MODEL = "lenet5"
INPUT_SHAPE = (1, 28, 28)
CLASSES = 10

_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_JSON_LENGTH = re.compile(rb"^inference-header-content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)

_SERVER = {"name": "scripted", "version": "1", "extensions": ["binary_tensor_data"]}
_METADATA = {
    "name": MODEL,
    "versions": ["1"],
    "platform": "scripted",
    "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, *INPUT_SHAPE]}],
    "outputs": [{"name": "output", "datatype": "FP32", "shape": [-1, CLASSES]}],
}


class ScriptedReplica:
    """One server: answers inference after `delay_s`, everything else at once."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until the client closes it."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                writer.write(await self._answer(head, body))
        writer.close()

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        path = head.split(b" ", 2)[1].decode()
        if path.endswith("/infer"):
            await asyncio.sleep(self._delay_s)
            return _infer(head, body)
        return _reply(json.dumps(_SERVER if path == "/v2" else _METADATA).encode())


def _infer(head: bytes, body: bytes) -> bytes:
    json_length = _JSON_LENGTH.search(head)
    document = json.loads(body[: int(json_length[1])] if json_length else body)
    return _infer_reply(document["inputs"][0]["shape"][0])


@lru_cache
def _infer_reply(rows: int) -> bytes:
    """As many rows as were asked for: class r % 10 for row r."""
    outputs = np.eye(CLASSES, dtype="<f4")[np.arange(rows) % CLASSES]
    output = {
        "name": "output",
        "datatype": "FP32",
        "shape": outputs.shape,
        "parameters": {"binary_data_size": outputs.nbytes},
    }
    text = json.dumps({"model_name": MODEL, "outputs": [output]}).encode()
    return _reply(text + outputs.tobytes(), f"Inference-Header-Content-Length: {len(text)}\r\n")


def _reply(body: bytes, header: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{header}Content-Length: {len(body)}\r\n\r\n".encode() + body


class ScriptedServers:
    """Context manager: one process with one scripted replica per delay.

    Args:
        delays_ms: one delay per replica, milliseconds.

    Attributes:
        urls: base addresses, in the order of the delays; known once entered.
    """

    def __init__(self, delays_ms: Sequence[float]) -> None:
        self._delays_ms = delays_ms
        self.urls: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        command = [sys.executable, str(Path(__file__)), *map(str, self._delays_ms)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.urls = tuple(json.loads(self._process.stdout.readline()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


async def _serve_until_abandoned(delays_ms: Sequence[float]) -> None:
    servers = [
        await asyncio.start_server(ScriptedReplica(delay / 1000).serve, "127.0.0.1", 0, backlog=1024)
        for delay in delays_ms
    ]
    print(json.dumps([f"http://127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in servers]), flush=True)
    # Whoever started this holds the other end of standard input; when it dies, so does this.
    await asyncio.to_thread(sys.stdin.buffer.read)


def main() -> None:
    """Serve one replica per delay on the command line, until standard input ends."""
    import uvloop

    uvloop.run(_serve_until_abandoned([float(delay) for delay in sys.argv[1:]]))


if __name__ == "__main__":
    main()
