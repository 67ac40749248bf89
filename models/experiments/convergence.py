"""How the error falls as replicas are added (LeTCC's Figure 1b)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from models.experiments.comparison import Row
from models.experiments.figure import COLOURS, decorate, new_figure
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import Floats, Variant, coded_logits, decode_groups, order_groups
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

K = 8
STRAGGLERS = (0, 3)
FUNCTION_REPLICAS = (16, 24, 32, 48, 64, 96)
NETWORK_REPLICAS = (12, 16, 24, 32, 48, 64, 96)
FUNCTION = "x sin x"
_BOOTSTRAPS = 1000
_FUNCTION_RANGE = 3.0

COLUMNS = ("model", "scheme", "variant", "mse", "mse_low", "mse_high", "slope", "slope_low", "slope_high")

_ABOUT = f"""Groups of K = {K} are encoded for more and more replicas, of which S never answer; **mse** is the mean
squared distance of decoded outputs (logits, for a network) from the true ones, with its 95 % interval over groups.
The **slope** is that of a line through log mse against log N, its 95 % interval from {_BOOTSTRAPS} resamplings of
the groups. lambda is 0 in both directions: the rates are about interpolation.

- `{FUNCTION}`: uniform queries in [-{_FUNCTION_RANGE:g}, {_FUNCTION_RANGE:g}], ascending, in double precision. The
  papers prove N^-3 for LeTCC and less for BACC.
- A network is not smooth enough for the rate: its ReLUs put corners into the curve.
- No code: 2 copies of each query are exact from N = 16 on at S = 0, and lose nothing at S = 3 once N / K exceeds 3."""


@dataclass(frozen=True, slots=True)
class ConvergenceExperiment:
    """What is measured.

    Attributes:
        network: a network with its data.
        groups: random groups per point; a tenth of it for the network.
        seed: seed of groups and straggler sets.
    """

    network: LoadedSubject
    groups: int = 500
    seed: int = 0

    @property
    def network_groups(self) -> int:
        """Random groups for the network."""
        return max(2, self.groups // 10)

    @property
    def steps(self) -> int:
        """Model calls on coded rows."""
        return len(_variants()) * self.network_groups * sum(NETWORK_REPLICAS)


def run_convergence(
    experiment: ConvergenceExperiment, advance: Callable[[int], None] = lambda _: None
) -> Report:
    """Measure the function and the network."""
    random = np.random.default_rng(experiment.seed)
    rows = [
        *_curve(
            FUNCTION, FUNCTION_REPLICAS, lambda n, variant: _function_outputs(experiment, n, variant), random
        ),
        *_curve(
            experiment.network.subject.name,
            NETWORK_REPLICAS,
            lambda n, variant: _network_outputs(experiment, n, variant, advance),
            random,
        ),
    ]
    settings = {"groups": {FUNCTION: experiment.groups, "network": experiment.network_groups}, "lambda": 0.0}
    result = {"name": "convergence", "seed": experiment.seed, "settings": settings, "rows": rows}
    return Report(result, "how the error falls as replicas are added", _ABOUT, COLUMNS, draw_convergence)


def _variants() -> tuple[Variant, ...]:
    return (
        Variant("berrut", logits=True),
        Variant("letcc", logits=True),
        Variant("letcc", logits=True, ordered=True),
    )


def _curve(
    model: str,
    replicas: Sequence[int],
    ask: Callable[[int, Variant], tuple[NDArray[np.floating], NDArray[np.floating]]],
    random: np.random.Generator,
) -> Iterator[Row]:
    """Rows of one function, over variants, S and N; every row of a curve carries its slope."""
    for variant in _variants():
        if variant.ordered and model == FUNCTION:
            continue
        replies = {n: ask(n, variant) for n in replicas}
        for s in STRAGGLERS:
            errors = np.stack([_errors(variant, n, s, *replies[n]) for n in replicas])
            yield from _curve_rows(model, variant, s, replicas, errors, random)


def _errors(
    variant: Variant, n: int, s: int, outputs: NDArray[np.floating], truth: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Mean squared error of each group, shape (G,)."""
    setting = CodeSetting(K, n, s, lambda_dec=0.0)
    survivors = draw_groups(setting, rows=K, groups=len(truth), seed=n).survivors
    decoded = decode_groups(variant.code(setting), outputs, survivors)
    errors: NDArray[np.float64] = np.square(decoded - truth, dtype=np.float64).sum(axis=2).mean(axis=1)
    return errors


def _curve_rows(
    model: str,
    variant: Variant,
    s: int,
    replicas: Sequence[int],
    errors: NDArray[np.float64],
    random: np.random.Generator,
) -> Iterator[Row]:
    slope = _slopes(replicas, errors.mean(axis=1)[:, np.newaxis])[0]
    groups = errors.shape[1]
    draws = random.integers(groups, size=(_BOOTSTRAPS, groups))
    means = errors[:, draws].mean(axis=2)
    low, high = np.percentile(_slopes(replicas, means), [2.5, 97.5])
    bounds = np.percentile(means, [2.5, 97.5], axis=1)
    for number, n in enumerate(replicas):
        yield {
            "model": model,
            "scheme": variant.scheme,
            "variant": "order" if variant.ordered else "no order",
            "k": K,
            "n": n,
            "s": s,
            "groups": groups,
            "mse": float(errors[number].mean()),
            "mse_low": float(bounds[0, number]),
            "mse_high": float(bounds[1, number]),
            "slope": float(slope),
            "slope_low": float(low),
            "slope_high": float(high),
        }


def _slopes(replicas: Sequence[int], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slopes of log error against log N, errors of shape (len(replicas), m)."""
    slopes: NDArray[np.float64] = np.polyfit(np.log(replicas), np.log(errors), 1)[0]
    return slopes


def _function_outputs(
    experiment: ConvergenceExperiment, n: int, variant: Variant
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    random = np.random.default_rng((experiment.seed, K))
    spread = random.uniform(-_FUNCTION_RANGE, _FUNCTION_RANGE, size=(experiment.groups, K, 1))
    queries = np.sort(spread, axis=1)
    payloads = np.asarray(variant.code(CodeSetting(K, n, 0)).encode(queries), np.float64)
    return payloads * np.sin(payloads), queries * np.sin(queries)


def _network_outputs(
    experiment: ConvergenceExperiment, n: int, variant: Variant, advance: Callable[[int], None]
) -> tuple[Floats, Floats]:
    images, predict = experiment.network.data.images, experiment.network.predict
    setting = CodeSetting(K, n, 0)
    # The same groups for every N: the curves then differ by N alone.
    groups = draw_groups(
        CodeSetting(K, K, 0), rows=len(images), groups=experiment.network_groups, seed=experiment.seed
    ).groups
    if variant.ordered:
        groups = order_groups(images, groups)
    outputs = coded_logits(variant.code(setting), images, groups, predict, lambda done: advance(done * n))
    truth = predict(images[groups.ravel()]).reshape(*groups.shape, -1)
    return outputs, truth


def draw_convergence(result: Result) -> Figure:
    """Error against N, both logarithmic, one panel for the function and one for the network."""
    models = list(dict.fromkeys(row["model"] for row in result["rows"]))
    figure, grid = new_figure(
        "Error against the number of replicas",
        f"K = {K}; bars are 95 % intervals over groups, slopes those of log mse against log N. Seed {result['seed']}.",
        columns=len(models),
        width=12.5,
        height=6.2,
    )
    for axes, model in zip(grid[0], models, strict=True):
        _draw_model(axes, [row for row in result["rows"] if row["model"] == model])
        unit = "" if model == FUNCTION else ", logits squared"
        decorate(axes, title=model, x="replicas N", y=f"mse of decoded outputs{unit}")
        axes.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def _draw_model(axes: Axes, rows: Sequence[Row]) -> None:
    curves = list(dict.fromkeys((row["scheme"], row["variant"], row["s"]) for row in rows))
    names = {"berrut": "BACC", "letcc": "LeTCC"}
    for scheme, variant, s in curves:
        mine = [row for row in rows if (row["scheme"], row["variant"], row["s"]) == (scheme, variant, s)]
        order = ", ordered" if variant == "order" else ""
        axes.errorbar(
            [row["n"] for row in mine],
            [row["mse"] for row in mine],
            yerr=[
                [row["mse"] - row["mse_low"] for row in mine],
                [row["mse_high"] - row["mse"] for row in mine],
            ],
            fmt="o-" if s == 0 else "s--",
            markersize=4,
            color=COLOURS[1 if scheme == "berrut" else 3 if order else 2],
            label=f"{names[scheme]}{order}, S = {s}: slope {mine[0]['slope']:.1f} "
            f"({mine[0]['slope_low']:.1f} to {mine[0]['slope_high']:.1f})",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    numbers = sorted({row["n"] for row in rows})
    axes.set_xticks(numbers, [str(number) for number in numbers], minor=False)
    axes.minorticks_off()
