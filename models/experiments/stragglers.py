"""Accuracy against the number of stragglers, at random and in the runs in which hosts fail (LeTCC's Figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.experiments.comparison import Row, uncoded_scores
from models.experiments.figure import COLOURS, decorate, new_figure, shared_legend
from models.experiments.groups import CodeSetting, Draw, draw_groups
from models.experiments.measure import Queries, Variant, ask, coded_logits, decoded_answers, order_groups
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = (Variant("berrut"), Variant("letcc"), Variant("letcc", logits=True, ordered=True))
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Stragglers as shares of the replicas, as far as K arrivals are left."""
HOST_SHARE = 0.1
"""Replicas of one host, as a share of all: stragglers by host are runs of so many neighbours."""

Kind: TypeAlias = Literal["random", "by host", "by host, spread"]
KINDS: tuple[Kind, ...] = ("random", "by host", "by host, spread")

COLUMNS = (
    "model",
    "stragglers",
    "scheme",
    "variant",
    "mse",
    "worst_mse",
    "rel_accuracy",
    "worst_rel_accuracy",
)

_ABOUT = """The same coded answers are decoded again and again, each time without another set of S stragglers:
`random` sets; sets `by host`, in which whole hosts straggle, each a tenth of the replicas and neighbours on the
curve; and sets `by host, spread`, the same with neighbours on different hosts, which is how to place them. **mse**
and **relative** are means over groups and straggler sets; the **worst** ones are those of the worst set, averaged
over groups. Replication makes N / K copies on the same replicas, the copies of one query on different hosts. Hedged
copies are exact at any S, and late."""


@dataclass(frozen=True, slots=True)
class StragglerExperiment:
    """What is measured.

    Attributes:
        subjects: networks with their data.
        groups: random groups; None for a third of each subject's own number.
        scale: what to multiply those numbers by.
        sets: straggler sets for each S.
        seed: seed of groups and sets.
    """

    subjects: Sequence[LoadedSubject]
    groups: int | None = None
    scale: int = 1
    sets: int = 30
    seed: int = 0

    def groups_of(self, loaded: LoadedSubject) -> int:
        """Random groups for one network."""
        return self.groups or max(1, loaded.subject.groups * self.scale // 3)

    @property
    def steps(self) -> int:
        """Model calls on coded rows."""
        return sum(
            len(VARIANTS) * self.groups_of(loaded) * loaded.subject.large.n for loaded in self.subjects
        )


def run_stragglers(
    experiment: StragglerExperiment, advance: Callable[[int], None] = lambda _: None
) -> Report:
    """Measure every network at its setting with many replicas, over S."""
    rows = [row for loaded in experiment.subjects for row in _rows(experiment, loaded, advance)]
    settings = {
        "straggler_sets": experiment.sets,
        "host_share": HOST_SHARE,
        "models": {
            loaded.subject.name: {"groups": experiment.groups_of(loaded), **asdict(loaded.subject.large)}
            for loaded in experiment.subjects
        },
    }
    result = {"name": "stragglers", "seed": experiment.seed, "settings": settings, "rows": rows}
    return Report(result, "accuracy against the number of stragglers", _ABOUT, COLUMNS, draw_stragglers)


def straggler_sets(kind: Kind, n: int, s: int, sets: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Survivors of random straggler sets.

    Args:
        kind: `random` replicas straggle; or `by host` whole hosts of neighbours, and of the last one as many as are
            needed; or `by host, spread` likewise, with neighbours on different hosts.
        n: N.
        s: S.
        sets: how many.
        random: where the draws come from.

    Returns:
        Shape (sets, n - s), ascending.
    """
    if kind == "random":
        replicas = random.permuted(np.tile(np.arange(n), (sets, 1)), axis=1)
        return np.sort(replicas[:, s:], axis=1)
    hosts = round(1 / HOST_SHARE)
    host = np.arange(n) * hosts // n if kind == "by host" else np.arange(n) % hosts
    orders = random.permuted(np.tile(np.arange(hosts), (sets, 1)), axis=1)
    # The replicas of the host that comes first in a set's own order straggle first.
    turns = np.argsort(orders, axis=1)[:, host]
    return np.sort(np.argsort(turns, axis=1, kind="stable")[:, s:], axis=1)


def _rows(
    experiment: StragglerExperiment, loaded: LoadedSubject, advance: Callable[[int], None]
) -> Iterator[Row]:
    images, setting = loaded.data.images, loaded.subject.large
    groups = draw_groups(
        setting, rows=len(images), groups=experiment.groups_of(loaded), seed=experiment.seed
    ).groups
    ordered = order_groups(images, groups)
    replies = {}
    for variant in VARIANTS:
        mine = ordered if variant.ordered else groups
        replies[variant] = (
            mine,
            coded_logits(
                variant.code(setting), images, mine, loaded.predict, lambda done: advance(done * setting.n)
            ),
        )
    queries = ask(images, loaded.data.labels, loaded.predict)
    for s in sorted({round(share * setting.n) for share in SHARES}):
        if setting.n - s < setting.k:
            continue
        for kind in KINDS:
            point = _Point(
                kind, replace(setting, s=s), experiment.sets, (experiment.seed, s, KINDS.index(kind))
            )
            yield from _point_rows(loaded, point, queries, groups, replies)


@dataclass(frozen=True, slots=True)
class _Point:
    """One S, one kind of straggler sets, and the seed of the sets."""

    kind: Kind
    setting: CodeSetting
    sets: int
    seed: tuple[int, ...]

    def survivors(self, kind: Kind) -> NDArray[np.intp]:
        """The survivors of each set, shape (sets, N - S)."""
        random = np.random.default_rng(self.seed)
        return straggler_sets(kind, self.setting.n, self.setting.s, self.sets, random)


def _point_rows(
    loaded: LoadedSubject,
    point: _Point,
    queries: Queries,
    groups: NDArray[np.intp],
    replies: dict[Variant, tuple[NDArray[np.intp], NDArray[np.float32]]],
) -> Iterator[Row]:
    # With replica n running query n modulo K, blocks of neighbours are how copies of a query get to different hosts.
    blocks: Kind = "random" if point.kind == "random" else "by host"
    copies = []
    for survivors in point.survivors(blocks):
        draw = Draw(groups, np.tile(survivors, (len(groups), 1)))
        _, _, score = next(iter(uncoded_scores(queries, point.setting, draw)))
        copies.append((score.mse, score.accuracy / score.base_accuracy))
    yield _row(loaded, point, ("replication", "copies"), len(groups), copies)
    sets = point.survivors(point.kind)
    for variant, (mine, logits) in replies.items():
        code = variant.code(point.setting)
        scores = []
        for survivors in sets:
            answers = decoded_answers(variant, code, logits, np.tile(survivors, (len(groups), 1)))
            score = queries.score(answers, mine)
            scores.append((score.mse, score.accuracy / score.base_accuracy))
        yield _row(loaded, point, (variant.scheme, variant.name), len(groups), scores)


def _row(
    loaded: LoadedSubject,
    point: _Point,
    scheme: tuple[str, str],
    groups: int,
    scores: Sequence[tuple[float, float]],
) -> Row:
    mse, relative = np.array(scores).T
    return {
        "model": loaded.subject.name,
        "dataset": loaded.data.name,
        "scheme": scheme[0],
        "variant": scheme[1],
        "k": point.setting.k,
        "n": point.setting.n,
        "s": point.setting.s,
        "stragglers": point.kind,
        "groups": groups,
        "mse": float(mse.mean()),
        "worst_mse": float(mse.max()),
        "rel_accuracy": float(relative.mean()),
        "worst_rel_accuracy": float(relative.min()),
    }


_LINES = (
    ("replication", "copies", "replication"),
    ("berrut", "paper", "BACC"),
    ("letcc", "paper", "LeTCC, paper"),
    ("letcc", "logits+order", "LeTCC, logits + order"),
)


def draw_stragglers(result: Result) -> Figure:
    """Columns of axes are networks; rows are relative accuracy and mse, each for both kinds of sets."""
    models = list(dict.fromkeys(row["model"] for row in result["rows"]))
    panels = [
        (kind, key, worst)
        for key, worst in (("rel_accuracy", "worst_rel_accuracy"), ("mse", "worst_mse"))
        for kind in KINDS
    ]
    figure, grid = new_figure(
        "Accuracy against the number of stragglers",
        "Lines are means over groups and straggler sets; the shaded side reaches to the worst set of "
        f"{result['settings']['straggler_sets']}. Seed {result['seed']}.",
        rows=len(panels),
        columns=len(models),
        width=2.2 + 3.6 * len(models),
        height=16.0,
    )
    names = {"rel_accuracy": "relative accuracy", "mse": "mse"}
    for axes_row, (kind, key, worst) in zip(grid, panels, strict=True):
        for axes, model in zip(axes_row, models, strict=True):
            rows = [row for row in result["rows"] if (row["model"], row["stragglers"]) == (model, kind)]
            for number, (scheme, variant, label) in enumerate(_LINES):
                mine = [row for row in rows if (row["scheme"], row["variant"]) == (scheme, variant)]
                at = [row["s"] for row in mine]
                mean, far = [row[key] for row in mine], [row[worst] for row in mine]
                axes.plot(at, mean, "o-", markersize=4, color=COLOURS[number], label=label)
                axes.fill_between(at, mean, far, color=COLOURS[number], alpha=0.12, linewidth=0)
            if key == "mse":
                # Softmax vectors are at most a squared distance of 2 apart; beyond it the curve was extrapolated.
                axes.set_ylim(0, min(2.0, 1.05 * max(row[worst] for row in rows)))
            k, n = rows[0]["k"], rows[0]["n"]
            decorate(axes, title=f"{model}, {kind}", x=f"stragglers S of N = {n} (K = {k})", y=names[key])
    shared_legend(figure, grid[0][0])
    return figure
