"""Everything that can be set, with its unit in its name. Unknown keys are errors."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from coding.letcc import LetccParams
from coding.registry import AnySchemeParams
from serving.config.faults import FaultSettings


class _Section(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServerSettings(_Section):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 picks a free one and prints it."""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Largest request body; a larger one gets 413 before it is buffered."""
    receive_timeout_s: float = Field(default=60.0, gt=0)
    """Longest time from the first byte of a request to its last; a slower client gets 408."""
    drain_delay_s: float = Field(default=0.0, ge=0)
    """After SIGTERM: seconds to go on accepting while readiness already says no (load balancers need some)."""
    shutdown_grace_s: float = Field(default=30.0, gt=0)
    """After SIGTERM: seconds that requests in flight get to finish."""


class ModelSettings(_Section):
    """The model that the replicas serve."""

    name: str = Field(default="lenet5", min_length=1)
    """Name in the URL: /v2/models/NAME/infer. Remote replicas must know it by the same name."""
    source: str = "builtin:lenet5-mnist"
    """builtin:NAME, timm:NAME, torchvision:NAME, torchscript:PATH or python:module:factory. Local replicas only."""


class _Replicas(_Section):
    straggler_policy: Literal["cancel", "drain"] = "cancel"
    """What happens to a call that nobody needs any more: close its connection, or let it finish unheard."""
    cancel_grace_ms: float = Field(default=20, ge=0)
    """With `cancel`: how long such a call may still finish by itself, which saves a new connection."""
    drain_timeout_ms: float = Field(default=5000, gt=0)
    """With `drain`: the longest that such a call may go on."""
    max_in_flight: int = Field(default=16, ge=1)
    """Calls a replica may have open; past that it is sent nothing, and the code absorbs its absence."""
    connect_timeout_ms: float = Field(default=1000, gt=0)
    """Longest wait for a connection to a replica."""
    hang_after_ms: float = Field(default=1000, gt=0)
    """A replica that was asked and has answered nothing for this long is probed, and ejected if that fails too."""
    probe_interval_ms: float = Field(default=500, gt=0)
    """How often an ejected replica is probed, on a connection of its own."""
    probe_timeout_ms: float = Field(default=400, gt=0)
    """Longest wait for a probe; below probe_interval_ms, so that probes never pile up."""
    max_ejected_share: float = Field(default=0.5, ge=0, le=1)
    """At most this share of the replicas is ejected at once; overload must not look like failure."""
    wrong_before_ejection: int = Field(default=3, ge=1, le=10)
    """With scheme.max_wrong: a replica is ejected when so many of its last 10 arrivals were found wrong."""
    wrong_ejection_s: float = Field(default=30.0, gt=0)
    """How long such a replica is sent nothing, whatever it answers to probes; each relapse doubles it."""


class LocalReplicas(_Replicas):
    """Worker processes on this machine."""

    kind: Literal["local"] = "local"
    count: int = Field(default=12, ge=1, le=256)
    """Number of worker processes."""
    concurrency: int = Field(default=1, ge=0)
    """Calls that a worker runs at once; the rest wait in it. 0 means unlimited."""
    threads: int = Field(default=1, ge=1, le=1024)
    """Torch threads of each worker."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for a worker to load its model."""
    restart_backoff_s: float = Field(default=0.2, gt=0)
    """Wait before a worker that died is started again; doubles with each quick death."""
    restart_backoff_max_s: float = Field(default=10.0, gt=0)
    """The longest such wait."""
    faults: FaultSettings = FaultSettings()
    """Seeded fault injection, for tests and load tests."""

    @model_validator(mode="after")
    def _disturbed_replicas_exist(self) -> Self:
        for number in self.faults.replicas or ():
            if not 0 <= number < self.count:
                raise ValueError(
                    f"faults.replicas must be numbers from 0 to {self.count - 1}, one less than count; got {number}"
                )
        return self


class HttpReplicas(_Replicas):
    """V2 servers that already run elsewhere."""

    kind: Literal["http"] = "http"
    urls: tuple[str, ...] = Field(min_length=1)
    """Base addresses, one per replica, such as http://10.0.0.7:8000. Each should be one process, not a balancer."""

    @field_validator("urls")
    @classmethod
    def _well_formed(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"every url must start with http:// or https://, got {url!r}")
        if len(set(urls)) < len(urls):
            raise ValueError("every url must be given once: two entries that are one server fail together")
        return tuple(url.rstrip("/") for url in urls)


class GroupingSettings(_Section):
    """How requests are put together."""

    window_ms: float = Field(default=10.0, ge=0)
    """Longest wait of a row for others to fill its group. 0 sends each request at once."""
    max_groups_per_call: int = Field(default=32, ge=1)
    """Groups that wait together share their upstream calls, up to this many; each adds a row to every call."""
    non_finite_rows: Literal["refuse", "uncoded"] = "refuse"
    """A row with NaN or infinity would spoil its whole group: refuse the request, or answer the row by itself."""
    outlier_factor: float = Field(default=8.0, gt=1)
    """A row whose largest value is this many times larger or smaller than is usual among the rows that it waits with
    is answered by itself: blended with them, it would drown them."""
    max_queued_rows: int = Field(default=1024, ge=1)
    """Rows admitted and not yet answered; past that a request gets 503 with Retry-After. Admit no more than can be
    answered within the deadline."""
    max_queued_bytes: int = Field(default=512 * 1024 * 1024, ge=1)
    """The same limit in bytes of input."""


class LogSettings(_Section):
    """The server's log, one line per event, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe events to log."""
    format: Literal["console", "json"] = "console"
    """For people, or for machines."""


class Settings(_Section):
    """The whole configuration."""

    server: ServerSettings = ServerSettings()
    model: ModelSettings = ModelSettings()
    replicas: Annotated[LocalReplicas | HttpReplicas, Field(discriminator="kind")] = LocalReplicas()
    scheme: Annotated[AnySchemeParams, Field(discriminator="kind")] = LetccParams()
    grouping: GroupingSettings = GroupingSettings()
    deadline_ms: float = Field(default=1000.0, gt=0)
    """End to end, from the arrival of a request to its answer; a request may ask for less or more in `timeout`."""
    deadline_reserve_ms: float = Field(default=25.0, ge=0)
    """Kept back from the deadline for decoding and sending, so that the answer is there in time."""
    default_answer: tuple[float, ...] | None = None
    """What a row gets that cannot be answered in time, or because too many replicas failed: the values of one row of
    the output, such as the shares of the classes. The reply says `obtained: default`. null answers 504 or 503."""
    log: LogSettings = LogSettings()

    @field_validator("default_answer")
    @classmethod
    def _finite(cls, answer: tuple[float, ...] | None) -> tuple[float, ...] | None:
        for value in answer or ():
            if not isfinite(value):
                raise ValueError(f"every value must be finite, got {value}")
        return answer
