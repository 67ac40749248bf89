"""One server under test as a subprocess: started, waited for, and stopped on every path out."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from loadtest.errors import StackError

_Result = TypeVar("_Result")

SERVE_COMMAND = (sys.executable, "-m", "unstraggle", "serve")
"""Starts this project's own server with this interpreter."""

_ANNOUNCEMENT = re.compile(r"^unstraggle: serving (?P<model>\S+) at (?P<url>https?://\S+)\n", re.MULTILINE)
_POLL_S = 0.05
_WATCH_S = 0.5
_PROBE_TIMEOUT_S = 2.0
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A server that is ready.

    Attributes:
        url: its base address, without a slash at the end.
        model: the name of the model that it serves.
        process: the process behind it.
    """

    url: str
    model: str
    process: ServerProcess


class ServerProcess:
    """A server, its process group, and the two files that its output goes to.

    Args:
        command: what to execute.
        name: names the server in messages, and its files NAME.out and NAME.log.
        log_directory: where those files go; it is made where it is missing.

    Raises:
        StackError: the command cannot be executed.
    """

    def __init__(self, command: Sequence[str], *, name: str, log_directory: Path) -> None:
        log_directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._output = log_directory / f"{name}.out"
        self._log = log_directory / f"{name}.log"
        # Files, not pipes: nobody has to keep reading for the server to keep running. A group of its own:
        # Ctrl-C reaches only the client, which stops the server in order, and a kill reaches the workers too.
        with self._output.open("wb") as output, self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 (the caller's own command)
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,
                )
            except OSError as error:
                raise StackError(f"the server {name} did not start: {error}") from error

    @property
    def pid(self) -> int:
        """The process, and its group, by number."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def announcement(self) -> re.Match[str] | None:
        """The line in which the server says what it serves and where, once it has printed it."""
        return _ANNOUNCEMENT.search(self._output.read_text(encoding="utf-8", errors="replace"))

    async def while_alive(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do the work, and give it up as soon as the server exits.

        Raises:
            StackError: it exited; the message ends with the last lines of its standard error.
        """
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(work)
                while not task.done():
                    self.check_alive("during its run")
                    await asyncio.wait({task}, timeout=_WATCH_S)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return task.result()

    def check_alive(self, moment: str) -> None:
        """Raise if the server has exited.

        Raises:
            StackError: it has; the message ends with the last lines of its standard error.
        """
        if self.exit_status is not None:
            raise StackError(self._explain(f"exited with status {self.exit_status} {moment}"))

    def not_ready(self, timeout_s: float) -> StackError:
        """The error for a server that runs but did not get ready."""
        return StackError(self._explain(f"was not ready within {timeout_s:g} s"))

    async def stop(self, grace_s: float) -> None:
        """Ask the server to stop, wait for it, and kill whatever is left of its process group.

        Nothing is left running when this returns or raises, cancelled or not.

        Args:
            grace_s: how long the server may take, seconds.
        """
        try:
            self._process.terminate()
            for _ in range(round(grace_s / _POLL_S)):
                if self.exit_status is not None:
                    break
                await asyncio.sleep(_POLL_S)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _explain(self, what: str) -> str:
        tail = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        said = "\n".join(["; its last words were:", *tail]) if tail else " and said nothing"
        return f"the server {self.name} {what} (log: {self._log}){said}"


@asynccontextmanager
async def running_stack(
    command: Sequence[str],
    *,
    name: str,
    log_directory: Path,
    start_timeout_s: float = 120.0,
    stop_grace_s: float = 15.0,
) -> AsyncIterator[RunningStack]:
    """Start a server, wait until it is ready, and stop it at the end of the block.

    Args:
        command: what to execute. It must print `unstraggle: serving MODEL at URL` on standard output and then
            answer `GET URL/v2/health/ready` with 200.
        name: names the server in messages, and its two files NAME.out and NAME.log.
        log_directory: where those files go; it is made where it is missing.
        start_timeout_s: longest wait for it to be ready, seconds.
        stop_grace_s: from SIGTERM to SIGKILL, seconds.

    Raises:
        StackError: it exited before it was ready, or was not ready in time.
    """
    process = ServerProcess(command, name=name, log_directory=log_directory)
    try:
        yield await _wait_until_ready(process, start_timeout_s)
    finally:
        await process.stop(stop_grace_s)


async def _wait_until_ready(process: ServerProcess, timeout_s: float) -> RunningStack:
    probe_timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
    try:
        async with asyncio.timeout(timeout_s), aiohttp.ClientSession(timeout=probe_timeout) as session:
            while (match := process.announcement()) is None:
                process.check_alive("before it was ready")
                await asyncio.sleep(_POLL_S)
            stack = RunningStack(match["url"].rstrip("/"), match["model"], process)
            while not await _is_ready(session, stack.url):
                process.check_alive("before it was ready")
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise process.not_ready(timeout_s) from None
    return stack


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/v2/health/ready") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
