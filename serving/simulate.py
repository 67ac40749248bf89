"""What a configuration would do to the latency: the server's own grouping, dispatching and collecting, simulated.

Nothing of a policy is written twice: the pipeline, the collector, the scheme, the hedging budget and the placement are
those that serve. Only the replicas are replaced, by queues that take time, and the clock, by one that jumps.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import structlog
from numpy.typing import NDArray

from serving.compose import build_pipeline, replica_names
from serving.config.schema import Settings
from serving.errors import ServingError
from serving.metrics import PrometheusObserver
from serving.replicas import ReplicaSet
from serving.types import (
    Answer,
    InferRequest,
    InferResponse,
    ModelMetadata,
    NamedTensor,
    Obtained,
    TensorSpec,
)
from serving.virtual_time import run_in_virtual_time

ServiceTime = Callable[[int, int], float]
"""Seconds that call number j (from 0) takes at replica r, given (r, j)."""

_WIDTH = 2
_METADATA_SHAPE = (-1, _WIDTH)
_ARRIVALS, _ROWS = 1, 2
"""Streams of random numbers apart from each other."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that come at random times, as those of many independent users do.

    Attributes:
        rate: requests per second.
        requests: how many.
        rows: rows in each.
        seed: of the times.
    """

    rate: float
    requests: int
    rows: int
    seed: int = 0

    def times(self) -> NDArray[np.float64]:
        """When each request comes, seconds, ascending."""
        gaps = np.random.default_rng([self.seed, _ARRIVALS]).exponential(1.0 / self.rate, self.requests)
        times: NDArray[np.float64] = np.cumsum(gaps)
        return times


@dataclass(slots=True)
class Simulated:
    """What came of it.

    Attributes:
        latencies_s: shape (requests,), seconds; infinite where a request ended in an error.
        rows: rows by how they were obtained.
        decoded_from: rows that were decoded, by the number of arrivals behind them.
        sent: rows that replicas were sent, as a multiple of the rows that were asked.
    """

    latencies_s: NDArray[np.float64]
    rows: Counter[Obtained] = field(default_factory=Counter)
    decoded_from: Counter[int] = field(default_factory=Counter)
    sent: float = 0.0

    def percentile_s(self, percentile: float) -> float:
        """A percentile of the latencies; errors are later than everything."""
        ascending = np.sort(self.latencies_s)
        return float(ascending[min(ascending.size - 1, math.ceil(percentile / 100 * ascending.size) - 1)])

    @property
    def errors(self) -> int:
        """Requests that ended in an error."""
        return int(np.isinf(self.latencies_s).sum())


def simulate(
    settings: Settings,
    load: Load,
    service_time: ServiceTime,
    advance: Callable[[int], None] = lambda _: None,
) -> Simulated:
    """Run a load against a configuration in virtual time.

    Args:
        settings: the configuration; its replicas are local ones.
        load: what is asked.
        service_time: how long each call keeps a replica busy.
        advance: told of every request that is done.
    """
    # What the server would log is not about the machine that simulates it.
    with structlog.testing.capture_logs():
        return run_in_virtual_time(_simulate(settings, load, service_time, advance))


class _Replica:
    """A queue in front of something that takes time. Implements `serving.transport.base.Transport`."""

    def __init__(
        self, number: int, concurrency: int, service_time: ServiceTime, metadata: ModelMetadata
    ) -> None:
        self._number = number
        self._service_time = service_time
        self._metadata = metadata
        self._slots = asyncio.Semaphore(concurrency or 1_000_000)
        self._calls = 0
        self.rows = 0

    async def infer(self, request: InferRequest) -> InferResponse:
        call, self._calls = self._calls, self._calls + 1
        rows = request.inputs[0].data
        self.rows += len(rows)
        async with self._slots:
            await asyncio.sleep(self._service_time(self._number, call))
        return InferResponse("simulated", (NamedTensor("output", "FP32", rows),))

    async def metadata(self) -> ModelMetadata:
        return self._metadata

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        """There is nothing to close."""


async def _simulate(
    settings: Settings, load: Load, service_time: ServiceTime, advance: Callable[[int], None]
) -> Simulated:
    loop = asyncio.get_running_loop()
    tensor = TensorSpec("input", "FP32", _METADATA_SHAPE)
    metadata = ModelMetadata(
        "simulated", ("1",), "simulation", (tensor,), (TensorSpec("output", "FP32", _METADATA_SHAPE),)
    )
    names = replica_names(settings)
    metrics = PrometheusObserver(names)
    replicas = ReplicaSet(names, settings.replicas, loop.time, metrics)
    concurrency = getattr(settings.replicas, "concurrency", 1)
    queues = [_Replica(number, concurrency, service_time, metadata) for number in range(len(names))]
    for number, queue in enumerate(queues):
        replicas.attach(number, queue)
    pipeline = build_pipeline(settings, replicas, metadata, metrics)
    running = [asyncio.create_task(replicas.run()), asyncio.create_task(pipeline.run())]
    await replicas.until_serving(len(names))
    outcome = Simulated(np.full(load.requests, math.inf))
    random = np.random.default_rng([load.seed, _ROWS])
    deadline_s = settings.deadline_ms / 1000

    async def ask(number: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        # Rows of one size: others would be kept apart.
        rows = list((1.0 + random.random((load.rows, _WIDTH))).astype(np.float32))
        started = loop.time()
        try:
            answers = await pipeline.answer(rows, started + deadline_s)
        except ServingError:
            answers = []
        else:
            outcome.latencies_s[number] = loop.time() - started
        _count(outcome, answers)
        advance(1)

    async with asyncio.TaskGroup() as asking:
        for number, time in enumerate(load.times()):
            asking.create_task(ask(number, float(time)))
    for task in reversed(running):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    outcome.sent = sum(queue.rows for queue in queues) / (load.requests * load.rows)
    return outcome


def _count(outcome: Simulated, answers: list[Answer]) -> None:
    for answer in answers:
        how = answer.provenance
        outcome.rows[how.obtained] += 1
        if how.obtained == "decoded":
            outcome.decoded_from[how.replicas_used] += 1
