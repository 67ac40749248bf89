"""Starts the worker processes, watches them, starts the dead ones again, and in the end stops them all."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import structlog

from serving.config.schema import LocalReplicas, LogSettings, ModelSettings
from serving.errors import ConfigError
from serving.worker.launcher import WORKER, ForkServerProcess, WorkerProcess
from serving.worker.messages import Listening, LoadFailed
from serving.worker.settings import WorkerSettings, settings_of_workers

_log = structlog.get_logger(__name__)

STOP_GRACE_S = 5.0
"""What workers get to finish their calls when all is stopped."""


class SupervisorObserver(Protocol):
    """Told of workers coming and going; both methods are quick and never raise."""

    def started(self, number: int, base_url: str) -> None:
        """Worker `number` has loaded its model and takes calls at this address."""

    def died(self, number: int, exitcode: int | None, reason: str) -> None:
        """Worker `number` is gone, or failed to come back.

        A negative code is the signal that ended it; None means that no process could be made.
        """


class Backoff:
    """How long to wait before a worker is started again: twice as long after each quick death, up to a limit.

    Args:
        first_s: the shortest wait, seconds.
        longest_s: the longest wait, seconds. A life of at least this length was not a quick death.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def wait_after(self, life_s: float) -> float:
        """Seconds to wait after a life of this many seconds."""
        if life_s >= self._longest_s:
            self._next_s = self._first_s
        wait_s = min(self._next_s, self._longest_s)
        self._next_s = 2 * wait_s
        return wait_s


class Supervisor:
    """Keeps one process per worker alive.

    A worker's first start must succeed; after that it is started again whenever it dies. One task owns all
    others and does the stopping too, so that a caller who is cancelled leaves no process behind.

    Args:
        settings: how many workers, and when to start them again.
        model: what they serve.
        observer: told of every start and death.
        log: how the workers log.
        program: the module that a worker process runs.
    """

    def __init__(
        self,
        settings: LocalReplicas,
        model: ModelSettings,
        observer: SupervisorObserver,
        *,
        log: LogSettings | None = None,
        program: str = WORKER,
    ) -> None:
        self._settings = settings
        self._workers = settings_of_workers(model, settings, log or LogSettings())
        self._observer = observer
        self._model = model
        self._program = program
        self._owner: asyncio.Task[None] | None = None
        self._up: dict[int, WorkerProcess] = {}
        self._started: set[int] = set()
        self._relays = asyncio.TaskGroup()
        self._fork_server: ForkServerProcess | None = None
        self._launching = asyncio.Lock()
        self._stopping = False

    @property
    def pids(self) -> dict[int, int]:
        """Process numbers of the workers that are up, by worker number."""
        return {number: process.pid for number, process in self._up.items() if process.pid is not None}

    @property
    def fork_server_pid(self) -> int | None:
        """Process number of the fork server, while there is one."""
        server = self._fork_server
        return None if server is None or server.ended else server.pid

    async def start(self) -> None:
        """Start every worker and wait until all take calls. Failing or cancelled, it leaves nothing behind.

        Raises:
            ConfigError: a worker could not load its model; the message says why.
        """
        all_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._run(all_up), name="supervisor")
        try:
            await all_up
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Stop every worker and wait until all are gone. Idempotent.

        Workers get SIGTERM, then a while to finish their calls, then SIGKILL.
        """
        if self._owner is None:
            return
        if not self._stopping:
            self._stopping = True
            self._owner.cancel()
        await asyncio.wait({self._owner})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, all_up: asyncio.Future[None]) -> None:
        try:
            async with self._relays:
                try:
                    async with asyncio.TaskGroup() as keepers:
                        for worker in self._workers:
                            keepers.create_task(self._keep(worker, all_up), name=f"keep-{worker.name}")
                finally:
                    self._stopping = True
                    if self._fork_server is not None:
                        await self._fork_server.stop(STOP_GRACE_S)
        except Exception as error:
            _log.exception("supervisor_failed")
            if all_up.done():
                raise
            all_up.set_exception(error)
        finally:
            all_up.cancel()

    async def _keep(self, worker: WorkerSettings, all_up: asyncio.Future[None]) -> None:
        """Run one worker for ever; its first start must succeed."""
        backoff = Backoff(self._settings.restart_backoff_s, self._settings.restart_backoff_max_s)
        while True:
            life = await self._live(worker, all_up)
            if worker.number not in self._started:
                if not all_up.done():
                    all_up.set_exception(
                        ConfigError(f"{worker.name} cannot serve {worker.model!r}: {life.end}")
                    )
                return
            _log.warning("worker_died", worker=worker.name, exitcode=life.exitcode, reason=life.end)
            self._observer.died(worker.number, life.exitcode, life.end)
            await asyncio.sleep(backoff.wait_after(life.seconds))

    async def _live(self, worker: WorkerSettings, all_up: asyncio.Future[None]) -> _Life:
        """One process of a worker, from its start to its end."""
        try:
            process = (await self._running_fork_server()).spawn(worker)
        except OSError as error:
            return _Life(0.0, None, f"cannot be started: {error}")
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                outcome = await process.started()
        except TimeoutError:
            process.kill(signal.SIGKILL)
            late = f"not ready within start_timeout_s = {self._settings.start_timeout_s:g}"
            return _Life(0.0, await process.exited(), late)
        if not isinstance(outcome, Listening):
            exitcode = await process.exited()
            end = outcome.message if isinstance(outcome, LoadFailed) else _describe(exitcode)
            return _Life(0.0, exitcode, end)
        born = asyncio.get_running_loop().time()
        self._up[worker.number] = process
        self._started.add(worker.number)
        _log.info("worker_started", worker=worker.name, pid=process.pid, port=outcome.port)
        self._observer.started(worker.number, f"http://{worker.host}:{outcome.port}")
        if len(self._started) == len(self._workers) and not all_up.done():
            all_up.set_result(None)
        try:
            exitcode = await process.exited()
        finally:
            del self._up[worker.number]
        return _Life(asyncio.get_running_loop().time() - born, exitcode, _describe(exitcode))

    async def _running_fork_server(self) -> ForkServerProcess:
        async with self._launching:
            if self._fork_server is None or self._fork_server.ended:
                if self._fork_server is not None:
                    await self._fork_server.stop(0.0)
                self._fork_server = await ForkServerProcess.launch(
                    self._settings.threads, self._model.source, self._program
                )
                self._relays.create_task(self._fork_server.relay(), name="fork-server")
            return self._fork_server


@dataclass(frozen=True, slots=True)
class _Life:
    """How long a worker process took calls, its exit code, and what ended it."""

    seconds: float
    exitcode: int | None
    end: str


def _describe(exitcode: int) -> str:
    if exitcode < 0:
        return f"ended by signal {-exitcode} ({signal.strsignal(-exitcode)})"
    return f"exited with code {exitcode}"
