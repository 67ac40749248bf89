"""What the commands share: options that mean the same everywhere, and how their errors end. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from models.errors import ModelError

USAGE_ERROR = 2
"""Exit status of a command that was asked for what it cannot do."""

SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of everything random.")]
ThreadsOption = Annotated[int, typer.Option("--threads", min=1, max=1024, help="Torch threads.")]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output."),
]
SampleInputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE|SLICE",
        help="Sample inputs, .npy or .npz of shape (rows, ...), or mnist or cifar10.",
        show_default="the slice of a builtin model's dataset",
    ),
]


@contextmanager
def errors_in_one_line(command: str, *more: type[Exception]) -> Iterator[None]:
    """End a command whose input is bad with one line that says why, and status 2.

    Args:
        command: its name, for the line.
        more: exceptions to treat so, beside `ModelError` and `OSError`.
    """
    expected: tuple[type[Exception], ...] = (ModelError, OSError, *more)
    try:
        yield
    except expected as error:
        typer.echo(f"unstraggle {command}: {reason(error)}", err=True)
        raise typer.Exit(USAGE_ERROR) from error


def reason(error: Exception) -> str:
    """What an exception says, without the system's error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
