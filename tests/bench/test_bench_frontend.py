"""What the frontend adds: real HTTP from a client through the frontend to 12 scripted replicas that answer after 5 ms.

The client, the frontend and the replicas are three processes. The client is the lean one that the frontend itself uses
towards its replicas, so that little of its own work is in the figures (with aiohttp they are 0.7 ms higher). They are
printed in milliseconds and as ratios to the 5 ms that the replicas take.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np
import pytest
import uvloop
from scripted_server import ScriptedServers

from serving.protocol.codec import decode_infer_response, encode_infer_request, parse_header_length
from serving.transport.http1 import Http1Client, Origin
from serving.types import InferRequest, NamedTensor

REPLICAS = 12
REPLICA_MS = 5.0
ROWS = 8


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return 300 if request.config.getoption("benchmark_enable") else 10


@contextmanager
def frontend(urls: tuple[str, ...]) -> Iterator[str]:
    replicas = json.dumps({"kind": "http", "urls": list(urls)})
    command = [sys.executable, "-m", "unstraggle", "serve", "--set", "server.port=0"]
    command += ["--set", f"replicas={replicas}", "--set", "log.level=error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=20)


def body(generator: np.random.Generator) -> tuple[bytes, dict[str, str]]:
    rows = generator.random((ROWS, 1, 28, 28), dtype=np.float32)
    request = InferRequest((NamedTensor("input", "FP32", rows),), binary_output=True)
    data, headers = encode_infer_request(request, binary=True)
    return bytes(data), dict(headers)


async def one(client: Http1Client, data: bytes, headers: dict[str, str]) -> None:
    reply = await client.exchange("POST", "/v2/models/lenet5/infer", headers, data)
    assert reply.status == 200, reply
    length = parse_header_length(reply.headers.get("inference-header-content-length"))
    assert decode_infer_response(reply.body, length).outputs[0].data.shape == (ROWS, 10)


async def measure(url: str, at_once: int, rounds: int) -> np.ndarray:
    """Milliseconds from the first of `at_once` requests to the last answer, per round."""
    generator = np.random.default_rng(0)
    requests = [body(generator) for _ in range(at_once)]
    times = []
    client = Http1Client(Origin.parse(url), connect_timeout_s=5.0, keep_alive_s=60.0)
    try:
        for number in range(rounds + 5):
            started = perf_counter()
            await asyncio.gather(*(one(client, data, headers) for data, headers in requests))
            if number >= 5:
                times.append((perf_counter() - started) * 1000)
    finally:
        await client.aclose()
    return np.array(times)


@pytest.mark.live
@pytest.mark.parametrize("at_once", [1, 8])
def test_frontend_over_scripted_replicas(
    at_once: int, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServers([REPLICA_MS] * REPLICAS) as replicas, frontend(replicas.urls) as url:
        times = uvloop.run(measure(url, at_once, rounds))
    p50, p95 = np.percentile(times, [50, 95])
    with capsys.disabled():
        print(
            f"\nfrontend, {at_once} group(s) of {ROWS} at once over {REPLICAS} replicas of {REPLICA_MS:g} ms: "
            f"p50 {p50:.1f} ms ({p50 / REPLICA_MS:.1f} x the replica), p95 {p95:.1f} ms"
        )
