"""How sensitive LeTCC is to its two smoothing parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from coding.letcc import LetccParams
from models.experiments.comparison import Row
from models.experiments.figure import COLOURS, decorate, new_figure, shared_legend
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import Variant, ask, coded_logits, decoded_answers, order_groups
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENCODINGS = (0.0, 1e-5, 1e-3)
DECODINGS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
VARIANTS = (Variant("letcc"), Variant("letcc", logits=True, ordered=True, nodes="equispaced"))
_DEFAULT = LetccParams()

COLUMNS = ("model", "variant", "lambda_enc", "lambda_dec", "mse", "mse_sd", "accuracy")

_ABOUT = f"""LeTCC over both smoothing parameters, in the sum-of-squares convention: `paper` decodes softmax outputs
in the order of arrival at Chebyshev points, `logits+order+equispaced` is what the server does. **mse** is the mean over
queries of the squared L2 distance between decoded and uncoded softmax vectors, **sd** its standard deviation over
groups. `unstraggle tune` chooses both for a model of your own. The defaults are lambda_enc {_DEFAULT.lambda_enc:g} and
lambda_dec {_DEFAULT.lambda_dec:g}."""


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
            for setting in (loaded.subject.large, CodeSetting(8, 12, 2)):
                yield loaded, setting, self.groups or max(1, loaded.subject.groups * self.scale // 2)

    @property
    def steps(self) -> int:
        """Model calls on coded rows."""
        return (
            len(VARIANTS) * len(ENCODINGS) * sum(setting.n * groups for _, setting, groups in self.points())
        )


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


def _rows(
    experiment: LambdaExperiment,
    loaded: LoadedSubject,
    setting: CodeSetting,
    groups: int,
    advance: Callable[[int], None],
) -> Iterator[Row]:
    images = loaded.data.images
    queries = ask(images, loaded.data.labels, loaded.predict)
    draw = draw_groups(setting, rows=len(images), groups=groups, seed=experiment.seed)
    for variant in VARIANTS:
        mine = order_groups(images, draw.groups) if variant.ordered else draw.groups
        for lambda_enc in ENCODINGS:
            encoded = replace(setting, lambda_enc=lambda_enc)
            logits = coded_logits(
                variant.code(encoded), images, mine, loaded.predict, lambda done: advance(done * setting.n)
            )
            for lambda_dec in DECODINGS:
                code = variant.code(replace(encoded, lambda_dec=lambda_dec))
                score = queries.score(decoded_answers(variant, code, logits, draw.survivors), mine)
                yield {
                    "model": loaded.subject.name,
                    "dataset": loaded.data.name,
                    "scheme": variant.scheme,
                    "variant": variant.name,
                    "k": setting.k,
                    "n": setting.n,
                    "s": setting.s,
                    "groups": groups,
                    "lambda_enc": lambda_enc,
                    "lambda_dec": lambda_dec,
                    "mse": score.mse,
                    "mse_sd": score.mse_sd,
                    "accuracy": score.accuracy,
                }


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
            axes.axvline(DECODINGS.index(_DEFAULT.lambda_dec), color="#999999", linestyle=":", linewidth=1)
            axes.set_xticks(places, [f"{value:g}" for value in DECODINGS], rotation=45)
            axes.set_ylim(bottom=0)
            point = ", ".join(map(str, panel[1:]))
            decorate(axes, title=f"{panel[0]} ({point})\n{variant.name}", x="lambda_dec", y="mse")
    shared_legend(figure, grid[0][0])
    return figure
