"""The same load against one server per scheme, and against a server that runs already."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loadtest.arrivals import draw_schedule
from loadtest.config import NO_SERVICE_TIME, UNCODED, LoadSettings, SchemeChoice, StackSettings
from loadtest.errors import TargetError
from loadtest.metrics import ReplicaCost, read_settled_cost
from loadtest.records import Record
from loadtest.runner import Run, ignore, run_open_loop
from loadtest.stack import SERVE_COMMAND, RunningStack, running_stack
from loadtest.stats import Summary, summarise
from loadtest.target import HttpTarget, connect
from loadtest.workload import check_input, draw_rows, prepare_requests
from models.datasets import EvaluationSlice

ProgressBar: TypeAlias = Callable[[str], AbstractContextManager[Callable[[Record], None]]]
"""Opens a progress bar with this label; it is told of every finished request."""

_CLIENT_GRACE_S = 5.0
"""The client waits this much longer than the server's own deadline before it gives up."""

_BASE_PASS_ROWS = 100
"""Rows per request when the uncoded model's answers are asked for outside any measurement."""

_BASE_PASS_DEADLINE_MS = 10_000.0

_WARMUP_SEED_OFFSET = 1_000_003
"""Warm-up requests come from a seed of their own, so that their number does not change what is measured."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One scheme's run.

    Attributes:
        label: the scheme as the user named it.
        run: the records.
        summary: the figures.
        cost: what the replicas spent; None when the server does not publish it.
    """

    label: str
    run: Run
    summary: Summary
    cost: ReplicaCost | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every scheme's run, and the uncoded model's accuracy on the same rows."""

    measurements: tuple[Measurement, ...]
    base_accuracy: float | None


async def compare_schemes(
    schemes: Sequence[SchemeChoice],
    load: LoadSettings,
    stack: StackSettings,
    digits: EvaluationSlice,
    *,
    log_directory: Path,
    progress: ProgressBar,
    serve_command: Sequence[str] = SERVE_COMMAND,
) -> Comparison:
    """Measure every scheme under the same schedule, the same rows and the same straggler seed.

    One server after the other, never two at once: they would disturb each other.

    Args:
        schemes: what to compare.
        load: the load.
        stack: the server; only its scheme changes.
        digits: what to ask.
        log_directory: where the servers' logs go.
        progress: shows how far a run is.
        serve_command: starts a server; `--set` overrides are added to it.

    Raises:
        StackError: a server did not start, or died.
        TargetError: the served model does not take these digits.
    """
    timeout_s = stack.deadline_ms / 1000.0 + _CLIENT_GRACE_S
    measurements: list[Measurement] = []
    for scheme in schemes:
        async with (
            _serving(
                serve_command, scheme.file_name, stack.overrides(scheme, load.seed), log_directory
            ) as server,
            connect(server.url, server.model, timeout_s=timeout_s) as target,
        ):
            work = measure(target, scheme.label, load, digits, progress=progress)
            measurements.append(await server.process.while_alive(work))
    base = _accuracy_of_uncoded_run(schemes, measurements)
    if base is None:
        base = await _uncoded_accuracy(load, stack, digits, serve_command, log_directory)
    return Comparison(tuple(measurements), base)


async def measure(
    target: HttpTarget, label: str, load: LoadSettings, digits: EvaluationSlice, *, progress: ProgressBar
) -> Measurement:
    """Warm up and run the load against one target.

    Args:
        target: the server under test.
        label: names the run in every table.
        load: the load.
        digits: what to ask.
        progress: shows how far the run is.

    Raises:
        TargetError: the served model does not take these digits.
    """
    spec = await target.input_spec()
    check_input(spec, digits.images)
    if load.warmup:
        warmup = replace(load, requests=load.warmup, seed=load.seed + _WARMUP_SEED_OFFSET)
        await _run(target, spec.name, warmup, digits)
    before = await read_settled_cost(target.session, target.url)
    with progress(label) as on_done:
        run = await _run(target, spec.name, load, digits, on_done)
    after = None if before is None else await read_settled_cost(target.session, target.url)
    cost = after.since(before) if before is not None and after is not None else None
    return Measurement(label, run, summarise(run.records), cost)


async def _run(
    target: HttpTarget,
    input_name: str,
    load: LoadSettings,
    digits: EvaluationSlice,
    on_done: Callable[[Record], None] = ignore,
) -> Run:
    requests = prepare_requests(input_name, digits, _rows(load, digits))
    schedule = draw_schedule(load.arrivals, rate=load.rate, requests=load.requests, seed=load.seed)
    return await run_open_loop(
        target, requests, schedule, max_outstanding=load.max_outstanding, on_done=on_done
    )


def _rows(load: LoadSettings, digits: EvaluationSlice) -> NDArray[np.int64]:
    return draw_rows(
        digits.labels.size, requests=load.requests, rows_per_request=load.rows_per_request, seed=load.seed
    )


def _serving(
    command: Sequence[str], name: str, overrides: Sequence[str], log_directory: Path
) -> AbstractAsyncContextManager[RunningStack]:
    options = (word for override in overrides for word in ("--set", override))
    return running_stack((*command, *options), name=name, log_directory=log_directory)


def _accuracy_of_uncoded_run(
    schemes: Sequence[SchemeChoice], measurements: Sequence[Measurement]
) -> float | None:
    """The accuracy of a `none` run, if there was one and it answered every row."""
    for scheme, measurement in zip(schemes, measurements, strict=True):
        if scheme.kind == UNCODED.kind and measurement.summary.errors == 0:
            return measurement.summary.accuracy
    return None


async def _uncoded_accuracy(
    load: LoadSettings,
    stack: StackSettings,
    digits: EvaluationSlice,
    serve_command: Sequence[str],
    log_directory: Path,
) -> float:
    """Ask an undisturbed uncoded server for every distinct row once, and weigh each by how often it is used.

    Raises:
        TargetError: it did not answer every row.
    """
    distinct, uses = np.unique(_rows(load, digits), return_counts=True)
    quiet = replace(stack, service_time=NO_SERVICE_TIME, deadline_ms=_BASE_PASS_DEADLINE_MS)
    timeout_s = _BASE_PASS_DEADLINE_MS / 1000.0 + _CLIENT_GRACE_S
    correct = 0
    async with (
        _serving(serve_command, "base", quiet.overrides(UNCODED, load.seed), log_directory) as server,
        connect(server.url, server.model, timeout_s=timeout_s) as target,
    ):
        for times in np.unique(uses):
            correct += int(times) * await _count_correct(target, digits, distinct[uses == times])
    return correct / int(uses.sum())


async def _count_correct(target: HttpTarget, digits: EvaluationSlice, chosen: NDArray[np.int64]) -> int:
    input_name = (await target.input_spec()).name
    chunks = np.array_split(chosen, math.ceil(chosen.size / _BASE_PASS_ROWS))
    correct = 0
    for request in prepare_requests(input_name, digits, chunks):
        outcome = await target.send(request)
        if outcome.error is not None:
            raise TargetError(f"the uncoded model did not answer: {outcome.error}")
        correct += outcome.correct
    return correct
