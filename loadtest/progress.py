"""A progress bar for runs that take a while, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loadtest.records import Record
from loadtest.runner import ignore

_WORTH_SHOWING_S = 3.0


@contextmanager
def progress_bar(
    console: Console, label: str, *, requests: int, expected_s: float
) -> Iterator[Callable[[Record], None]]:
    """Yield what counts finished requests; it draws only on a terminal, and only for runs over a few seconds.

    Args:
        console: where to draw; must not be standard output, which belongs to the results.
        label: what is running.
        requests: how many will finish.
        expected_s: how long the schedule is, seconds.
    """
    if not console.is_terminal or expected_s < _WORTH_SHOWING_S:
        yield ignore
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failures]} failed"),
        TimeRemainingColumn(),
    )
    # Drawing shares the interpreter with the sender, so it is kept rare.
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as progress:
        task = progress.add_task(label, total=requests, failures=0)
        failures = 0

        def count(record: Record) -> None:
            nonlocal failures
            failures += record.failed
            progress.update(task, advance=1, failures=failures)

        yield count
