"""The command `unstraggle plan`: picks a policy for a model, its replicas and a latency objective."""

from __future__ import annotations

import json as jsonlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.options import JsonOption, SampleInputsOption, SeedOption, ThreadsOption, errors_in_one_line
from serving.cli import ConfigOption, SetOption, configuration_file
from serving.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from serving.plan import Candidate, Objective
    from serving.simulate import Load

_STANDARD_OUTPUT = "-"
_MARKERS = ("o", "s", "^", "D")
"""Tell the variants of one kind apart, and are hollow, for some lie on each other."""
_OURS = "# Written by `unstraggle plan`."
_FILES = ("plan.json", "plan.png", "config.yaml")


def plan(
    objective_ms: Annotated[
        float,
        typer.Option("--objective-ms", min=0.001, max=1e7, help="The longest latency at the percentile."),
    ],
    latency: Annotated[
        str,
        typer.Option(
            metavar="KIND:MS|trace:FILE",
            help="How long a call keeps a replica busy: inference-trace:50, constant:50, exponential:50, "
            "lognormal:40,sigma=0.3, pareto:30,shape=2, bimodal:40,slow_ms=300,slow_share=0.02; or a file of measured "
            "milliseconds, one on each line.",
        ),
    ],
    config: ConfigOption = None,
    overrides: SetOption = None,
    inputs: SampleInputsOption = None,
    rate: Annotated[float, typer.Option(min=1e-6, max=1e6, help="Requests per second.")] = 10.0,
    rows: Annotated[int, typer.Option("--rows-per-request", min=1, max=1024, help="Rows in each.")] = 8,
    percentile: Annotated[float, typer.Option(min=1.0, max=99.99, help="Of the objective.")] = 99.9,
    accuracy: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least share of answers that are the uncoded model's.")
    ] = 0.95,
    compute_ms: Annotated[
        float,
        typer.Option("--compute-ms", min=0.0, max=1e7, help="Added to each call, as for the model itself."),
    ] = 0.0,
    requests: Annotated[int, typer.Option(min=100, max=1_000_000, help="Simulated requests.")] = 2000,
    groups: Annotated[int, typer.Option(min=10, max=100_000, help="Random groups for accuracies.")] = 200,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the plan, its picture, and a configuration to serve with."),
    ] = None,
    json: JsonOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = 2,
) -> None:
    """Simulate every policy for your replicas and load, measure its accuracy on your model, and pick one."""
    from serving.plan import Objective
    from serving.simulate import Load

    with errors_in_one_line("plan", ConfigError):
        objective = Objective(objective_ms, percentile, accuracy)
        load = Load(rate, requests, rows, seed)
        _require_places(json, out)
        model = _Model(config, overrides or [], inputs, groups, threads)
        order, asked = _plan(model, objective, load, latency, compute_ms)
        _publish(order, objective, asked, json, out)


def _require_places(json: str | None, out: Path | None) -> None:
    from models.errors import BadOption
    from models.experiments.figure import require_matplotlib
    from models.files import require_folder, require_writable

    if json not in (None, _STANDARD_OUTPUT):
        others = {} if out is None else {f"--out, {name}": out / name for name in _FILES}
        require_writable("--json", Path(json), others=others)
    if out is not None:
        require_matplotlib()
        require_folder("--out", out)
        for name in _FILES:
            require_writable("--out", out / name)
        mine = out / "config.yaml"
        if mine.is_file() and not mine.read_text(errors="replace").startswith(_OURS):
            raise BadOption(
                f"--out must name a folder of its own; {mine} was not written by this command, and would be lost"
            )


@dataclass(frozen=True, slots=True)
class _Model:
    """What is served, and what its accuracy is measured on: options of the same names."""

    config: Path | None
    overrides: list[str]
    inputs: str | None
    groups: int
    threads: int


def _plan(
    model: _Model, objective: Objective, load: Load, latency: str, compute_ms: float
) -> tuple[list[Candidate], dict[str, Any]]:
    """All candidates, the best first, and what was asked."""
    from models.errors import DataError
    from models.experiments.output import progress_bar
    from models.runner import ModelRunner
    from models.sample_inputs import require_fit, sample_inputs
    from serving.config.load import load as load_settings
    from serving.plan import Candidate, accuracy_of, candidates, ranked, service_time, with_scheme
    from serving.simulate import simulate

    settings = load_settings(configuration_file(model.config), os.environ, model.overrides).settings
    if settings.replicas.kind != "local":
        raise ConfigError(
            f"replicas.kind must be local, for model.source is run on this machine; got {settings.replicas.kind}: "
            "add --set replicas.kind=local, with replicas.count as many as there are"
        )
    if settings.deadline_ms < objective.latency_ms:
        raise ConfigError(
            f"deadline_ms must be at least --objective-ms, {objective.latency_ms:g}, for later answers are errors; "
            f"got {settings.deadline_ms:g}"
        )
    calls = service_time(latency, compute_ms, load.seed)
    sample = sample_inputs(model.inputs, settings.model.source)
    runner = ModelRunner(settings.model.source, model.threads)
    require_fit(sample, runner.spec)
    k = settings.scheme.k if settings.scheme.k > 1 else 8
    if len(sample.rows) < k:
        raise DataError(f"--inputs must hold at least k = {k} rows; got {len(sample.rows)}")
    schemes = candidates(k, settings.replicas.count, objective)
    tried = []
    with progress_bar("simulating", len(schemes) * load.requests) as advance:
        for label, scheme in schemes.items():
            mine = with_scheme(settings, scheme)
            outcome = simulate(mine, load, calls, advance)
            agreement = accuracy_of(
                outcome, mine.scheme, runner.predict, sample.rows, groups=model.groups, seed=load.seed
            )
            tried.append(Candidate(label, mine, outcome, agreement))
    asked = {
        "latency": latency,
        "compute_ms": compute_ms,
        "rate": load.rate,
        "requests": load.requests,
        "rows_per_request": load.rows,
        "replicas": settings.replicas.count,
        "concurrency": settings.replicas.concurrency,
        "objective_ms": objective.latency_ms,
        "percentile": objective.percentile,
        "accuracy": objective.accuracy,
        "groups": model.groups,
        "model": settings.model.source,
        "dataset": sample.name,
        "seed": load.seed,
    }
    return ranked(tried, objective), asked


def _publish(
    order: list[Candidate],
    objective: Objective,
    asked: dict[str, Any],
    json: str | None,
    out: Path | None,
) -> None:
    from models.experiments.report import with_circumstances
    from models.files import write_whole
    from serving.plan import reason, row_of

    rows = [row_of(candidate, objective) for candidate in order]
    result = with_circumstances({"name": "plan", "seed": asked["seed"], "settings": asked, "rows": rows})
    text = jsonlib.dumps(result, indent=2) + "\n"
    why = reason(order, objective)
    if json == _STANDARD_OUTPUT:
        typer.echo(text, nl=False)
        typer.echo(why, err=True)
    else:
        _show(rows, asked)
        typer.echo(why)
        if json is not None:
            write_whole(Path(json), text.encode())
    if out is not None:
        import yaml

        write_whole(out / "plan.json", text.encode())
        _draw(rows, asked).savefig(out / "plan.png")
        settings = yaml.safe_dump(order[0].settings.model_dump(mode="json"), sort_keys=False)
        write_whole(out / "config.yaml", f"{_OURS}\n# {why}.\n{settings}".encode())
        typer.echo(
            f"written to {out}; serve it with: unstraggle serve --config {out / 'config.yaml'}", err=True
        )


def _show(rows: list[dict[str, Any]], asked: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    title = (
        f"{asked['replicas']} replicas, {asked['rate']:g} requests/s of {asked['rows_per_request']} rows, "
        f"{asked['latency']}; seed {asked['seed']}"
    )
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold")
    for name in ("p50", "p99", "p99.9", "accuracy", "calls", "keeps"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        latencies = [row[key] for key in ("p50_ms", "p99_ms", "p99.9_ms")]
        table.add_row(
            row["variant"],
            *("late" if value is None else f"{value:.0f}" for value in latencies),
            f"{row['accuracy']:.4f}",
            f"{row['calls_per_row']:.2f}",
            "yes" if row["keeps_objective"] else "no",
            style="bold" if row is rows[0] else "",
        )
    Console().print(table)
    typer.echo(
        "milliseconds; accuracy: share of answers that are the uncoded model's; calls: for each row asked"
    )


def _draw(rows: list[dict[str, Any]], asked: dict[str, Any]) -> Figure:
    """Accuracy against the 99.9th percentile, with lines for what is asked of both."""
    from models.experiments.figure import COLOURS, decorate, new_figure

    figure, grid = new_figure(
        "Which policy keeps the objective?",
        f"Simulated: {asked['requests']} requests of {asked['rows_per_request']} rows, {asked['rate']:g} a second, on "
        f"{asked['replicas']} replicas, {asked['latency']}. Seed {asked['seed']}.",
        width=9.0,
        height=6.0,
    )
    axes = grid[0][0]
    kinds = list(dict.fromkeys(row["scheme"] for row in rows))
    seen: Counter[str] = Counter()
    for row in rows:
        if row["p99.9_ms"] is None:
            continue
        best = row is rows[0]
        word = "picked" if row["keeps_objective"] else "nearest"
        axes.plot(
            row["p99.9_ms"],
            row["accuracy"],
            "*" if best else _MARKERS[seen[row["scheme"]] % len(_MARKERS)],
            markersize=16 if best else 10,
            markerfacecolor=None if best else "none",
            markeredgewidth=1.8,
            color=COLOURS[kinds.index(row["scheme"])],
            label=row["variant"] + (f" ({word})" if best else ""),
        )
        seen[row["scheme"]] += 1
    if asked["percentile"] == 99.9:
        axes.axvline(asked["objective_ms"], color="#999999", linestyle=":", label="objective")
    axes.axhline(asked["accuracy"], color="#999999", linestyle="--", label="least accuracy")
    decorate(axes, title="", x="p99.9, ms", y="share of answers that are the uncoded model's")
    axes.set_xlim(left=0)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=9, frameon=False)
    return figure
