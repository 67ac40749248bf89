"""The fork server: imports torch once, then forks workers that share its memory.

It is a process of its own, started by `serving.worker.launcher`. The frontend stays free of torch, and a
worker that died is back in the time that its model takes to load. It has one thread, so forking is safe, and
holds nothing but imported modules.

`multiprocessing` has a fork server too, which would not do: its children hold its lifeline, so that a stopped
worker keeps it alive after the frontend's death; it swallows failed imports, imports the frontend's main module
in every child, cannot be stopped, and dies of a Ctrl-C in the terminal while the frontend still drains.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import selectors
import signal
import sys
import traceback
from typing import NoReturn, Protocol, cast

from serving.worker.lifetime import die_with_parent
from serving.worker.messages import (
    LONGEST_MESSAGE,
    Exited,
    Forked,
    Kill,
    PreloadFailed,
    Spawn,
    WorkerLink,
    event_line,
    parse_command,
)
from serving.worker.settings import WorkerSettings

READ_SIZE = 65536

IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""The fork server ends when the frontend hangs up and not before: the workers would die with it, unasked."""


class Program(Protocol):
    """The module that a worker runs."""

    def preload(self, source: str) -> None:
        """Import what loading this model will need, so that the workers share it. Runs once, before any fork."""

    def run_worker(self, settings: WorkerSettings, link: WorkerLink) -> int:
        """Be a worker; gives its exit code."""


class ForkServer:
    """Obeys commands, reaps its children and reports what became of them, until the frontend hangs up.

    Args:
        program: what every worker runs.
        commands: file descriptor to read commands from.
        events: file descriptor to write events to.
        lifeline: file descriptor that ends when the frontend does.
    """

    def __init__(self, program: Program, commands: int, events: int, lifeline: int) -> None:
        self._program = program
        self._commands = commands
        self._events = events
        self._lifeline = lifeline
        self._tokens: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._child_died, self._wakeup = os.pipe()

    def run(self) -> None:
        """Serve until the pipe of commands ends."""
        os.set_blocking(self._wakeup, False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self._wakeup)
        self._selector.register(self._commands, selectors.EVENT_READ)
        self._selector.register(self._child_died, selectors.EVENT_READ)
        unfinished = b""
        while True:
            readable = {key.fd for key, _ in self._selector.select()}
            if self._child_died in readable:
                os.read(self._child_died, READ_SIZE)
                self._reap()
            if self._commands in readable:
                received = os.read(self._commands, READ_SIZE)
                if not received:
                    return
                *lines, unfinished = (unfinished + received).split(b"\n")
                for line in lines:
                    self._obey(line)

    def _obey(self, line: bytes) -> None:
        match parse_command(line):
            case Spawn(token=token, settings=settings):
                self._fork(token, settings)
            case Kill(token=token, signal=number):
                for pid, living in self._tokens.items():
                    if living == token:
                        os.kill(pid, number)

    def _fork(self, token: int, settings: WorkerSettings) -> None:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        # A SIGTERM right after the fork must wait until the child no longer ignores it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            self._become_worker(token, settings, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._tokens[pid] = token

    def _become_worker(self, token: int, settings: WorkerSettings, parent: int) -> NoReturn:
        code = 1
        try:
            die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            self._selector.close()
            for descriptor in (self._child_died, self._wakeup, self._commands):
                os.close(descriptor)
            # Said by the worker itself, so that nothing else that it reports comes before.
            os.write(self._events, event_line(Forked(token, os.getpid())))
            code = self._program.run_worker(settings, WorkerLink(token, self._events, self._lifeline))
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        except BrokenPipeError:
            pass  # The frontend has gone, as when another worker said that its model cannot be loaded.
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for pid in tuple(self._tokens):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                exited = Exited(self._tokens.pop(pid), os.waitstatus_to_exitcode(status))
                os.write(self._events, event_line(exited))


def _ignore_signal(*_: object) -> None:
    """SIGCHLD needs a handler to wake the selector."""


def _take_over_standard_streams() -> tuple[int, int]:
    """Move the pipes off standard input and output, which a model's code may read or print to."""
    commands, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, events


def main() -> None:
    """Entry point of the fork server's process: import the program, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="name of the module that a worker runs")
    parser.add_argument("--source", required=True, help="the model that the workers will load")
    parser.add_argument(
        "--lifeline", type=int, required=True, help="descriptor of the lifeline's reading end"
    )
    parser.add_argument("--parent", type=int, required=True, help="process number of the frontend")
    arguments = parser.parse_args()
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(arguments.parent)
    commands, events = _take_over_standard_streams()
    try:
        program = cast(Program, importlib.import_module(arguments.program))
        program.preload(arguments.source)
    except Exception as error:  # whatever a module raises when it is imported
        message = f"cannot import {arguments.program}: {error!r}"
        os.write(events, event_line(PreloadFailed(message[:LONGEST_MESSAGE])))
        sys.exit(1)
    # Objects that no collection ever touches stay in memory pages that the workers share.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):
        ForkServer(program, commands, events, arguments.lifeline).run()


if __name__ == "__main__":
    main()
