"""Progress bars and tables on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from types import MappingProxyType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

_PIPE_WIDTH = 120
_SMALL = 1e-3
"""Smaller values are shown by their power of ten."""
_TEXT_COLUMNS = ("model", "dataset", "scheme", "variant", "attack", "method", "stragglers")

_HEADERS = MappingProxyType({"base_accuracy": "base", "rel_accuracy": "relative", "rel_accuracy_sd": "sd"})


def print_table(result: dict[str, Any], columns: Sequence[str]) -> None:
    """Print a result's rows.

    Args:
        result: name, seed and rows.
        columns: keys of the rows to show, beside the point (K, N, S).
    """
    piped = not sys.stdout.isatty()
    Console(width=_PIPE_WIDTH if piped else None).print(_table(result, columns))


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; yields what to call with the amount done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.advance(task, done)


def _table(result: dict[str, Any], columns: Sequence[str]) -> Table:
    table = Table(title=f"{result['name']}, seed {result['seed']}", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("K,N,S", *columns):
        table.add_column(header(column), no_wrap=True, justify="left" if column in _TEXT_COLUMNS else "right")
    for point, rows in groupby(result["rows"], key=lambda row: (row["k"], row["n"], row["s"])):
        table.add_section()
        for row in rows:
            table.add_row(",".join(map(str, point)), *(cell(column, row[column]) for column in columns))
    return table


def header(column: str) -> str:
    """A short header for a key of the rows, so that the table fits a terminal."""
    return _HEADERS.get(column, column)


def cell(column: str, value: object) -> str:
    """A value of the rows, for people."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if column.startswith("lambda"):
            return f"{value:.0e}"
        return f"{value:.1e}" if 0 < abs(value) < _SMALL else f"{value:.4f}"
    return str(value)
