"""Commands of the experiments: `unstraggle experiment quick` and `unstraggle experiment lambdas`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.errors import ModelError
from models.experiments.output import progress_bar, publish

experiment_app = typer.Typer(help="Measure codes without a server.", no_args_is_help=True)

JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output."),
]
GroupsOption = Annotated[int, typer.Option(min=1, help="Random groups per point.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of groups and straggler sets.")]
SourceOption = Annotated[str, typer.Option("--model", help="The model.source; it must answer logits.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Torch threads.")]


@experiment_app.command()
def quick(
    json: JsonOption = None,
    groups: GroupsOption = 1000,
    seed: SeedOption = 0,
    model: SourceOption = "builtin:lenet5-mnist",
    threads: ThreadsOption = 2,
) -> None:
    """Accuracy of coded answers on the shipped slice, beside plain copies on as many replicas."""
    from models.datasets import load_slice
    from models.experiments.quick import Experiment, run_quick
    from models.runner import ModelRunner

    try:
        runner = ModelRunner(model, threads)
        experiment = Experiment(model, runner.predict, load_slice("mnist"), groups=groups, seed=seed)
        with progress_bar("coded queries", experiment.steps) as advance:
            result = run_quick(experiment, advance)
    except ModelError as error:
        raise _failure(error) from error
    publish(result, json, ("scheme", "variant", "mse", "accuracy", "base_accuracy", "rel_accuracy"))


@experiment_app.command()
def lambdas(
    json: JsonOption = None,
    groups: GroupsOption = 300,
    seed: SeedOption = 0,
    model: SourceOption = "builtin:lenet5-mnist",
    threads: ThreadsOption = 2,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where MNIST is cached.", show_default=".data/mnist")
    ] = None,
) -> None:
    """How lambda_dec was chosen: LeTCC over lambda_dec, on training digits (needs `unstraggle data fetch mnist`)."""
    from models.datasets import evaluation_rows, load
    from models.experiments.lambdas import TRAINING_ROWS, run_lambdas, steps
    from models.experiments.quick import Experiment
    from models.runner import ModelRunner

    try:
        runner = ModelRunner(model, threads)
        data = evaluation_rows("mnist-train", load("mnist", "train", directory)[:TRAINING_ROWS])
        experiment = Experiment(model, runner.predict, data, groups=groups, seed=seed)
        with progress_bar("coded queries", steps(experiment)) as advance:
            result = run_lambdas(experiment, advance=advance)
    except ModelError as error:
        raise _failure(error) from error
    publish(result, json, ("scheme", "variant", "lambda_dec", "mse", "accuracy"))


def _failure(error: ModelError) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(1)
