"""Commands of the experiments, one each: `unstraggle experiment NAME`. What needs torch is imported when they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from models.errors import ModelError
from models.experiments.figure import require_matplotlib
from models.experiments.output import progress_bar
from models.experiments.report import Report, publish_report

if TYPE_CHECKING:
    from models.experiments.subjects import LoadedSubject

experiment_app = typer.Typer(
    help="Re-run the papers' experiments, and ours, on trained networks.", no_args_is_help=True
)

JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output."),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write a page, its picture and the JSON there.")
]
GroupsOption = Annotated[
    int | None,
    typer.Option(min=2, help="Random groups per point.", show_default="fewer where the model is slow"),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Torch threads.")]
ModelsOption = Annotated[
    str, typer.Option("--models", help="Which networks, joined by commas: lenet5, repvgg, vit.")
]
FullOption = Annotated[
    bool,
    typer.Option(
        "--full", help="Use the whole test set (`unstraggle data fetch`), and ten times the groups."
    ),
]
_ALL = "lenet5,repvgg"
_FULL_SCALE = 10


@experiment_app.command()
def quick(
    json: JsonOption = None,
    out: OutOption = None,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """LeNet5 on MNIST in a minute: codes beside plain copies on as many replicas."""
    from models.experiments.quick import quick_experiment, run_quick

    with _reporting(json, out) as publish:
        (loaded,) = _load("lenet5", full=full, threads=threads)
        experiment = quick_experiment(loaded, groups=groups or 1000 * _scale(full), seed=seed)
        with progress_bar("coded queries", experiment.steps) as advance:
            report = run_quick(experiment, advance)
        publish(report)


@experiment_app.command()
def convergence(
    json: JsonOption = None,
    out: OutOption = None,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """How the error falls as replicas are added (LeTCC, Figure 1b)."""
    from models.experiments.convergence import ConvergenceExperiment, run_convergence

    with _reporting(json, out) as publish:
        (loaded,) = _load("lenet5", full=full, threads=threads)
        experiment = ConvergenceExperiment(loaded, groups=groups or 500 * _scale(full), seed=seed)
        with progress_bar("coded queries", experiment.steps) as advance:
            report = run_convergence(experiment, advance)
        publish(report)


@experiment_app.command()
def table1(
    json: JsonOption = None,
    out: OutOption = None,
    models: ModelsOption = _ALL,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """Accuracy and error of every code, and of the same replicas without one (LeTCC, Table 1)."""
    from models.experiments.table1 import run_table1, table1_experiments

    with _reporting(json, out) as publish:
        loaded = _load(models, full=full, threads=threads)
        experiments = table1_experiments(loaded, groups=groups, scale=_scale(full), seed=seed)
        with progress_bar("coded queries", sum(experiment.steps for experiment in experiments)) as advance:
            report = run_table1(experiments, advance)
        publish(report)


@experiment_app.command()
def stragglers(
    json: JsonOption = None,
    out: OutOption = None,
    models: ModelsOption = _ALL,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """Accuracy and error against the number of stragglers (LeTCC, Figure 3)."""
    from models.experiments.stragglers import StragglerExperiment, run_stragglers

    with _reporting(json, out) as publish:
        loaded = _load(models, full=full, threads=threads)
        experiment = StragglerExperiment(loaded, groups=groups, scale=_scale(full), seed=seed)
        with progress_bar("coded queries", experiment.steps) as advance:
            report = run_stragglers(experiment, advance)
        publish(report)


@experiment_app.command("coded-points")
def coded_points(
    json: JsonOption = None,
    out: OutOption = None,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
) -> None:
    """What the replicas get to see: coded images, as a picture (LeTCC, Figure 4)."""
    from models.datasets import DATASETS, evaluation_rows, load, load_slice
    from models.experiments.coded_points import CodedPointsExperiment, run_coded_points

    with _reporting(json, out) as publish:
        data = [evaluation_rows(name, load(name, "test")) if full else load_slice(name) for name in DATASETS]
        publish(run_coded_points(CodedPointsExperiment(data, groups=groups or 100 * _scale(full), seed=seed)))


@experiment_app.command("lambda")
def lambda_(
    json: JsonOption = None,
    out: OutOption = None,
    models: ModelsOption = _ALL,
    split: Annotated[
        Literal["slice", "train"],
        typer.Option(help="The shipped test images, or the first training images (`unstraggle data fetch`)."),
    ] = "slice",
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """How much LeTCC's two smoothing parameters matter."""
    from models.experiments.lambdas import LambdaExperiment, run_lambda

    with _reporting(json, out) as publish:
        loaded = _load(models, full=full, threads=threads, train=split == "train")
        experiment = LambdaExperiment(loaded, split, groups=groups, scale=_scale(full), seed=seed)
        with progress_bar("coded queries", experiment.steps) as advance:
            report = run_lambda(experiment, advance)
        publish(report)


@experiment_app.command()
def byzantine(
    json: JsonOption = None,
    out: OutOption = None,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """Replicas that answer falsely: how often they are found, and what they cost."""
    from models.experiments.byzantine import ByzantineExperiment, run_byzantine

    with _reporting(json, out) as publish:
        (loaded,) = _load("lenet5", full=full, threads=threads)
        experiment = ByzantineExperiment(loaded, groups=groups or 100 * _scale(full), seed=seed)
        with progress_bar("groups", experiment.steps) as advance:
            report = run_byzantine(experiment, advance)
        publish(report)


@experiment_app.command()
def estimate(
    json: JsonOption = None,
    out: OutOption = None,
    models: ModelsOption = _ALL,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    full: FullOption = False,
    threads: ThreadsOption = 2,
) -> None:
    """How well the error estimate of each answer tells good ones from bad ones."""
    from models.experiments.estimate import EstimateExperiment, run_estimate

    with _reporting(json, out) as publish:
        loaded = _load(models, full=full, threads=threads)
        experiment = EstimateExperiment(loaded, groups=groups, scale=_scale(full), seed=seed)
        with progress_bar("coded queries", experiment.steps) as advance:
            report = run_estimate(experiment, advance)
        publish(report)


_Publish: TypeAlias = Callable[[Report], None]


@contextmanager
def _reporting(json: str | None, out: Path | None) -> Iterator[_Publish]:
    """Check the destinations before the work, and end in one line where something is wrong."""
    try:
        if out is not None:
            require_matplotlib()
        yield lambda report: publish_report(report, json, out)
    except (ModelError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def _load(names: str, *, full: bool, threads: int, train: bool = False) -> list[LoadedSubject]:
    from models.experiments.subjects import choose, load_subject

    chosen = choose([name.strip() for name in names.split(",")])
    rows: Any = "train" if train else "test" if full else "slice"
    return [load_subject(subject, rows=rows, threads=threads) for subject in chosen]


def _scale(full: bool) -> int:
    return _FULL_SCALE if full else 1
