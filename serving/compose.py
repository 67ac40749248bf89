"""The composition root: the only file that picks concrete classes and connects them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import structlog

from coding.copies import HedgedParams
from coding.lagrange import LagrangeParams
from coding.layered import LayeredParams
from coding.ordering import nearest_order
from coding.output_domain import OutputDomain
from serving.batch import Stages
from serving.config.schema import HttpReplicas, LocalReplicas, Settings
from serving.dispatch import Dispatcher
from serving.errors import ConfigError, ServingError, TransportError
from serving.grouping import GroupFormer, keep_order
from serving.hedging import Hedging
from serving.listen import KEEP_ALIVE_S
from serving.metrics import PrometheusObserver
from serving.model_checks import random_rows, require_finite, require_polynomial
from serving.observe import Observer
from serving.pipeline import Pipeline
from serving.replicas import ReplicaSet
from serving.service import CodedService, check_servable, default_output
from serving.supervisor import Supervisor
from serving.transport.http_v2 import HttpV2Transport
from serving.types import ModelMetadata

_log = structlog.get_logger(__name__)

WORKER_KEEP_ALIVE_S = KEEP_ALIVE_S - 15.0
"""Our workers keep idle connections a little longer than this."""
REMOTE_KEEP_ALIVE_S = 4.0
"""Remote servers may close idle connections after 5 s, as uvicorn does by default."""
PATIENCE_S = 5.0
"""How often a start-up that takes longer than this says what it waits for."""
RETRY_S = 0.1
"""Wait before a step of the start-up is tried again."""


class Engine:
    """Replicas, pipeline and service of one model. Made inside a running event loop.

    Attributes:
        service: what the HTTP edge serves; it answers NotReady until the replicas have warmed up.
        metrics: everything counted so far.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        names = replica_names(settings)
        check_counts(settings, len(names))
        self.metrics = PrometheusObserver(names)
        self.replicas = ReplicaSet(names, settings.replicas, self._loop.time, self.metrics)
        self.service = CodedService(settings, self.replicas, self.metrics)
        self._supervisor: Supervisor | None = None

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start the replicas, warm up, call `on_ready`, and serve until cancelled.

        Raises:
            ConfigError: the replicas cannot start, or their model cannot be served.
        """
        # The nesting is the order of ending: the pipeline fails what still waits, the workers stop, and only then
        # are the connections closed.
        async with asyncio.TaskGroup() as outer:
            watching = outer.create_task(self.replicas.run())
            waiting = outer.create_task(self._say_what_is_missing())
            async with self._reachable():
                metadata = await self._first_metadata()
                check_servable(metadata, self._settings)
                pipeline = build_pipeline(self._settings, self.replicas, metadata, self.metrics)
                self.metrics.watch_pending(lambda: pipeline.pending)
                async with asyncio.TaskGroup() as inner:
                    inner.create_task(pipeline.run())
                    await self._check_model(metadata)
                    await self._warm_up(pipeline, metadata)
                    self.service.open(metadata, pipeline)
                    waiting.cancel()
                    on_ready()
                    await asyncio.Event().wait()
            waiting.cancel()
            watching.cancel()

    async def _say_what_is_missing(self) -> None:
        while True:
            await asyncio.sleep(PATIENCE_S)
            missing = [name for name, state in self.replicas.states.items() if state != "healthy"]
            _log.warning(
                "waiting_for_replicas", up=self.replicas.healthy, of=len(self.replicas), missing=missing
            )

    @asynccontextmanager
    async def _reachable(self) -> AsyncIterator[None]:
        """While open, replicas come and go as they live and die."""
        settings = self._settings.replicas
        if isinstance(settings, HttpReplicas):
            for number, url in enumerate(settings.urls):
                self.replicas.attach(number, self._transport(url))
            yield
            return
        async with Supervisor(
            settings, self._settings.model, self, log=self._settings.log
        ) as self._supervisor:
            yield

    def describe_replicas(self) -> list[dict[str, str | int | None]]:
        """Name, state, open calls and process number (None for a remote or dead one) of every replica."""
        pids = self._supervisor.pids if self._supervisor is not None else {}
        in_flight = self.replicas.in_flight
        return [
            {"name": name, "state": state, "in_flight": in_flight[name], "pid": pids.get(number)}
            for number, (name, state) in enumerate(self.replicas.states.items())
        ]

    def started(self, number: int, base_url: str) -> None:
        """A local worker listens; called by the supervisor."""
        self.replicas.attach(number, self._transport(base_url, keep_alive_s=WORKER_KEEP_ALIVE_S))

    def died(self, number: int, exitcode: int | None, reason: str) -> None:
        """A local worker is gone; called by the supervisor."""
        self.replicas.detach(number, f"{reason} (exit code {exitcode})")

    def _transport(self, url: str, keep_alive_s: float = REMOTE_KEEP_ALIVE_S) -> HttpV2Transport:
        settings = self._settings.replicas
        return HttpV2Transport(
            url,
            self._settings.model.name,
            connect_timeout_s=settings.connect_timeout_ms / 1000,
            probe_timeout_s=settings.probe_timeout_ms / 1000,
            keep_alive_s=keep_alive_s,
        )

    async def _first_metadata(self) -> ModelMetadata:
        """What the first replica that serves says of the model."""
        while True:
            await self.replicas.until_serving(1)
            transport = self.replicas.any_transport()
            try:
                if transport is not None:
                    return await transport.metadata()
            except TransportError as error:
                _log.warning("metadata_failed", error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _check_model(self, metadata: ModelMetadata) -> None:
        """Raises ConfigError where the model's answers are not what the configuration needs."""
        scheme = self._settings.scheme
        while True:
            await self.replicas.until_serving(1)
            replica = self.replicas.any_transport()
            try:
                if replica is not None:
                    await require_finite(metadata, replica)
                    if isinstance(scheme, LagrangeParams):
                        await require_polynomial(scheme, metadata, replica)
                    return
            except TransportError as error:
                _log.warning("model_not_checked", error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _warm_up(self, pipeline: Pipeline, metadata: ModelMetadata) -> None:
        """One full group through the real path, once enough replicas serve that none need be missing."""
        await self.replicas.until_serving(pipeline.enough)
        rows = list(random_rows(metadata, self._settings.scheme.k, "uniform"))
        while True:
            try:
                await pipeline.answer(rows, self._loop.time() + self._settings.deadline_ms / 1000)
            except ServingError as error:
                _log.warning("warm_up_failed", error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return


def build_pipeline(
    settings: Settings, replicas: ReplicaSet, metadata: ModelMetadata, observer: Observer
) -> Pipeline:
    """The pipeline of a configuration, over replicas that serve this model. Call it inside a running event loop."""
    policy = settings.replicas
    drains = policy.straggler_policy == "drain"
    grace_ms = policy.drain_timeout_ms if drains else policy.cancel_grace_ms
    scheme = settings.scheme
    nearest = getattr(scheme, "order", "none") == "nearest"
    hedging = (
        Hedging(scheme.delay_ms / 1000, scheme.percentile, scheme.budget)
        if isinstance(scheme, HedgedParams | LayeredParams)
        else None
    )
    clock = asyncio.get_running_loop().time
    return Pipeline(
        scheme,
        GroupFormer(scheme.k, settings.grouping, nearest_order if nearest else keep_order),
        Stages(
            replicas=replicas,
            dispatcher=Dispatcher(replicas, grace_ms / 1000, clock, hedging),
            domain=OutputDomain(scheme.output_domain),
            metadata=metadata,
            observer=observer,
            reserve_s=settings.deadline_reserve_ms / 1000,
            objective_s=scheme.objective_ms / 1000 if isinstance(scheme, LayeredParams) else None,
        ),
        default_output(metadata, settings),
    )


def replica_names(settings: Settings) -> tuple[str, ...]:
    """A name for each replica: replica-0 and so on for local ones, host:port for remote ones."""
    replicas = settings.replicas
    if isinstance(replicas, LocalReplicas):
        return tuple(f"replica-{number}" for number in range(replicas.count))
    return tuple(urlsplit(url).netloc + urlsplit(url).path for url in replicas.urls)


def check_counts(settings: Settings, replicas: int) -> None:
    """Every task of a group needs a replica of its own.

    Raises:
        ConfigError: there are fewer replicas than tasks.
    """
    every = settings.scheme.build(settings.scheme.k).tasks
    # Copies with a delay go to whoever is free, but to nobody twice.
    copies = Counter(slot for task in every for slot in task.exact)
    tasks = max(sum(task.delay_s == 0 for task in every), *copies.values(), 0)
    if tasks > replicas:
        what = "copies" if hasattr(settings.scheme, "copies") else "n"
        key = (
            "replicas.count"
            if isinstance(settings.replicas, LocalReplicas)
            else "the number of replicas.urls"
        )
        raise ConfigError(
            f"scheme.{what} must be at most {key} ({replicas}), got {tasks}: each task of a group goes to a "
            "replica of its own"
        )
