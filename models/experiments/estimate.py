"""How well the error estimate that comes with each answer tells good answers from bad ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from models.experiments.comparison import Row
from models.experiments.figure import COLOURS, decorate, new_figure
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import Floats, Variant, coded_logits, order_groups
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANT = Variant("letcc", logits=True, ordered=True, nodes="equispaced")
SMALL = (CodeSetting(8, 12, 2), CodeSetting(8, 20, 3))
BINS = 10
_BOOTSTRAPS = 300

COLUMNS = ("model", "wrong", "auroc", "auroc_low", "auroc_high", "margin_auroc", "rank_correlation", "ratio")

_ABOUT = """Every decoded answer carries an estimate of its distance from the uncoded model's logits. **wrong** is
the share of answers whose class is not the uncoded model's, **auroc** the probability that the estimate is larger
for a wrong answer than for a right one (0.5 is chance), with its 95 % interval over groups; **margin_auroc** is the
same for the decoded answer's own margin (first logit less the second, small is suspicious), which any server could
use. **rank_correlation** is Spearman's between estimated and true distance, **ratio** the median of estimated over
true. The picture shows, by tenths of the answers with rising estimate, the true distance and the share of wrong
answers. Replicas without a code answer exactly or not at all, and have nothing to estimate."""


@dataclass(frozen=True, slots=True)
class EstimateExperiment:
    """What is measured.

    Attributes:
        subjects: networks with their data.
        groups: random groups per setting; None for each subject's own number.
        scale: what to multiply those numbers by.
        seed: seed of groups and straggler sets.
    """

    subjects: Sequence[LoadedSubject]
    groups: int | None = None
    scale: int = 1
    seed: int = 0

    def points(self) -> Iterator[tuple[LoadedSubject, CodeSetting, int]]:
        """Network, setting and number of groups."""
        for loaded in self.subjects:
            large = loaded.subject.large
            others = [setting for setting in SMALL if (setting.k, setting.n) != (large.k, large.n)]
            for setting in (large, *others):
                yield loaded, setting, self.groups or loaded.subject.groups * self.scale

    @property
    def steps(self) -> int:
        """Model calls on coded rows."""
        return sum(setting.n * groups for _, setting, groups in self.points())


def run_estimate(experiment: EstimateExperiment, advance: Callable[[int], None] = lambda _: None) -> Report:
    """Measure every network at its own setting with many replicas, and at two smaller ones."""
    rows = [_row(experiment, *point, advance) for point in experiment.points()]
    settings = {
        "bins": BINS,
        "points": [
            {"model": loaded.subject.name, "groups": groups, **asdict(setting)}
            for loaded, setting, groups in experiment.points()
        ],
    }
    result = {"name": "estimate", "seed": experiment.seed, "settings": settings, "rows": rows}
    return Report(
        result, "does the error estimate tell good answers from bad?", _ABOUT, COLUMNS, draw_estimate
    )


@dataclass(frozen=True, slots=True)
class _Answers:
    """Per answer, shape (G, K): estimated and true distance, margin, and whether the class is wrong."""

    estimated: NDArray[np.floating]
    true: NDArray[np.floating]
    margin: NDArray[np.floating]
    wrong: NDArray[np.bool_]


def _row(
    experiment: EstimateExperiment,
    loaded: LoadedSubject,
    setting: CodeSetting,
    groups: int,
    advance: Callable[[int], None],
) -> Row:
    answers = _answers(loaded, setting, groups, experiment.seed, advance)
    random = np.random.default_rng(experiment.seed)
    picks = random.integers(groups, size=(_BOOTSTRAPS, groups))
    resampled = [auroc(answers.estimated[pick], answers.wrong[pick]) for pick in picks]
    defined = [value for value in resampled if value is not None]
    low, high = map(float, np.percentile(defined, [2.5, 97.5])) if defined else (None, None)
    return {
        "model": loaded.subject.name,
        "dataset": loaded.data.name,
        "scheme": VARIANT.scheme,
        "variant": VARIANT.name,
        "k": setting.k,
        "n": setting.n,
        "s": setting.s,
        "groups": groups,
        "wrong": float(answers.wrong.mean()),
        "auroc": auroc(answers.estimated, answers.wrong),
        "auroc_low": low,
        "auroc_high": high,
        "margin_auroc": auroc(-answers.margin, answers.wrong),
        "rank_correlation": float(spearmanr(answers.estimated.ravel(), answers.true.ravel()).statistic),
        "ratio": float(np.median(answers.estimated / answers.true)),
        "curve": _curve(answers),
    }


def _answers(
    loaded: LoadedSubject, setting: CodeSetting, groups: int, seed: int, advance: Callable[[int], None]
) -> _Answers:
    images, code = loaded.data.images, VARIANT.code(setting)
    draw = draw_groups(setting, rows=len(images), groups=groups, seed=seed)
    ordered = order_groups(images, draw.groups)
    logits = coded_logits(code, images, ordered, loaded.predict, lambda done: advance(done * setting.n))
    truth = loaded.predict(images[ordered.ravel()]).reshape(*ordered.shape, -1)
    decoded = np.empty_like(truth)
    estimated = np.empty(ordered.shape)
    for group, survivors in enumerate(draw.survivors):
        some = code.decode({int(task): logits[task, group : group + 1] for task in survivors})
        decoded[group], estimated[group] = some.outputs[:, 0], some.error[:, 0]
    first_two = np.sort(decoded, axis=2)[:, :, -2:]
    return _Answers(
        estimated=estimated,
        true=_distance(decoded, truth),
        margin=first_two[:, :, 1] - first_two[:, :, 0],
        wrong=decoded.argmax(axis=2) != truth.argmax(axis=2),
    )


def _distance(decoded: Floats, truth: Floats) -> NDArray[np.floating]:
    distance: NDArray[np.floating] = np.linalg.norm(decoded - truth, axis=2)
    return distance


def auroc(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float | None:
    """The probability that a positive scores higher than a negative, ties counting half; None without one of either.

    Args:
        scores: any shape.
        positive: the same shape.
    """
    ranks = rankdata(scores.ravel())
    hits = positive.ravel()
    positives, negatives = int(hits.sum()), int((~hits).sum())
    if not positives or not negatives:
        return None
    return float((ranks[hits].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _curve(answers: _Answers) -> list[dict[str, Any]]:
    """Means over tenths of the answers with rising estimate."""
    order = np.argsort(answers.estimated, axis=None)
    return [
        {
            "estimated": float(answers.estimated.ravel()[some].mean()),
            "true": float(answers.true.ravel()[some].mean()),
            "wrong": float(answers.wrong.ravel()[some].mean()),
            "answers": len(some),
        }
        for some in np.array_split(order, BINS)
    ]


def draw_estimate(result: Result) -> Figure:
    """On the left true against estimated distance, on the right the share of wrong answers, by tenths."""
    models = list(dict.fromkeys(row["model"] for row in result["rows"]))
    figure, grid = new_figure(
        "The error estimate against the truth",
        "Each dot is a tenth of the answers, by rising estimate; bars are 95 % intervals. LeTCC as it is served. "
        f"Seed {result['seed']}.",
        rows=len(models),
        columns=2,
        width=10.5,
        height=0.8 + 3.7 * len(models),
    )
    for (left, right), model in zip(grid, models, strict=True):
        largest = 0.0
        rows = [row for row in result["rows"] if row["model"] == model]
        for number, row in enumerate(rows):
            estimated = [point["estimated"] for point in row["curve"]]
            true = [point["true"] for point in row["curve"]]
            largest = max(largest, *estimated, *true)
            area = "undefined" if row["auroc"] is None else f"{row['auroc']:.2f}"
            label = f"({row['k']}, {row['n']}, {row['s']}): AUROC {area}"
            left.plot(estimated, true, "o-", markersize=4, color=COLOURS[number + 1], label=label)
            shares = np.array([point["wrong"] for point in row["curve"]])
            half = 1.96 * np.sqrt(shares * (1 - shares) / row["curve"][0]["answers"])
            right.errorbar(
                np.arange(1, BINS + 1) + 0.1 * (number - 1),
                shares,
                yerr=[np.minimum(half, shares), np.minimum(half, 1 - shares)],
                fmt="o-",
                markersize=4,
                color=COLOURS[number + 1],
                label=label,
            )
        left.plot([0, largest], [0, largest], color="#999999", linewidth=1, label="perfect")
        left.legend(fontsize=8, frameon=False)
        decorate(left, title=model, x="estimated distance, logits", y="true distance, logits")
        decorate(right, title=model, x="tenth of the answers, by estimate", y="share with the wrong class")
    return figure
