"""Lines between the frontend and the fork server survive the trip, and are short enough to be written whole."""

import os
import select

import pytest

from serving.config import LogSettings
from serving.config.faults import FaultSettings, ParetoDelay
from serving.worker.messages import (
    LONGEST_MESSAGE,
    Exited,
    Forked,
    Kill,
    Listening,
    LoadFailed,
    PreloadFailed,
    Spawn,
    WorkerLink,
    command_line,
    event_line,
    parse_command,
    parse_event,
)
from serving.worker.settings import WorkerSettings

SETTINGS = WorkerSettings(
    number=3,
    name="replica-3",
    model="m",
    source="python:a:b",
    host="127.0.0.1",
    threads=2,
    concurrency=0,
    faults=FaultSettings(enabled=True, replicas=(1, 3), delay=ParetoDelay(minimum_ms=2, shape=1.5)),
    log=LogSettings(format="json"),
)


@pytest.mark.parametrize("command", [Spawn(7, SETTINGS), Kill(7, 15)])
def test_commands_survive(command):
    assert parse_command(command_line(command)) == command


@pytest.mark.parametrize(
    "event",
    [
        Forked(1, 2),
        Listening(1, 80),
        LoadFailed(1, 'no "x"\n\u2028'),
        Exited(1, -9),
        PreloadFailed("no torch"),
    ],
)
def test_events_survive_on_one_line(event):
    line = event_line(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_event(line) == event


@pytest.mark.parametrize("character", ["x", "\x00", "\U0001f600"])
def test_the_longest_report_is_written_whole(character):
    reading, writing = os.pipe()
    try:
        WorkerLink(token=10**9, events=writing, lifeline=-1).load_failed(character * 10**5)
        line = os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        os.close(writing)
    assert len(line) <= select.PIPE_BUF
    assert parse_event(line) == LoadFailed(10**9, character * LONGEST_MESSAGE)
