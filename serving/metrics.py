"""Prometheus metrics: base units, one registry per server, buckets from 1 ms to 10 s."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from serving.grouping import FlushReason
from serving.health import State
from serving.observe import Stage
from serving.types import CallOutcome, Provenance

LATENCY_BUCKETS_S = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
COMPUTE_BUCKETS_S = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
STATES: tuple[State, ...] = ("starting", "healthy", "suspect", "ejected", "down")


class PrometheusObserver:
    """Counts what the pipeline reports; implements `serving.observe.Observer`.

    Args:
        replicas: the replicas' names, so that each has its series from the start.
    """

    def __init__(self, replicas: tuple[str, ...]) -> None:
        # The creation times that Prometheus's client adds double the page, and nobody asks for them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        new = self._registry
        self._requests = Counter(
            "unstraggle_requests", "Inference requests by outcome: ok or the error's class.", ["outcome"],
            registry=new,
        )  # fmt: skip
        self._latency = Histogram(
            "unstraggle_request_seconds", "End-to-end time of answered requests.", registry=new,
            buckets=LATENCY_BUCKETS_S,
        )  # fmt: skip
        self._rows = Counter(
            "unstraggle_rows",
            "Answered rows, by how each was obtained.",
            ["obtained", "degraded"],
            registry=new,
        )
        self._error = Histogram(
            "unstraggle_error_estimate", "Estimated distance of decoded answers from the model's own.",
            registry=new, buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
        )  # fmt: skip
        self._groups = Counter("unstraggle_groups", "Groups formed, by why.", ["reason"], registry=new)
        self._fill = Histogram(
            "unstraggle_group_fill_ratio", "Queries in a group over K.", registry=new,
            buckets=(0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0),
        )  # fmt: skip
        self._queue = Histogram(
            "unstraggle_queue_seconds", "Wait of a group's oldest query until the group was formed.",
            registry=new, buckets=LATENCY_BUCKETS_S,
        )  # fmt: skip
        self._stage = Histogram(
            "unstraggle_stage_seconds", "Computation on the event loop.", ["stage"], registry=new,
            buckets=COMPUTE_BUCKETS_S,
        )  # fmt: skip
        self._calls = Counter(
            "unstraggle_replica_calls", "Upstream calls, by replica and outcome.", ["replica", "outcome"],
            registry=new,
        )  # fmt: skip
        self._call_time = Histogram(
            "unstraggle_replica_call_seconds", "Time of upstream calls until answered, failed or cancelled.",
            ["replica", "outcome"], registry=new, buckets=LATENCY_BUCKETS_S,
        )  # fmt: skip
        self._skipped = Counter(
            "unstraggle_replica_skipped_tasks", "Tasks not sent: replica down, ejected or backlogged.",
            ["replica"], registry=new,
        )  # fmt: skip
        self._wrong = Counter(
            "unstraggle_replica_wrong_arrivals", "Arrivals found wrong and left out, by replica.", ["replica"],
            registry=new,
        )  # fmt: skip
        self._state = Gauge(
            "unstraggle_replica_state", "1 for the state that the replica is in.", ["replica", "state"],
            registry=new,
        )  # fmt: skip
        # Looking series up by their labels is the dearest part of counting, and this happens for every call.
        self._call_series = cache(
            lambda replica, outcome: (
                self._calls.labels(replica, outcome),
                self._call_time.labels(replica, outcome),
            )
        )
        self._row_series = cache(
            lambda obtained, degraded: self._rows.labels(obtained, str(degraded).lower())
        )
        self._pending = Gauge("unstraggle_pending_rows", "Rows whose callers wait.", registry=new)
        for replica in replicas:
            self._skipped.labels(replica)
            self._wrong.labels(replica)
            self.replica_state(replica, "starting")

    def watch_pending(self, count: Callable[[], int]) -> None:
        """Read the number of waiting rows from `count` at every scrape."""
        self._pending.set_function(count)

    def render(self) -> bytes:
        """The text exposition of everything so far."""
        return generate_latest(self._registry)

    def request_done(self, outcome: str, seconds: float) -> None:
        """A request ended: "ok", or the class of its error."""
        self._requests.labels(outcome).inc()
        if outcome == "ok":
            self._latency.observe(seconds)

    def group_formed(self, rows: int, size: int, reason: FlushReason, waited_s: float) -> None:
        """Count the group, its fill and its wait."""
        self._groups.labels(reason).inc()
        self._fill.observe(rows / size)
        self._queue.observe(waited_s)

    def stage_done(self, stage: Stage, seconds: float) -> None:
        """Time encoding or decoding."""
        self._stage.labels(stage).observe(seconds)

    def call_done(self, replica: str, outcome: CallOutcome, seconds: float) -> None:
        """Count and time an upstream call."""
        count, time = self._call_series(replica, outcome)
        count.inc()
        time.observe(seconds)

    def task_skipped(self, replica: str) -> None:
        """Count an erasure."""
        self._skipped.labels(replica).inc()

    def row_answered(self, provenance: Provenance) -> None:
        """Count a row by how it was obtained."""
        self._row_series(provenance.obtained, provenance.degraded).inc()
        if provenance.obtained == "decoded":
            self._error.observe(provenance.error_estimate)

    def arrival_wrong(self, replica: str) -> None:
        """Count a wrong arrival."""
        self._wrong.labels(replica).inc()

    def replica_state(self, replica: str, state: State) -> None:
        """Set the replica's state."""
        for other in STATES:
            self._state.labels(replica, other).set(other == state)
