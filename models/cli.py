"""Commands for data and training. Torch is imported by the commands that need it, when they run."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from models import datasets
from models.datasets import SLICE_ROWS, DatasetName, load_slice, make_slice
from models.errors import BadOption
from models.files import log_beside, require_writable
from models.options import SeedOption, ThreadsOption, errors_in_one_line

data_app = typer.Typer(help="Fetch datasets and cut evaluation slices.", no_args_is_help=True)


class Dataset(StrEnum):
    """The datasets that the commands know."""

    MNIST = "mnist"
    CIFAR10 = "cifar10"


class Trainable(StrEnum):
    """The models that the package can train."""

    LENET5 = "lenet5-mnist"
    LINEAR = "linear-mnist"
    REPVGG = "repvgg-cifar10"
    VIT = "vit-cifar10"


DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="The dataset's cache. $UNSTRAGGLE_DATA_DIR moves it too.", show_default=".data/DATASET"
    ),
]


@data_app.command()
def fetch(
    dataset: Annotated[Dataset, typer.Argument(help="What to fetch.")], directory: DirectoryOption = None
) -> None:
    """Fetch a dataset from the first source that answers, and verify sizes and checksums."""
    with errors_in_one_line("data"):
        where = datasets.fetch(dataset.value, directory)
    typer.echo(f"{dataset} is in {where}, every file verified")


@data_app.command("slice")
def cut_slice(
    dataset: Annotated[Dataset, typer.Argument(help="What to cut from.")],
    directory: DirectoryOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write.", show_default="the one in the package")
    ] = None,
) -> None:
    """Cut the evaluation slice again: the first 2,000 test images."""
    with errors_in_one_line("data"):
        if out is not None:
            require_writable("--out", out, others=_files_of(dataset.value, directory))
        written = make_slice(dataset.value, directory, out)
    typer.echo(f"the slice of {dataset} is in {written}")


@data_app.command()
def sample(
    dataset: Annotated[Dataset, typer.Argument(help="What to take it from.")],
    rows: Annotated[int, typer.Option(min=1, max=SLICE_ROWS, help="How many inputs.")] = 8,
    first: Annotated[int, typer.Option(min=0, max=SLICE_ROWS - 1, help="Where in the slice to begin.")] = 0,
) -> None:
    """Print an inference request (V2, JSON) of shipped test inputs; their labels go to standard error."""
    chosen = np.arange(first, first + rows) % SLICE_ROWS
    images = load_slice(dataset.value)
    tensor = {
        "name": "input",
        "shape": [rows, *images.images.shape[1:]],
        "datatype": "FP32",
        "data": [round(float(pixel), 4) for pixel in images.images[chosen].ravel()],
    }
    typer.echo(json.dumps({"inputs": [tensor]}))
    typer.echo(f"labels: {' '.join(map(str, images.labels[chosen]))}", err=True)


def train(
    model: Annotated[Trainable, typer.Argument(help="What to train.")],
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Passes over the training images.", show_default="the recipe's"
        ),
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The weights to write; the log goes beside them.", show_default="those in the package"
        ),
    ] = None,
    directory: DirectoryOption = None,
    threads: ThreadsOption = 1,
) -> None:
    """Train a model that ships with the package. After an interruption, the same command goes on where it stopped.

    The last bits of the weights depend on the number of threads.
    """
    import torch

    from models.builtin import BUILTINS
    from models.training import EpochLog
    from models.training import train as run_training

    def show(log: EpochLog) -> None:
        typer.echo(f"epoch {log.epoch}: loss {log.loss:.4f}, test accuracy {log.test_accuracy:.4f}")

    torch.set_num_threads(threads)
    chosen = BUILTINS[model.value]
    recipe = replace(chosen.recipe, epochs=epochs or chosen.recipe.epochs, seed=seed)
    target = out or chosen.weights
    with errors_in_one_line("train"):
        if target.suffix != ".safetensors":
            raise BadOption(f"--out must end in .safetensors, got {target}")
        for path in (target, log_beside(target), target.with_suffix(".checkpoint")):
            require_writable("--out", path, others=_files_of(chosen.dataset, directory))
        where = datasets.fetch(chosen.dataset, directory)
        splits = [datasets.load(chosen.dataset, split, where) for split in ("train", "test")]
        run_training(chosen, recipe, *splits, out=target, on_epoch=show)
    typer.echo(f"the weights are in {target}")


def _files_of(name: DatasetName, directory: Path | None) -> dict[str, Path]:
    """The files of a dataset's cache, which nothing may be written over."""
    dataset = datasets.DATASETS[name]
    where = directory or dataset.directory
    return {f"the dataset, {file.name}": where / file.name for file in dataset.files}
