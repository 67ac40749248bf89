"""Results for machines and for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from models.files import write_whole

STANDARD_OUTPUT = "-"

_HEADERS = MappingProxyType({"base_accuracy": "base", "rel_accuracy": "relative"})
"""Short headers, so that the table fits a terminal of 80 columns."""


def publish(result: dict[str, Any], destination: str | None, columns: Sequence[str]) -> None:
    """Write a result object as JSON, and a table of its rows to standard output.

    Args:
        result: name, seed, settings and rows.
        destination: a file; `-` for standard output, which then gets the JSON and no table; None for no JSON.
        columns: keys of the rows to show, beside the point (K, N, S).
    """
    text = json.dumps(result, indent=2) + "\n"
    if destination == STANDARD_OUTPUT:
        typer.echo(text, nl=False)
        return
    if destination is not None:
        write_whole(Path(destination), text.encode())
    Console().print(_table(result, columns))


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
        table.add_column(
            _HEADERS.get(column, column),
            no_wrap=True,
            justify="left" if column in ("scheme", "variant") else "right",
        )
    for point, rows in groupby(result["rows"], key=lambda row: (row["k"], row["n"], row["s"])):
        table.add_section()
        for row in rows:
            table.add_row(",".join(map(str, point)), *(_cell(column, row[column]) for column in columns))
    return table


def _cell(column: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0e}" if column.startswith("lambda") else f"{value:.4f}"
    return str(value)
