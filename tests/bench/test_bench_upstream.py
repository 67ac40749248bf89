"""Which HTTP client to put under `serving.transport.http_v2`: measured on the fan-out that we live from.

Each group sends one call to each of 12 replicas, of which 9 answer after 5 ms and 3 after 200 ms, takes the first
8 answers and cancels the rest. The clients take turns in short rounds, so that a noisy machine is noisy for all.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

import aiohttp
import httpx2
import numpy as np
import psutil
import pytest
import uvloop
from httpx_aiohttp import HttpxAiohttpClient
from scripted_server import CLASSES, INPUT_SHAPE, MODEL, ScriptedServers

from serving.protocol.codec import encode_infer_request
from serving.transport.http1 import Http1Client, Origin
from serving.types import InferRequest, NamedTensor

FAST_MS, SLOW_MS = 5.0, 200.0
FAST, SLOW = 9, 3
WAIT_FOR = 8
IN_USE = "ours"
PATIENCE_S = 10.0
SETTLE_S = 0.05

ROW = NamedTensor("input", "FP32", np.zeros((1, *INPUT_SHAPE), np.float32))
BODY, HEADERS = encode_infer_request(InferRequest(inputs=(ROW,)))
LEAST_ANSWER = CLASSES * 4


class Aiohttp:
    def __init__(self, url):
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)
        self.url = url

    async def post(self):
        async with self.session.post(self.url, data=BODY, headers=HEADERS) as response:
            return await response.read()

    async def aclose(self):
        await self.session.close()


class Ours:
    def __init__(self, url):
        origin, _, self.path = url.partition("/v2/")
        self.client = Http1Client(Origin.parse(origin), connect_timeout_s=PATIENCE_S, keep_alive_s=60.0)

    async def post(self):
        return (await self.client.exchange("POST", f"/v2/{self.path}", HEADERS, BODY)).body

    async def aclose(self):
        await self.client.aclose()


class Httpx2:
    def __init__(self, url):
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx2.AsyncClient(limits=limits, timeout=None, trust_env=False)
        self.url = url

    async def post(self):
        return (await self.client.post(self.url, content=BODY, headers=HEADERS)).content

    async def aclose(self):
        await self.client.aclose()


class HttpxOnAiohttp(Httpx2):
    def __init__(self, url):
        self.client = HttpxAiohttpClient(timeout=None, trust_env=False)
        self.url = url


CLIENTS = {"ours": Ours, "aiohttp": Aiohttp, "httpx on aiohttp": HttpxOnAiohttp, "httpx2": Httpx2}


@dataclass
class Measured:
    latencies_ms: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0
    calls: int = 0
    leaked: int = 0

    def row(self, best):
        p50, p95 = np.percentile(self.latencies_ms, [50, 95])
        return f"{p50:8.1f} {p95:8.1f} {p50 / best:8.2f} {self.cpu_ms / self.calls:12.2f} {self.leaked:7d}"


async def one_group(replicas):
    """Milliseconds until enough have answered. The rest is cancelled and has ended when this returns."""
    began = time.perf_counter()
    enough = asyncio.Event()
    answers = []

    async def call(replica):
        answer = await replica.post()
        assert len(answer) > LEAST_ANSWER
        answers.append(answer)
        if len(answers) >= WAIT_FOR:
            enough.set()

    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(call(replica)) for replica in replicas]
        await enough.wait()
        took_ms = (time.perf_counter() - began) * 1000
        for running in calls:
            running.cancel()
    return took_ms


async def one_round(replicas, groups, at_once, measured):
    cpu = time.process_time()
    for _ in range(groups // at_once):
        measured.latencies_ms += await asyncio.gather(*(one_group(replicas) for _ in range(at_once)))
    measured.cpu_ms += (time.process_time() - cpu) * 1000
    measured.calls += groups * len(replicas)


def connections_to(urls):
    ports = {int(url.rsplit(":", 1)[1]) for url in urls}
    return sum(
        c.status == psutil.CONN_ESTABLISHED and c.raddr.port in ports
        for c in psutil.Process().net_connections("tcp")
    )


async def compare(urls, rounds, groups, at_once):
    """Measure every client in turns; then count the connections of cancelled calls that each still holds."""
    paths = [f"{url}/v2/models/{MODEL}/infer" for url in urls]
    clients = {name: [client(path) for path in paths] for name, client in CLIENTS.items()}
    results = defaultdict(Measured)
    for replicas in clients.values():
        await one_group(replicas)
    for _ in range(rounds):
        for name, replicas in clients.items():
            await one_round(replicas, groups, at_once, results[name])
    for name, replicas in clients.items():
        await asyncio.sleep(SETTLE_S)
        open_to_slow = connections_to(urls[FAST:])
        async with asyncio.timeout(PATIENCE_S):
            # A client that lost its slots to cancelled calls cannot do this.
            await asyncio.gather(*(replica.post() for replica in replicas))
        for replica in replicas:
            await replica.aclose()
        await asyncio.sleep(SETTLE_S)
        results[name].leaked = open_to_slow - connections_to(urls[FAST:])
    assert connections_to(urls) == 0
    return dict(results)


def table(title, results):
    best = min(np.median(measured.latencies_ms) for measured in results.values())
    print(f"\n{title}\n{'':18s}   p50 ms   p95 ms  of best  CPU ms/call  leaked")
    for name, measured in results.items():
        print(f"{name:18s} {measured.row(best)}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("at_once", [1, 8])
def test_upstream_clients(benchmark, at_once):
    """The client in use answers, leaves nothing open, and (when benchmarks are on) is the fastest or close to it."""
    rounds, groups = (1, at_once) if benchmark.disabled else (8, 40)
    with ScriptedServers([FAST_MS] * FAST + [SLOW_MS] * SLOW) as servers:
        results = benchmark.pedantic(
            lambda: uvloop.run(compare(servers.urls, rounds, groups, at_once)), rounds=1, iterations=1
        )
    table(f"{at_once} group(s) at once, first {WAIT_FOR} of {FAST + SLOW}", results)
    assert results[IN_USE].leaked == 0
    if not benchmark.disabled:
        medians = {name: np.median(measured.latencies_ms) for name, measured in results.items()}
        assert medians[IN_USE] <= 1.15 * min(medians.values())
