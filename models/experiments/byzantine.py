"""Wrong replicas: how often they are found, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from coding.locate import rational
from coding.nodes import approxifer_tasks
from coding.scheme import Scheme
from models.experiments.comparison import Row
from models.experiments.figure import COLOURS, decorate, new_figure, shared_legend
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import Floats, Queries, Score, ask, coded_logits, order_groups
from models.experiments.report import Report, Result
from models.experiments.subjects import LoadedSubject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

K = 12
WRONG = (1, 2, 3)
SPARE = 5
"""Beside ApproxIFER's number of replicas, our locator is measured with so many beyond K + 2 E, which is six fewer."""

Locate: TypeAlias = Callable[[Floats], tuple[int, ...]]
"""From one group's arrivals (N, C) to the positions to drop."""

COLUMNS = ("attack", "wrong", "method", "accuracy", "rel_accuracy", "located", "mistaken")

_ABOUT = f"""LeNet5 on MNIST, K = {K}: every replica answers, and E of them, drawn anew for each group, answer
falsely. **located** is the share of the false answers that the method dropped, **mistaken** the number of honest
answers that it dropped in a group, **accuracy** that of the answers decoded from the rest (against labels).

- Attacks: noise of N(0, sigma^2) on the logits; the logits' sign flipped; the answer to another coded query of the
  same replica; a plausible wrong class (the two largest logits exchanged); colluding replicas, which all answer for
  one and the same other group. Under `none` nobody lies, and all methods still look for E.
- `ApproxIFER` decodes by Berrut's rational function after its own locator, with the N = 2 (K + E) - 1 replicas that it
  needs; it always drops E. `larger lambda` is LeTCC's own answer, lambda_dec = (E / N)^(8/5) and no locator. `ours` is
  what the server does with `scheme.max_wrong: E`, at ApproxIFER's number of replicas and with only
  N = K + 2 E + {SPARE}. `nothing` decodes everything as if nothing were wrong. All but ApproxIFER put similar queries
  together, at equispaced points, which are the server's default.
- `vote` is replication on the larger number of replicas: N / K copies of each query, the majority's class. Two copies
  that differ decide nothing, so it takes three to outvote one liar. Hedging does not notice wrong answers: it is as
  wrong as the replica it happens to ask."""


class Attack(Protocol):
    """Makes the answers of wrong replicas, shape (G, E, C), from their honest ones and those of another group."""

    def __call__(self, honest: Floats, other: Floats, random: np.random.Generator) -> Floats:
        """Both in shape (G, E, C); `other` is what the same replicas answer to the next group."""


def _noise(sigma: float) -> Attack:
    def attack(honest: Floats, other: Floats, random: np.random.Generator) -> Floats:  # noqa: ARG001
        return honest + random.normal(0.0, sigma, honest.shape).astype(np.float32)

    return attack


def _flip(honest: Floats, other: Floats, random: np.random.Generator) -> Floats:  # noqa: ARG001
    return -honest


def _other_query(honest: Floats, other: Floats, random: np.random.Generator) -> Floats:
    # Each wrong replica answers for a group of its own.
    replicas = range(honest.shape[1])
    return np.stack(
        [np.roll(other[:, e], int(random.integers(len(honest) - 1)), axis=0) for e in replicas], axis=1
    )


def _plausible(honest: Floats, other: Floats, random: np.random.Generator) -> Floats:  # noqa: ARG001
    first, second = np.split(np.argsort(honest, axis=2)[:, :, :-3:-1], 2, axis=2)
    false = honest.copy()
    np.put_along_axis(false, first, np.take_along_axis(honest, second, axis=2), axis=2)
    np.put_along_axis(false, second, np.take_along_axis(honest, first, axis=2), axis=2)
    return false


def _collude(honest: Floats, other: Floats, random: np.random.Generator) -> Floats:  # noqa: ARG001
    return other


ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "noise 1": _noise(1.0),
        "noise 10": _noise(10.0),
        "noise 100": _noise(100.0),
        "sign flip": _flip,
        "other query": _other_query,
        "plausible": _plausible,
        "colluding": _collude,
    }
)
"""Every attack by name."""
HONEST = "none"


@dataclass(frozen=True, slots=True)
class Method:
    """A code and what is done about wrong replicas.

    Attributes:
        name: in the result.
        code: the code; it may look for wrong arrivals itself.
        ordered: put similar queries next to each other.
        locate: names the arrivals to drop before the code gets them.
        locates: whether anything is dropped at all.
    """

    name: str
    code: Scheme
    ordered: bool
    locate: Locate | None = None
    locates: bool = True


def methods(wrong: int) -> tuple[Method, ...]:
    """What is compared for E wrong replicas."""
    many, few = 2 * (K + wrong) - 1, K + 2 * wrong + SPARE
    weak = (wrong / many) ** 1.6

    def letcc(n: int, lambda_dec: float = 1e-5, max_wrong: int = 0) -> Scheme:
        return LetccParams(k=K, n=n, wait_for=n, lambda_dec=lambda_dec, max_wrong=max_wrong).build(K)

    def theirs(arrivals: Floats) -> tuple[int, ...]:
        return rational(approxifer_tasks(many), arrivals, K, wrong)

    return (
        Method("nothing", letcc(many), ordered=True, locates=False),
        Method("larger lambda", letcc(many, weak), ordered=True, locates=False),
        Method(
            "ApproxIFER",
            BerrutParams(k=K, n=many, wait_for=many, nodes="approxifer").build(K),
            ordered=False,
            locate=theirs,
        ),
        Method("ours", letcc(many, max_wrong=wrong), ordered=True),
        Method("ours, fewer", letcc(few, max_wrong=wrong), ordered=True),
    )


@dataclass(frozen=True, slots=True)
class ByzantineExperiment:
    """What is measured.

    Attributes:
        network: a network with its data.
        groups: random groups.
        seed: seed of groups, wrong replicas and what they answer.
    """

    network: LoadedSubject
    groups: int = 100
    seed: int = 0

    @property
    def steps(self) -> int:
        """Groups to locate and decode in."""
        return self.groups * (1 + len(ATTACKS)) * sum(len(methods(wrong)) for wrong in WRONG)


def run_byzantine(experiment: ByzantineExperiment, advance: Callable[[int], None] = lambda _: None) -> Report:
    """Measure every method under every attack."""
    data = experiment.network.data
    queries = ask(data.images, data.labels, experiment.network.predict)
    rows = [row for wrong in WRONG for row in _rows(experiment, queries, wrong, advance)]
    settings = {
        "groups": experiment.groups,
        "attacks": [HONEST, *ATTACKS],
        "model": experiment.network.subject.name,
    }
    result = {"name": "byzantine", "seed": experiment.seed, "settings": settings, "rows": rows}
    return Report(result, "replicas that answer falsely", _ABOUT, COLUMNS, draw_byzantine)


def _rows(
    experiment: ByzantineExperiment, queries: Queries, wrong: int, advance: Callable[[int], None]
) -> Iterator[Row]:
    images = queries.images
    draw = draw_groups(CodeSetting(K, K, 0), rows=len(images), groups=experiment.groups, seed=experiment.seed)
    groups = {False: draw.groups, True: order_groups(images, draw.groups)}
    known: dict[tuple[int, bool], Floats] = {}
    replies = []
    for method in methods(wrong):
        key = (len(method.code.tasks), method.ordered)
        if key not in known:
            known[key] = coded_logits(method.code, images, groups[method.ordered], experiment.network.predict)
        replies.append((method, groups[method.ordered], known[key].swapaxes(0, 1)))
    for number, (name, attack) in enumerate({HONEST: None, **ATTACKS}.items()):
        seed = (experiment.seed, wrong, number)
        yield _vote_row(
            experiment, queries, draw.groups, _Point("vote", 2 * (K + wrong) - 1, wrong, name), seed
        )
        for method, mine, logits in replies:
            false, liars = tamper(logits, wrong, attack, np.random.default_rng(seed))
            decoded, found = _decode(method, false, liars)
            point = _Point(method.name, logits.shape[1], wrong, name)
            yield _row(experiment, point, queries.score(decoded, mine), found)
            advance(len(mine))


def tamper(
    logits: Floats, wrong: int, attack: Attack | None, random: np.random.Generator
) -> tuple[Floats, NDArray[np.intp]]:
    """Let E random replicas of each group answer falsely.

    Args:
        logits: shape (G, N, C).
        wrong: E.
        attack: what they answer; None for the truth.
        random: where the draws come from.

    Returns:
        The answers, shape (G, N, C), and who is wrong, shape (G, E), or (G, 0) without an attack.
    """
    if attack is None:
        return logits, np.empty((len(logits), 0), np.intp)
    everyone = np.tile(np.arange(logits.shape[1]), (len(logits), 1))
    liars = random.permuted(everyone, axis=1)[:, :wrong]
    at = liars[:, :, np.newaxis]
    honest = np.take_along_axis(logits, at, axis=1)
    other = np.take_along_axis(np.roll(logits, 1, axis=0), at, axis=1)
    false = logits.copy()
    np.put_along_axis(false, at, attack(honest, other, random), axis=1)
    return false, liars


@dataclass(frozen=True, slots=True)
class _Found:
    """How a method did at finding liars: the share that it found, and honest answers dropped in a group."""

    located: float | None
    mistaken: float | None


def _decode(method: Method, logits: Floats, liars: NDArray[np.intp]) -> tuple[Floats, _Found]:
    """Decoded logits, shape (G, K, C), and how well the liars were found."""
    n = logits.shape[1]
    answers, hits, dropped_in_all = [], 0, 0
    for arrivals, false in zip(logits, liars.tolist(), strict=True):
        dropped = set(method.locate(arrivals)) if method.locate else set()
        rest = {task: arrivals[np.newaxis, task] for task in range(n) if task not in dropped}
        decoded = method.code.decode(rest)
        dropped |= decoded.wrong[0] if decoded.wrong else set()
        hits += len(dropped & set(false))
        dropped_in_all += len(dropped)
        answers.append(decoded.outputs[:, 0])
    if not method.locates:
        return np.stack(answers), _Found(None, None)
    located = hits / liars.size if liars.size else None
    return np.stack(answers), _Found(located, (dropped_in_all - hits) / len(logits))


def _vote_row(
    experiment: ByzantineExperiment,
    queries: Queries,
    groups: NDArray[np.intp],
    point: _Point,
    seed: tuple[int, ...],
) -> Row:
    """Copies on as many replicas as ApproxIFER has, and the class that most of a query's copies name."""
    copies = np.log(np.maximum(queries.probabilities[groups], 1e-12))[:, np.arange(point.n) % K]
    false, _ = tamper(copies, point.wrong, ATTACKS.get(point.attack), np.random.default_rng(seed))
    votes = np.eye(copies.shape[2])[false.argmax(axis=2)]
    # Of equal counts the first copy's class wins, which is as good as any.
    counts = 1.5 * votes[:, :K]
    for copy in range(K, point.n):
        counts[:, copy % K] += votes[:, copy]
    return _row(experiment, point, queries.score(counts.astype(np.float32), groups), _Found(None, None))


@dataclass(frozen=True, slots=True)
class _Point:
    """What one row is about."""

    method: str
    n: int
    wrong: int
    attack: str


def _row(experiment: ByzantineExperiment, point: _Point, score: Score, found: _Found) -> Row:
    return {
        "model": experiment.network.subject.name,
        "dataset": experiment.network.data.name,
        "method": point.method,
        "k": K,
        "n": point.n,
        "s": 0,
        "groups": experiment.groups,
        "attack": point.attack,
        "wrong": point.wrong,
        "accuracy": score.accuracy,
        "base_accuracy": score.base_accuracy,
        "rel_accuracy": score.accuracy / score.base_accuracy,
        "located": found.located,
        "mistaken": found.mistaken,
    }


def draw_byzantine(result: Result) -> Figure:
    """Accuracy above, location rate below; columns of axes are E."""
    figure, grid = new_figure(
        "Accuracy and location under false answers",
        f"LeNet5 on MNIST, K = {K}, {result['settings']['groups']} groups; bars are 95 % intervals. "
        f"N is 2 (K + E) - 1, and K + 2 E + {SPARE} for `ours, fewer`. Seed {result['seed']}.",
        rows=2,
        columns=len(WRONG),
        width=14.0,
        height=8.0,
    )
    names = ("vote", *(method.name for method in methods(1)))
    for column, wrong in enumerate(WRONG):
        for line, (key, label) in enumerate((("accuracy", "accuracy"), ("located", "false answers located"))):
            axes = grid[line][column]
            for number, name in enumerate(names):
                mine = [row for row in result["rows"] if (row["method"], row["wrong"]) == (name, wrong)]
                _draw_method(axes, mine, key, number, name)
            axes.set_xticks(range(1 + len(ATTACKS)), [HONEST, *ATTACKS], rotation=35, ha="right")
            decorate(axes, title=f"E = {wrong}", x="attack", y=label)
    shared_legend(figure, grid[0][0], columns=6)
    return figure


def _draw_method(axes: Axes, rows: Sequence[Row], key: str, number: int, name: str) -> None:
    at = [place for place, row in enumerate(rows) if row[key] is not None]
    shares = np.array([rows[place][key] for place in at])
    trials = rows[0]["groups"] * (K if key == "accuracy" else rows[0]["wrong"])
    axes.errorbar(
        np.array(at) + (number - 2.5) * 0.12,
        shares,
        yerr=1.96 * np.sqrt(shares * (1 - shares) / trials),
        fmt="o" if name != "vote" else "s",
        markersize=5,
        color=COLOURS[number],
        label=name,
    )
