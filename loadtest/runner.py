"""The open loop: sends by the schedule, whatever the replies do."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loadtest.records import Outcome, Record
from loadtest.workload import PreparedRequest

_LEAD_S = 0.05
"""Between the call and the start of the schedule, so that a request due at once is not late already."""


class Target(Protocol):
    """Whatever is under test."""

    async def send(self, request: PreparedRequest) -> Outcome:
        """Send one request and wait for its outcome. Never raises; every failure is an outcome."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run.

    Attributes:
        records: one per request, in the order of the schedule.
        duration_s: from the start of the schedule to the last outcome.
        client_cpu: processor seconds that this process spent per second of the run.
        peak_outstanding: most requests that were unanswered at once.
    """

    records: tuple[Record, ...]
    duration_s: float
    client_cpu: float
    peak_outstanding: int


def ignore(_: Record) -> None:
    """Take no notice of a finished request."""


async def run_open_loop(
    target: Target,
    requests: Sequence[PreparedRequest],
    schedule: NDArray[np.float64],
    *,
    max_outstanding: int,
    on_done: Callable[[Record], None] = ignore,
) -> Run:
    """Send every request at its intended time and wait for all outcomes.

    Cancelling the call cancels every request in flight.

    Args:
        target: where to send.
        requests: what to send, n of them.
        schedule: shape (n,), intended send times in seconds from the start, ascending.
        max_outstanding: a request due while this many are unanswered is recorded as failed instead of sent.
        on_done: called with each record as soon as it is known.
    """
    loop = _OpenLoop(target, max_outstanding, on_done)
    with _no_collector_pauses():
        cpu_before = time.process_time()
        await loop.run(requests, schedule.tolist())
        cpu_s = time.process_time() - cpu_before
    records = tuple(sorted(loop.records, key=lambda record: record.index))
    duration_s = max((record.done_s for record in records), default=0.0)
    return Run(records, duration_s, cpu_s / duration_s if duration_s > 0 else 0.0, loop.peak_outstanding)


class _OpenLoop:
    """State of one run."""

    def __init__(self, target: Target, max_outstanding: int, on_done: Callable[[Record], None]) -> None:
        self.records: list[Record] = []
        self.peak_outstanding = 0
        self._target = target
        self._max_outstanding = max_outstanding
        self._on_done = on_done
        self._outstanding = 0
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock() + _LEAD_S

    async def run(self, requests: Sequence[PreparedRequest], schedule: Sequence[float]) -> None:
        async with asyncio.TaskGroup() as senders:
            for index, (intended_s, request) in enumerate(zip(schedule, requests, strict=True)):
                # Awaited even when late: replies must be read while the sender catches up.
                await asyncio.sleep(max(0.0, intended_s - self._now()))
                if self._outstanding >= self._max_outstanding:
                    self._refuse(index, intended_s, request)
                else:
                    self._outstanding += 1
                    self.peak_outstanding = max(self.peak_outstanding, self._outstanding)
                    senders.create_task(self._send(index, intended_s, request))

    async def _send(self, index: int, intended_s: float, request: PreparedRequest) -> None:
        sent_s = self._now()
        outcome = await self._target.send(request)
        self._outstanding -= 1
        self._finish(Record(index, intended_s, sent_s, self._now(), request.rows, outcome))

    def _refuse(self, index: int, intended_s: float, request: PreparedRequest) -> None:
        outcome = Outcome(error=f"not sent: {self._max_outstanding} requests were outstanding")
        self._finish(Record(index, intended_s, None, self._now(), request.rows, outcome))

    def _finish(self, record: Record) -> None:
        self.records.append(record)
        self._on_done(record)

    def _now(self) -> float:
        return self._clock() - self._start


@contextmanager
def _no_collector_pauses() -> Iterator[None]:
    """Take everything that exists out of the garbage collector's sight: passes over it would delay sends."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
