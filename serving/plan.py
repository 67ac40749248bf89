"""Which policy to serve with: every candidate's latency simulated, its accuracy measured, and one of them picked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from coding.output_domain import OutputDomain
from coding.scheme import SchemeParams
from models.decoded_agreement import DecodedAnswers
from models.errors import BadOption
from models.experiments.measure import Floats, Predict
from serving.config.faults import DelaySettings, FaultSettings
from serving.config.schema import Settings
from serving.simulate import ServiceTime, Simulated
from serving.worker.faults import draw

_SCALES = {
    "constant": "ms",
    "exponential": "mean_ms",
    "lognormal": "median_ms",
    "pareto": "minimum_ms",
    "bimodal": "fast_ms",
    "inference-trace": "median_ms",
}
"""The parameter of each distribution that stands first, without its name."""
_DELAYS: TypeAdapter[Any] = TypeAdapter(DelaySettings)
_AS_ACCURATE = 0.002
"""Accuracies that differ by less are as good as each other."""
_AS_LOADED = 0.02
"""The same of extra load."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a policy has to keep.

    Attributes:
        latency_ms: the longest latency at the percentile.
        percentile: which.
        accuracy: the least share of rows whose answer is the uncoded model's.
    """

    latency_ms: float
    percentile: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One policy, and what came of it.

    Attributes:
        label: names it, as `loadtest compare --schemes` does.
        settings: the configuration with it.
        simulated: latency and load.
        accuracy: share of rows whose answer is the uncoded model's; errors and default answers count as wrong.
    """

    label: str
    settings: Settings
    simulated: Simulated
    accuracy: float

    def keeps(self, objective: Objective) -> bool:
        """Whether it meets latency and accuracy."""
        return self.lateness(objective) <= 1.0 and self.accuracy >= objective.accuracy

    def lateness(self, objective: Objective) -> float:
        """Its latency as a multiple of the objective's."""
        return 1000 * self.simulated.percentile_s(objective.percentile) / objective.latency_ms


def service_time(text: str, compute_ms: float, seed: int) -> ServiceTime:
    """How long calls take, from `KIND:NUMBER[,key=value...]` or `trace:FILE`.

    Args:
        text: a distribution of `replicas.faults.delay` with its first parameter in milliseconds, such as
            `inference-trace:50` or `bimodal:40,slow_ms=300,slow_share=0.02`; or a file of measured milliseconds, one on
            each line.
        compute_ms: added to each call.
        seed: of the draws.

    Raises:
        BadOption: it cannot be read.
    """
    kind, _, rest = text.partition(":")
    if kind == "trace":
        return _of_trace(Path(rest), compute_ms / 1000, seed)
    if kind not in _SCALES or not rest:
        raise BadOption(
            f"--latency must be KIND:MILLISECONDS with KIND one of {', '.join(_SCALES)}, or trace:FILE; got {text!r}"
        )
    first, *more = rest.split(",")
    pairs = [part.partition("=")[::2] for part in more]
    try:
        delay = _DELAYS.validate_python({"kind": kind, _SCALES[kind]: first, **dict(pairs)})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"] if part != kind)
        raise BadOption(f"--latency {text}: {where}: {problem['msg']}") from error
    faults = FaultSettings(enabled=True, seed=seed, delay=delay)
    return lambda replica, call: draw(faults, replica, call).delay_s + compute_ms / 1000


def _of_trace(path: Path, compute_s: float, seed: int) -> ServiceTime:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of empty files, which are refused below
            measured = np.loadtxt(path, ndmin=1)
    except (OSError, ValueError) as error:
        raise BadOption(
            f"--latency must name a file of milliseconds, one on each line; {path}: {error}"
        ) from error
    if measured.ndim != 1 or not measured.size or not (np.isfinite(measured) & (measured >= 0)).all():
        raise BadOption(
            f"--latency must name a file of milliseconds, one on each line, none below 0; {path} is another"
        )
    seconds = measured / 1000 + compute_s
    return lambda replica, call: float(np.random.default_rng([seed, replica, call]).choice(seconds))


def candidates(k: int, replicas: int, objective: Objective) -> dict[str, dict[str, Any]]:
    """The policies to try, by label: the `scheme` section of each, for groups of K on so many replicas.

    Args:
        k: queries in a group.
        replicas: how many there are.
        objective: `layered` decodes a little before it.
    """
    found: dict[str, dict[str, Any]] = {"none": {"kind": "none"}}
    if replicas >= 2:
        found["replication"] = {"kind": "replication", "copies": 2}
        found["hedged"] = {"kind": "hedged"}
        found["hedged:percentile=90,budget=0.15"] = {"kind": "hedged", "percentile": 90.0, "budget": 0.15}
    spare = min(replicas, 2 * k) - k
    if k < 2 or spare < 1:
        return found
    for lost in sorted({1, min(2, spare)}):
        code = {"k": k, "n": k + spare, "wait_for": k + spare - lost}
        label = f"k={k},n={k + spare},wait_for={code['wait_for']}"
        found[f"letcc:{label}"] = {"kind": "letcc", **code}
        found[f"letcc:{label},systematic=true"] = {"kind": "letcc", "systematic": True, **code}
    for n in sorted({k + 1, k + min(spare, max(1, k // 4))}):
        found[f"layered:k={k},n={n}"] = {
            "kind": "layered",
            "k": k,
            "n": n,
            "wait_for": n - 1,
            "objective_ms": 0.95 * objective.latency_ms,
        }
    return found


def accuracy_of(
    simulated: Simulated, params: SchemeParams, predict: Predict, inputs: Floats, *, groups: int, seed: int
) -> float:
    """The share of a simulation's rows whose answer is the uncoded model's.

    Exact answers are; decoded ones are as often as `DecodedAnswers` finds for their number of arrivals.
    """
    rows = sum(simulated.rows.values())
    exact = rows - simulated.rows["decoded"] - simulated.rows["default"]
    right = float(exact)
    if simulated.decoded_from:
        answers = DecodedAnswers(
            params.build(params.k),
            predict,
            inputs,
            ordered=getattr(params, "order", "none") == "nearest",
            domain=OutputDomain(getattr(params, "output_domain", "logits")),
            groups=groups,
            seed=seed,
        )
        right += sum(count * answers.agreement(from_) for from_, count in simulated.decoded_from.items())
    lost = simulated.errors / simulated.latencies_s.size
    return (right / rows if rows else 0.0) * (1 - lost)


def ranked(tried: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    """The best first.

    Those that keep the objective come first: the more accurate before the less, then those that cost less, then the
    quicker. The others follow by how far they are from it.
    """

    def worth(candidate: Candidate) -> tuple[float, ...]:
        keeps = candidate.keeps(objective)
        accuracy = round(candidate.accuracy / _AS_ACCURATE)
        load = round(candidate.simulated.sent / _AS_LOADED)
        short = max(0.0, objective.accuracy - candidate.accuracy)
        if keeps:
            return (0, -accuracy, load, candidate.simulated.percentile_s(50))
        return (1, max(candidate.lateness(objective), 1.0) + 10 * short, -accuracy, load)

    return sorted(tried, key=worth)


def reason(order: Sequence[Candidate], objective: Objective) -> str:
    """Why the first is the first, in one sentence or two."""
    best = order[0]
    late = 1000 * best.simulated.percentile_s(objective.percentile)
    found = (
        f"{best.label}: p{objective.percentile:g} {_ms(late)} of {objective.latency_ms:g} ms, "
        f"accuracy {best.accuracy:.4f}, {best.simulated.sent:.2f} calls per row"
    )
    if not best.keeps(objective):
        return (
            f"nothing keeps the objective; nearest is {found}. Add replicas, lower the load, or ask for less "
            "(--objective-ms, --accuracy)"
        )
    rivals = [other for other in order[1:] if other.keeps(objective)]
    if not rivals:
        return f"{found}. No other policy keeps the objective"
    rival = rivals[0]
    if best.accuracy - rival.accuracy >= _AS_ACCURATE:
        why = f"more accurate than {rival.label} ({rival.accuracy:.4f})"
    elif rival.simulated.sent - best.simulated.sent >= _AS_LOADED:
        why = f"as accurate as {rival.label} at less load ({rival.simulated.sent:.2f} calls per row)"
    else:
        why = f"as accurate as {rival.label} at the same load, and no slower"
    return f"{found}. It is {why}"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.0f}" if math.isfinite(milliseconds) else "beyond the deadline,"


def row_of(candidate: Candidate, objective: Objective) -> dict[str, Any]:
    """A candidate as a row of the result; latencies in milliseconds, null beyond the deadline."""
    latencies = {
        f"p{percentile:g}_ms": _finite(1000 * candidate.simulated.percentile_s(percentile))
        for percentile in (50, 99, 99.9)
    }
    return {
        "scheme": candidate.settings.scheme.kind,
        "variant": candidate.label,
        **latencies,
        "accuracy": candidate.accuracy,
        "calls_per_row": candidate.simulated.sent,
        "errors": candidate.simulated.errors,
        "obtained": dict(candidate.simulated.rows),
        "keeps_objective": candidate.keeps(objective),
    }


def _finite(value: float) -> float | None:
    return round(value, 2) if math.isfinite(value) else None


def with_scheme(settings: Settings, scheme: Mapping[str, Any]) -> Settings:
    """The configuration with another scheme, which keeps what is said of the model's outputs."""
    domain = {"output_domain": settings.scheme.output_domain}
    return Settings.model_validate({**settings.model_dump(), "scheme": {**domain, **scheme}})
