"""How sensitive LeTCC is to its two smoothing parameters, and which `tune` picks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

from coding.letcc import LetccParams
from models.experiments.comparison import Row
from models.experiments.figure import COLOURS, decorate, new_figure, shared_legend
from models.experiments.groups import CodeSetting, Draw, draw_groups
from models.experiments.measure import (
    Queries,
    Score,
    Variant,
    ask,
    coded_logits,
    decoded_answers,
    order_groups,
)
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject
from models.tune import Task, tune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENCODINGS = (0.0, 1e-5, 1e-3)
DECODINGS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_SERVED = Variant("letcc", logits=True, ordered=True, nodes="equispaced")
VARIANTS = (Variant("letcc"), _SERVED)
SMALL = CodeSetting(8, 12, 2)
"""Where `tune` is let choose too, as `TUNED`; with many replicas that takes long."""
TUNED = "tuned"
_DEFAULT = LetccParams()

COLUMNS = ("model", "variant", "nodes", "lambda_enc", "lambda_dec", "mse", "mse_sd", "accuracy")

_ABOUT = f"""LeTCC over both smoothing parameters, in the sum-of-squares convention: `paper` decodes softmax outputs
in the order of arrival at Chebyshev points, `logits+order+equispaced` is what the server does. **mse** is the mean over
queries of the squared L2 distance between decoded and uncoded softmax vectors, **sd** its standard deviation over
groups. The defaults are lambda_enc {_DEFAULT.lambda_enc:g} and lambda_dec {_DEFAULT.lambda_dec:g}. `{TUNED}` is what
`unstraggle tune` chooses for ({SMALL.k}, {SMALL.n}, {SMALL.s}), nodes included, from as many groups of the same images;
it keeps the defaults unless others are better beyond chance on images that its search did not see."""


@dataclass(frozen=True, slots=True)
class LambdaExperiment:
    """What is measured.

    Attributes:
        subjects: networks with their data.
        split: where the data come from, for the record.
        groups: random groups per setting; None for half of each subject's own number.
        scale: what to multiply those numbers by.
        seed: seed of groups and straggler sets.
    """

    subjects: Sequence[LoadedSubject]
    split: str = "slice"
    groups: int | None = None
    scale: int = 1
    seed: int = 0

    def points(self) -> Iterator[tuple[LoadedSubject, CodeSetting, int]]:
        """Network, setting and number of groups."""
        for loaded in self.subjects:
            for setting in (loaded.subject.large, SMALL):
                yield loaded, setting, self.groups or max(1, loaded.subject.groups * self.scale // 2)

    @property
    def steps(self) -> int:
        """Model calls on coded rows."""
        grid = len(VARIANTS) * len(ENCODINGS)
        return sum(
            grid * setting.n * groups
            + (self.task(loaded, groups).calls + setting.n * groups) * (setting == SMALL)
            for loaded, setting, groups in self.points()
        )

    def task(self, loaded: LoadedSubject, groups: int) -> Task:
        """What `tune` has to do for a network."""
        params = LetccParams(k=SMALL.k, n=SMALL.n, wait_for=SMALL.n - SMALL.s)
        return Task(params, loaded.predict, loaded.data.images, groups, self.seed)


def run_lambda(experiment: LambdaExperiment, advance: Callable[[int], None] = lambda _: None) -> Report:
    """Measure LeTCC as in the paper and with our levers over both parameters, on the same groups."""
    rows = [
        row for loaded, setting, groups in experiment.points()
        for row in _rows(experiment, loaded, setting, groups, advance)
    ]  # fmt: skip
    settings = {
        "split": experiment.split,
        "lambda_enc": list(ENCODINGS),
        "lambda_dec": list(DECODINGS),
        "points": [
            {"model": loaded.subject.name, "groups": groups, **asdict(setting)}
            for loaded, setting, groups in experiment.points()
        ],
    }
    result = {"name": "lambda", "seed": experiment.seed, "settings": settings, "rows": rows}
    return Report(result, "how much the smoothing matters", _ABOUT, COLUMNS, draw_lambda)


@dataclass(frozen=True, slots=True)
class _Bench:
    """What all rows of one network at one setting share: the groups, and who answers them."""

    loaded: LoadedSubject
    queries: Queries
    draw: Draw
    groups: int

    def row(self, setting: CodeSetting, variant: Variant, score: Score, name: str) -> Row:
        """One line of the result."""
        return {
            "model": self.loaded.subject.name,
            "dataset": self.loaded.data.name,
            "scheme": variant.scheme,
            "variant": name,
            "nodes": variant.nodes,
            "k": setting.k,
            "n": setting.n,
            "s": setting.s,
            "groups": self.groups,
            "lambda_enc": setting.lambda_enc,
            "lambda_dec": setting.lambda_dec,
            "mse": score.mse,
            "mse_sd": score.mse_sd,
            "accuracy": score.accuracy,
        }

    def scores(
        self,
        variant: Variant,
        setting: CodeSetting,
        decodings: Sequence[float],
        advance: Callable[[int], None],
    ) -> Iterator[tuple[CodeSetting, Score]]:
        """Ask the network once, and decode with each of these lambda_dec."""
        images = self.queries.images
        mine = order_groups(images, self.draw.groups) if variant.ordered else self.draw.groups
        logits = coded_logits(
            variant.code(setting), images, mine, self.loaded.predict, lambda done: advance(done * setting.n)
        )
        for lambda_dec in decodings:
            decoded = replace(setting, lambda_dec=lambda_dec)
            answers = decoded_answers(variant, variant.code(decoded), logits, self.draw.survivors)
            yield decoded, self.queries.score(answers, mine)


def _rows(
    experiment: LambdaExperiment,
    loaded: LoadedSubject,
    setting: CodeSetting,
    groups: int,
    advance: Callable[[int], None],
) -> Iterator[Row]:
    images = loaded.data.images
    bench = _Bench(
        loaded,
        ask(images, loaded.data.labels, loaded.predict),
        draw_groups(setting, rows=len(images), groups=groups, seed=experiment.seed),
        groups,
    )
    for variant in VARIANTS:
        for lambda_enc in ENCODINGS:
            encoded = replace(setting, lambda_enc=lambda_enc)
            for decoded, score in bench.scores(variant, encoded, DECODINGS, advance):
                yield bench.row(decoded, variant, score, variant.name)
    if setting == SMALL:
        chosen = cast("LetccParams", tune(experiment.task(loaded, groups), advance).chosen)
        variant = replace(_SERVED, nodes=chosen.nodes)
        encoded = replace(setting, lambda_enc=chosen.lambda_enc)
        for decoded, score in bench.scores(variant, encoded, [chosen.lambda_dec], advance):
            yield bench.row(decoded, variant, score, TUNED)


def draw_lambda(result: Result) -> Figure:
    """Mse against lambda_dec, a line for each lambda_enc; columns of axes are settings, rows are variants."""
    panels = list(dict.fromkeys((row["model"], row["k"], row["n"], row["s"]) for row in result["rows"]))
    figure, grid = new_figure(
        "Mean squared error against the smoothing of both curves",
        f"Bars are 95 % intervals over groups; the dotted line is the default lambda_dec. Seed {result['seed']}.",
        rows=len(VARIANTS),
        columns=len(panels),
        width=1.6 + 3.0 * len(panels),
        height=7.4,
    )
    places = range(len(DECODINGS))
    for axes_row, variant in zip(grid, VARIANTS, strict=True):
        for axes, panel in zip(axes_row, panels, strict=True):
            for number, lambda_enc in enumerate(ENCODINGS):
                mine = [
                    row
                    for row in result["rows"]
                    if (row["model"], row["k"], row["n"], row["s"]) == panel
                    and (row["variant"], row["lambda_enc"]) == (variant.name, lambda_enc)
                ]
                axes.errorbar(
                    places,
                    [row["mse"] for row in mine],
                    yerr=[1.96 * row["mse_sd"] / row["groups"] ** 0.5 for row in mine],
                    fmt="o-",
                    markersize=4,
                    color=COLOURS[number + 1],
                    label=f"lambda_enc {lambda_enc:g}",
                )
            picked = [
                row
                for row in result["rows"]
                if (row["model"], row["k"], row["n"], row["s"]) == panel and row["variant"] == TUNED
            ]
            if variant == _SERVED and picked:
                axes.plot(
                    [DECODINGS.index(row["lambda_dec"]) for row in picked],
                    [row["mse"] for row in picked],
                    "*",
                    markersize=13,
                    markerfacecolor="none",
                    color=COLOURS[0],
                    label="picked by `unstraggle tune`",
                )
            axes.axvline(DECODINGS.index(_DEFAULT.lambda_dec), color="#999999", linestyle=":", linewidth=1)
            axes.set_xticks(places, [f"{value:g}" for value in DECODINGS], rotation=45)
            axes.set_ylim(bottom=0)
            point = ", ".join(map(str, panel[1:]))
            decorate(axes, title=f"{panel[0]} ({point})\n{variant.name}", x="lambda_dec", y="mse")
    shared_legend(figure, grid[-1][-1])
    return figure
