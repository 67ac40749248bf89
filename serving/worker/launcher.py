"""The frontend's end of a fork server: starts it, has it fork workers, hears what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

from serving.worker.messages import (
    Event,
    Exited,
    Forked,
    Kill,
    Listening,
    LoadFailed,
    PreloadFailed,
    Spawn,
    command_line,
    parse_event,
)
from serving.worker.settings import WorkerSettings

WORKER = "serving.worker.process"
"""The module that a worker runs. A name, not an import: the frontend must not load torch."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
EXIT_TIMEOUT_S = 2.0
"""How long a process gets to vanish after SIGKILL, or the fork server after its pipe was closed."""

_T = TypeVar("_T")

Outcome: TypeAlias = Listening | LoadFailed | Exited
"""How a worker's start can end."""


class WorkerProcess:
    """One worker process.

    Attributes:
        pid: its process number, once it has one.
    """

    def __init__(self, token: int, server: ForkServerProcess) -> None:
        loop = asyncio.get_running_loop()
        self.pid: int | None = None
        self._token = token
        self._server = server
        self._outcome: asyncio.Future[Outcome] = loop.create_future()
        self._exit: asyncio.Future[Exited] = loop.create_future()

    async def started(self) -> Outcome:
        """Wait until it takes calls or cannot."""
        return await asyncio.shield(self._outcome)

    async def exited(self) -> int:
        """Wait until it is gone; gives its exit code, negative for the signal that ended it."""
        return (await asyncio.shield(self._exit)).exitcode

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal, if it still lives."""
        self._server.send(Kill(self._token, number))

    def hear(self, event: Event) -> None:
        """Take in what was reported of it."""
        match event:
            case Forked(pid=pid):
                self.pid = pid
            case Listening() | LoadFailed():
                _settle(self._outcome, event)
            case Exited():
                _settle(self._outcome, event)
                _settle(self._exit, event)


class ForkServerProcess:
    """A running fork server. Its owner runs `relay` in a task for as long as the fork server lives.

    Args:
        process: the fork server, with pipes at its standard input and output.
        lifeline: writing end of the pipe that keeps the workers alive; closed with the rest.
    """

    def __init__(self, process: Process, lifeline: int) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self._tokens = count()
        self._living: dict[int, WorkerProcess] = {}
        self._ended = False

    @classmethod
    async def launch(cls, threads: int, source: str, program: str = WORKER) -> Self:
        """Start a fork server; it imports what the workers need while this returns.

        Args:
            threads: size of the numerical libraries' thread pools.
            source: the model that the workers will load.
            program: the module that a worker runs (see `serving.worker.forkserver.Program`).
        """
        lifeline_end, lifeline = os.pipe()
        arguments = (
            f"--program={program}",
            f"--source={source}",
            f"--lifeline={lifeline_end}",
            f"--parent={os.getpid()}",
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "serving.worker.forkserver", *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=(lifeline_end,),
                env=_environment(threads),
                # Ctrl-C reaches the terminal's whole group, but only the frontend may decide when to stop.
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(lifeline_end)
        return cls(process, lifeline)

    @property
    def ended(self) -> bool:
        """Whether it can fork no more."""
        return self._ended

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def spawn(self, settings: WorkerSettings) -> WorkerProcess:
        """Have a worker forked."""
        token = next(self._tokens)
        worker = WorkerProcess(token, self)
        self._living[token] = worker
        if self._ended:
            self._bury_all()
        else:
            self.send(Spawn(token, settings))
        return worker

    def send(self, command: Spawn | Kill) -> None:
        """Send one command; a fork server that has ended ignores it."""
        pipe = self._process.stdin
        if pipe is not None and not pipe.is_closing():
            pipe.write(command_line(command))

    async def relay(self) -> None:
        """Hear what the workers report until the fork server has ended."""
        pipe = self._process.stdout
        if pipe is None:
            raise RuntimeError("the fork server must be started with a pipe at its standard output")
        try:
            async for line in pipe:
                self._hear(line)
        finally:
            self._ended = True
            self._bury_all()

    async def stop(self, grace_s: float) -> None:
        """End every worker and the fork server, by asking, then by force. `relay` must be running.

        Args:
            grace_s: seconds that the workers get to finish their calls.
        """
        forked = any(worker.pid is not None for worker in self._living.values())
        try:
            if forked:
                await self._stop_workers(grace_s)
        finally:
            await self._end(wait_s=EXIT_TIMEOUT_S if forked else 0.0)

    async def _stop_workers(self, grace_s: float) -> None:
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, EXIT_TIMEOUT_S)):
            workers = tuple(self._living.values())
            for worker in workers:
                worker.kill(number)
                # A stopped process hears SIGTERM only when it goes on.
                worker.kill(signal.SIGCONT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    for worker in workers:
                        await worker.exited()

    async def _end(self, wait_s: float) -> None:
        """Hang up on the fork server; the kernel kills the workers that it leaves."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(wait_s):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _hear(self, line: bytes) -> None:
        event = parse_event(line)
        if isinstance(event, PreloadFailed):
            for token, worker in self._living.items():
                worker.hear(LoadFailed(token, event.message))
            return
        self._living[event.token].hear(event)
        if isinstance(event, Exited):
            del self._living[event.token]

    def _bury_all(self) -> None:
        """The kernel kills the workers of a dead fork server."""
        for token, worker in self._living.items():
            worker.hear(Exited(token, -signal.SIGKILL))
        self._living.clear()


def _environment(threads: int) -> Mapping[str, str]:
    here = str(Path.cwd())
    # The working directory comes last: a user's model may live there, and must not shadow our packages.
    path = os.pathsep.join([*(entry or here for entry in sys.path), here])
    return os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"PYTHONPATH": path}


def _settle(future: asyncio.Future[_T], result: _T) -> None:
    if not future.done():
        future.set_result(result)
