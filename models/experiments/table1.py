"""LeTCC's Table 1 on our networks, with what the paper leaves out: levers, fine-tuning, and replicas without a code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from models.experiments.comparison import (
    ADAPTED,
    OUR_VARIANTS,
    PAPER_VARIANTS,
    SYSTEMATIC,
    Experiment,
    Row,
    compare,
    comparison_settings,
)
from models.experiments.figure import COLOURS, decorate, new_figure
from models.experiments.groups import CodeSetting
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = (CodeSetting(8, 9, 1), CodeSetting(8, 10, 1), CodeSetting(8, 12, 2), CodeSetting(8, 16, 2))
"""Settings that every network is measured at, beside its own with many replicas."""

COLUMNS = ("model", "scheme", "variant", "mse", "mse_sd", "accuracy", "rel_accuracy", "rel_accuracy_sd")

_ABOUT = """Random groups of K test images are encoded for N replicas, of which S, drawn anew for each group,
never answer. Every scheme sees the same groups and the same stragglers.

- **mse** is the mean over queries of the squared L2 distance between the decoded softmax vector and the uncoded
  model's; **sd**, after it, the standard deviation over groups. **relative** is accuracy over that of the uncoded
  model on the same queries, **sd** its standard deviation over groups.
- `berrut paper` is BACC, `berrut logits+approxifer` is ApproxIFER (points of its own, logits decoded), `letcc paper`
  LeTCC as published: softmax outputs decoded in the order of arrival. `logits`, `order`, `equispaced`, `systematic` and
  `adapted` are this project's levers: decode logits, put similar inputs side by side, sit at equal distances instead of
  at Chebyshev's points, send every query as it is too and decode only what is late, ask a model fine-tuned for the code
  (`unstraggle adapt`).
- The same N replicas without a code: `replication` makes N / K copies, and loses a query when all of them straggle
  (wrong, a vector of zeros); `hedged` asks once more for what is missing, so it is exact, and late by its delay and
  a second service time; `default` makes one copy and answers what is missing with equal probabilities.
- These are not the paper's networks, so nothing here is comparable with its figures; only columns on one row of
  settings are with each other."""

_BARS = (
    ("replication", "copies", "replication"),
    ("default", "one copy", "default answer"),
    ("berrut", "paper", "BACC"),
    ("berrut", "logits+approxifer", "ApproxIFER"),
    ("letcc", "paper", "LeTCC, paper"),
    ("letcc", "logits+order+equispaced", "LeTCC, logits + order + equispaced"),
    ("letcc", "logits+order+equispaced+systematic", "LeTCC, systematic too"),
    ("letcc", "logits+order+equispaced+adapted", "LeTCC, adapted, not systematic"),
)


def table1_experiments(
    subjects: Sequence[LoadedSubject], *, groups: int | None, scale: int, seed: int
) -> list[Experiment]:
    """What to measure.

    Args:
        subjects: networks with their data.
        groups: random groups per setting; None for each subject's own number.
        scale: what to multiply those numbers by.
        seed: seed of groups and straggler sets.
    """
    return [
        Experiment(
            loaded.subject.name,
            loaded.predict,
            loaded.data,
            groups=groups or loaded.subject.groups * scale,
            seed=seed,
            settings=(loaded.subject.large, *SMALL),
            variants=(*PAPER_VARIANTS, *OUR_VARIANTS, SYSTEMATIC, ADAPTED),
            adapted=loaded.adapted,
        )
        for loaded in subjects
    ]


def run_table1(experiments: Sequence[Experiment], advance: Callable[[int], None] = lambda _: None) -> Report:
    """Measure every scheme at every setting of every network."""
    rows = [row for experiment in experiments for row in compare(experiment, advance)]
    settings = {experiment.model: comparison_settings(experiment) for experiment in experiments}
    result = {"name": "table1", "seed": experiments[0].seed, "settings": settings, "rows": rows}
    return Report(result, "codes, and replicas without one", _ABOUT, COLUMNS, draw_table1)


def draw_table1(result: Result) -> Figure:
    """Relative accuracy as dots with their 95 % intervals, one row of axes per network."""
    models = list(dict.fromkeys(row["model"] for row in result["rows"]))
    figure, grid = new_figure(
        "Accuracy over that of the uncoded model",
        "The same groups and stragglers for every scheme; bars are 95 % intervals of the mean over groups. "
        f"Hedged copies are exact (1.0) and late. Seed {result['seed']}.",
        rows=len(models),
        height=0.8 + 3.2 * len(models),
        width=10.5,
    )
    for (axes,), model in zip(grid, models, strict=True):
        _draw_model(axes, [row for row in result["rows"] if row["model"] == model])
        decorate(axes, title=model, x="K, N, S" if model == models[-1] else "", y="relative accuracy")
        axes.grid(visible=False, axis="x")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize=9, frameon=False)
    return figure


def _draw_model(axes: Axes, rows: Sequence[Row]) -> None:
    points = list(dict.fromkeys((row["k"], row["n"], row["s"]) for row in rows))
    for place, (scheme, variant, label) in enumerate(_BARS):
        mine = {
            (row["k"], row["n"], row["s"]): row
            for row in rows
            if (row["scheme"], row["variant"]) == (scheme, variant)
        }
        at = [number + (place - len(_BARS) / 2 + 0.5) * 0.1 for number, p in enumerate(points) if p in mine]
        axes.errorbar(
            at,
            [mine[point]["rel_accuracy"] for point in points if point in mine],
            yerr=[1.96 * mine[p]["rel_accuracy_sd"] / mine[p]["groups"] ** 0.5 for p in points if p in mine],
            fmt="o" if scheme in ("letcc", "berrut") else "s",
            markersize=6,
            color=COLOURS[place],
            label=label,
        )
    axes.set_xticks(range(len(points)), [", ".join(map(str, point)) for point in points])
