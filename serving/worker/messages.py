"""What the frontend and the fork server say to each other: one JSON object a line, over two pipes.

Commands go to the fork server. Events come from it and, through the same pipe, from the workers that it
forked: a line of at most `PIPE_BUF` bytes is written whole, so many writers may share the pipe.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, TypeAdapter

from serving.worker.settings import WorkerSettings

LONGEST_MESSAGE = 600
"""Characters of an error message that are passed on; at up to 6 bytes each in JSON, the line stays whole."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Command: fork a worker, which is called `token` from now on."""

    token: int
    settings: WorkerSettings
    kind: Literal["spawn"] = "spawn"


@dataclass(frozen=True, slots=True)
class Kill:
    """Command: send a signal to a worker, if it still lives.

    The fork server sends it, which alone knows for certain whose process number it is.
    """

    token: int
    signal: int
    kind: Literal["kill"] = "kill"


@dataclass(frozen=True, slots=True)
class Forked:
    """Event: the worker has a process."""

    token: int
    pid: int
    kind: Literal["forked"] = "forked"


@dataclass(frozen=True, slots=True)
class Listening:
    """Event: the worker has loaded its model and takes calls."""

    token: int
    port: int
    kind: Literal["listening"] = "listening"


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Event: the worker cannot load its model."""

    token: int
    message: str
    kind: Literal["load_failed"] = "load_failed"


@dataclass(frozen=True, slots=True)
class Exited:
    """Event: the worker's process has ended and is reaped; a negative code is the signal that ended it."""

    token: int
    exitcode: int
    kind: Literal["exited"] = "exited"


@dataclass(frozen=True, slots=True)
class PreloadFailed:
    """Event: the fork server cannot import what the workers run, and ends."""

    message: str
    kind: Literal["preload_failed"] = "preload_failed"


Command: TypeAlias = Spawn | Kill
Event: TypeAlias = Forked | Listening | LoadFailed | Exited | PreloadFailed

_COMMANDS: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Discriminator("kind")])
_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Discriminator("kind")])


def command_line(command: Command) -> bytes:
    """One command as a line."""
    return _COMMANDS.dump_json(command) + b"\n"


def event_line(event: Event) -> bytes:
    """One event as a line."""
    return _EVENTS.dump_json(event) + b"\n"


def parse_command(line: bytes) -> Command:
    """The command in a line."""
    return _COMMANDS.validate_json(line)


def parse_event(line: bytes) -> Event:
    """The event in a line."""
    return _EVENTS.validate_json(line)


@dataclass(frozen=True, slots=True)
class WorkerLink:
    """A worker's link to the frontend.

    Attributes:
        token: what the frontend calls this worker.
        events: file descriptor to write events to.
        lifeline: file descriptor that ends when the frontend does.
    """

    token: int
    events: int
    lifeline: int

    def listening(self, port: int) -> None:
        """Report that calls are taken from now on."""
        os.write(self.events, event_line(Listening(self.token, port)))

    def load_failed(self, message: str) -> None:
        """Report that the model cannot be loaded."""
        os.write(self.events, event_line(LoadFailed(self.token, message[:LONGEST_MESSAGE])))
