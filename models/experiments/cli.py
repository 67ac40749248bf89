"""Commands of the experiments, one each: `unstraggle experiment NAME`. What needs torch is imported when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias

import typer

from models.errors import BadOption
from models.experiments.figure import require_matplotlib
from models.experiments.output import progress_bar
from models.experiments.report import Report, publish_report, require_places
from models.options import JsonOption, SeedOption, ThreadsOption, errors_in_one_line

if TYPE_CHECKING:
    from models.experiments.subjects import LoadedSubject, RowsName

experiment_app = typer.Typer(
    help="Re-run the papers' experiments, and ours, on trained networks.", no_args_is_help=True
)

OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write a page, its picture and the JSON there.")
]
GroupsOption = Annotated[
    int | None,
    typer.Option(
        min=2, max=1_000_000, help="Random groups per point.", show_default="fewer where the model is slow"
    ),
]
ModelsOption = Annotated[
    str, typer.Option("--models", help="Which networks, joined by commas: lenet5, repvgg, vit.")
]
FullOption = Annotated[
    bool,
    typer.Option(
        "--full", help="Use the whole test set (`unstraggle data fetch`), and ten times the groups."
    ),
]
Split: TypeAlias = Literal["slice", "rest", "train"]
_ALL = "lenet5,repvgg,vit"
_FULL_SCALE = 10

Advance: TypeAlias = Callable[[int], None]


class _Experiment(Protocol):
    """What is measured, and in how many steps."""

    @property
    def steps(self) -> int:
        """What its progress counts."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What the options say."""

    models: str
    groups: int | None
    seed: int
    full: bool
    threads: int
    split: Split = "slice"

    @property
    def scale(self) -> int:
        """What to multiply the usual numbers of groups by."""
        return _FULL_SCALE if self.full else 1

    def groups_of(self, usual: int) -> int:
        """The number of groups, where an experiment of the default size has so many."""
        return self.groups or usual * self.scale

    def load(self) -> list[LoadedSubject]:
        """Load the networks, with the rows that are wanted."""
        from models.experiments.subjects import choose, load_subject

        if self.full and self.split != "slice":
            raise BadOption(
                f"--full takes the whole test set, so that --split must be slice beside it; got {self.split}"
            )
        rows: RowsName = "test" if self.full else self.split
        names = [name.strip() for name in self.models.split(",") if name.strip()]
        return [load_subject(subject, rows=rows, threads=self.threads) for subject in choose(names)]


_Parts: TypeAlias = tuple[_Experiment | Sequence[_Experiment], Callable[[Any, Advance], Report]]
"""An experiment, or several that make one report, and what runs it."""


def _quick(request: _Request) -> _Parts:
    """LeNet5 on MNIST in a minute: codes beside plain copies on as many replicas."""
    from models.experiments.quick import quick_experiment, run_quick

    groups = request.groups_of(1000)
    return quick_experiment(request.load()[0], groups=groups, seed=request.seed), run_quick


def _convergence(request: _Request) -> _Parts:
    """How the error falls as replicas are added (LeTCC, Figure 1b)."""
    from models.experiments.convergence import ConvergenceExperiment, run_convergence

    groups = request.groups_of(500)
    return ConvergenceExperiment(request.load()[0], groups, request.seed), run_convergence


def _table1(request: _Request) -> _Parts:
    """Accuracy and error of every code, and of the same replicas without one (LeTCC, Table 1)."""
    from models.experiments.table1 import run_table1, table1_experiments

    experiments = table1_experiments(
        request.load(), groups=request.groups, scale=request.scale, seed=request.seed
    )
    return experiments, run_table1


def _stragglers(request: _Request) -> _Parts:
    """Accuracy and error against the number of stragglers (LeTCC, Figure 3)."""
    from models.experiments.stragglers import StragglerExperiment, run_stragglers

    experiment = StragglerExperiment(
        request.load(), groups=request.groups, scale=request.scale, seed=request.seed
    )
    return experiment, run_stragglers


def _coded_points(request: _Request) -> _Parts:
    """What the replicas get to see: coded images, as a picture (LeTCC, Figure 4)."""
    from models.datasets import DATASETS, evaluation_rows, load, load_slice
    from models.experiments.coded_points import CodedPointsExperiment, run_coded_points

    data = [
        evaluation_rows(name, load(name, "test")) if request.full else load_slice(name) for name in DATASETS
    ]
    return CodedPointsExperiment(data, request.groups_of(100), request.seed), run_coded_points


def _lambda(request: _Request) -> _Parts:
    """How much LeTCC's two smoothing parameters matter."""
    from models.experiments.lambdas import LambdaExperiment, run_lambda

    experiment = LambdaExperiment(
        request.load(), request.split, groups=request.groups, scale=request.scale, seed=request.seed
    )
    return experiment, run_lambda


def _byzantine(request: _Request) -> _Parts:
    """Replicas that answer falsely: how often they are found, and what they cost."""
    from models.experiments.byzantine import ByzantineExperiment, run_byzantine

    groups = request.groups_of(100)
    return ByzantineExperiment(request.load()[0], groups, request.seed), run_byzantine


def _estimate(request: _Request) -> _Parts:
    """How well the error estimate of each answer tells good ones from bad ones."""
    from models.experiments.estimate import EstimateExperiment, run_estimate

    experiment = EstimateExperiment(
        request.load(), groups=request.groups, scale=request.scale, seed=request.seed
    )
    return experiment, run_estimate


def _measure(
    name: str,
    parts_of: Callable[[_Request], _Parts],
    request: _Request,
    json: str | None,
    out: Path | None,
) -> None:
    """Run an experiment and show what came of it; one line where something is wrong."""
    with errors_in_one_line("experiment"):
        if out is not None:
            require_matplotlib()
        require_places(name, json, out)
        experiment, run = parts_of(request)
        several = experiment if isinstance(experiment, Sequence) else [experiment]
        with progress_bar("measuring", sum(each.steps for each in several)) as advance:
            report = run(experiment, advance)
        publish_report(report, json, out)


def _register_for_one_network(name: str, parts_of: Callable[[_Request], _Parts]) -> None:
    def command(
        json: JsonOption = None,
        out: OutOption = None,
        groups: GroupsOption = None,
        seed: SeedOption = 0,
        full: FullOption = False,
        threads: ThreadsOption = 2,
    ) -> None:
        _measure(name, parts_of, _Request("lenet5", groups, seed, full, threads), json, out)

    experiment_app.command(name, help=parts_of.__doc__)(command)


def _register_for_several_networks(name: str, parts_of: Callable[[_Request], _Parts]) -> None:
    def command(
        json: JsonOption = None,
        out: OutOption = None,
        models: ModelsOption = _ALL,
        groups: GroupsOption = None,
        seed: SeedOption = 0,
        full: FullOption = False,
        threads: ThreadsOption = 2,
        split: Annotated[
            Split,
            typer.Option(
                help="The shipped test images; the rest of the test set, which nothing was chosen by; or training "
                "images, to choose parameters on. The last two need `unstraggle data fetch`."
            ),
        ] = "slice",
    ) -> None:
        _measure(name, parts_of, _Request(models, groups, seed, full, threads, split), json, out)

    experiment_app.command(name, help=parts_of.__doc__)(command)


_register_for_one_network("quick", _quick)
_register_for_one_network("convergence", _convergence)
_register_for_several_networks("table1", _table1)
_register_for_several_networks("stragglers", _stragglers)
_register_for_one_network("coded-points", _coded_points)
_register_for_several_networks("lambda", _lambda)
_register_for_one_network("byzantine", _byzantine)
_register_for_several_networks("estimate", _estimate)
