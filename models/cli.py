"""Commands for data and training. Torch is imported by the commands that need it, when they run."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from models.datasets import SHIPPED, SLICE_ROWS, fetch_mnist, load_mnist, load_slice, make_slice
from models.errors import ModelError

data_app = typer.Typer(help="Fetch datasets and cut evaluation slices.", no_args_is_help=True)
train_app = typer.Typer(help="Train the models that ship with the package.", no_args_is_help=True)


class Dataset(StrEnum):
    """The datasets that the commands know."""

    MNIST = "mnist"


DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="The dataset's cache. $UNSTRAGGLE_DATA_DIR moves it too.", show_default=".data/mnist"
    ),
]


@data_app.command()
def fetch(
    dataset: Annotated[Dataset, typer.Argument(help="What to fetch.")], directory: DirectoryOption = None
) -> None:
    """Fetch a dataset from the first source that answers, and verify sizes and checksums."""
    try:
        where = fetch_mnist(directory)
    except ModelError as error:
        raise _failure(error) from error
    typer.echo(f"{dataset} is in {where}, every file verified")


@data_app.command("slice")
def cut_slice(
    dataset: Annotated[Dataset, typer.Argument(help="What to cut from.")],
    directory: DirectoryOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write.", show_default="the one in the package")
    ] = None,
) -> None:
    """Cut the evaluation slice again: the first 2,000 test digits."""
    try:
        written = make_slice(directory, out)
    except ModelError as error:
        raise _failure(error) from error
    typer.echo(f"the slice of {dataset} is in {written}")


@data_app.command()
def sample(
    dataset: Annotated[Dataset, typer.Argument(help="What to take it from.")],
    rows: Annotated[int, typer.Option(min=1, max=SLICE_ROWS, help="How many inputs.")] = 8,
    first: Annotated[int, typer.Option(min=0, max=SLICE_ROWS - 1, help="Where in the slice to begin.")] = 0,
) -> None:
    """Print an inference request (V2, JSON) of shipped test inputs; their labels go to standard error."""
    chosen = np.arange(first, first + rows) % SLICE_ROWS
    digits = load_slice(dataset.value)
    tensor = {
        "name": "input",
        "shape": [rows, *digits.images.shape[1:]],
        "datatype": "FP32",
        "data": [round(float(pixel), 4) for pixel in digits.images[chosen].ravel()],
    }
    typer.echo(json.dumps({"inputs": [tensor]}))
    typer.echo(f"labels: {' '.join(map(str, digits.labels[chosen]))}", err=True)


@train_app.callback()
def _train() -> None:
    """Train the models that ship with the package."""


@train_app.command("lenet5-mnist")
def train_lenet5(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 60,000 training digits.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and augmentation.")] = 0,
    out: Annotated[
        Path,
        typer.Option(
            help="The weights to write; the log goes beside them.", show_default="those in the package"
        ),
    ] = SHIPPED / "lenet5-mnist.safetensors",
    directory: DirectoryOption = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Torch threads; the last bits of the weights depend on it.")
    ] = 1,
) -> None:
    """Train LeNet-5 on MNIST. After an interruption, the same command goes on where it stopped."""
    import torch

    from models.train import EpochLog, Recipe, train_lenet5_mnist

    def show(log: EpochLog) -> None:
        typer.echo(f"epoch {log.epoch}: loss {log.loss:.4f}, test accuracy {log.test_accuracy:.4f}")

    torch.set_num_threads(threads)
    try:
        where = fetch_mnist(directory)
        recipe = Recipe(epochs=epochs, seed=seed)
        train_lenet5_mnist(
            recipe, load_mnist("train", where), load_mnist("test", where), out=out, on_epoch=show
        )
    except ModelError as error:
        raise _failure(error) from error
    typer.echo(f"the weights are in {out}")


def _failure(error: ModelError) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(1)
