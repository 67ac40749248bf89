"""Options of a load test as values: parsed once, checked once, then frozen."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from loadtest.errors import OptionError

ArrivalKind: TypeAlias = Literal["poisson", "constant"]
"""How intended send times are spread: independent users, or a metronome."""

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s)")
_PARAMETER = re.compile(r"(?P<key>[a-z_]+)=(?P<value>[^=]+)")


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """One scheme to compare.

    Attributes:
        label: how it is named in every table; the text that the user gave.
        kind: the server's `scheme.kind`.
        parameters: the other keys of the server's `scheme` section, with their values as YAML text.
    """

    label: str
    kind: str
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def file_name(self) -> str:
        """The label with nothing in it that a file name cannot hold."""
        return re.sub(r"[^A-Za-z0-9.=_-]+", "-", self.label)

    def overrides(self) -> tuple[str, ...]:
        """The choice as `key=value` configuration overrides of the server."""
        pairs = (("kind", self.kind), *self.parameters)
        return tuple(f"scheme.{key}={value}" for key, value in pairs)


UNCODED = SchemeChoice("none", "none")
"""The model's own answers: the base of every relative accuracy."""


@dataclass(frozen=True, slots=True)
class _DelayForm:
    """How a delay distribution is written: the key of its leading duration, and its further keys."""

    duration: str
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


_DELAY_FORMS = {
    "constant": _DelayForm("ms"),
    "exponential": _DelayForm("mean_ms", optional=frozenset({"shift_ms"})),
    "lognormal": _DelayForm("median_ms", required=frozenset({"sigma"})),
    "pareto": _DelayForm("minimum_ms", required=frozenset({"shape"})),
    "bimodal": _DelayForm("fast_ms", required=frozenset({"slow_ms", "slow_share"})),
    "inference-trace": _DelayForm("median_ms"),
}


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """The distribution that replicas draw their added service times from.

    Attributes:
        text: as the user wrote it, such as "inference-trace:50ms".
        delay: the server's `replicas.faults.delay` section, key by key; empty for no added time.
    """

    text: str
    delay: tuple[tuple[str, str], ...] = ()

    def overrides(self, seed: int) -> tuple[str, ...]:
        """The distribution as `key=value` configuration overrides of the server."""
        if not self.delay:
            return ()
        section = ", ".join(f"{key}: {value}" for key, value in self.delay)
        return (
            "replicas.faults.enabled=true",
            f"replicas.faults.seed={seed}",
            f"replicas.faults.delay={{{section}}}",
        )


NO_SERVICE_TIME = ServiceTime("none")
"""Replicas take the time that the model takes."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """The load, the same for every scheme.

    Attributes:
        rate: requests per second.
        requests: number of measured requests.
        rows_per_request: digits in each request.
        seed: decides the schedule, the rows and the stragglers, each through a stream of its own.
        arrivals: how the intended send times are spread.
        warmup: requests sent beforehand at the same rate, and left out of every figure.
        max_outstanding: a request due while this many are unanswered is not sent, and counts as failed.

    Raises:
        OptionError: a value breaks a rule.
    """

    rate: float
    requests: int
    rows_per_request: int = 1
    seed: int = 0
    arrivals: ArrivalKind = "poisson"
    warmup: int = 20
    max_outstanding: int = 4096

    def __post_init__(self) -> None:
        _require(math.isfinite(self.rate) and self.rate > 0, "rate", "over 0 requests per second", self.rate)
        _require(self.requests >= 1, "requests", "at least 1", self.requests)
        _require(self.rows_per_request >= 1, "rows-per-request", "at least 1", self.rows_per_request)
        _require(self.seed >= 0, "seed", "0 or more", self.seed)
        kinds = get_args(ArrivalKind)
        _require(self.arrivals in kinds, "arrivals", f"one of {', '.join(kinds)}", self.arrivals)
        _require(self.warmup >= 0, "warmup", "0 or more", self.warmup)
        _require(self.max_outstanding >= 1, "max-outstanding", "at least 1", self.max_outstanding)


@dataclass(frozen=True, slots=True)
class StackSettings:
    """The server under test, the same for every scheme.

    Whatever is not set here comes from the server's own configuration file and environment.

    Attributes:
        replicas: number of worker processes.
        window_ms: longest wait of a row for others to fill its group, milliseconds.
        service_time: what each call's added service time is drawn from.
        replica_concurrency: calls that a replica runs at once; 0 means unlimited.
        deadline_ms: end-to-end deadline of a request in the server, milliseconds.

    Raises:
        OptionError: a value breaks a rule.
    """

    replicas: int = 12
    window_ms: float = 10.0
    service_time: ServiceTime = NO_SERVICE_TIME
    replica_concurrency: int = 1
    deadline_ms: float = 1000.0

    def __post_init__(self) -> None:
        _require(self.replicas >= 1, "replicas", "at least 1", self.replicas)
        _require(self.window_ms >= 0, "window-ms", "0 or more milliseconds", self.window_ms)
        concurrency = self.replica_concurrency
        _require(concurrency >= 0, "replica-concurrency", "0 (unlimited) or more", concurrency)
        _require(self.deadline_ms > 0, "deadline-ms", "over 0 milliseconds", self.deadline_ms)

    def overrides(self, scheme: SchemeChoice, seed: int) -> tuple[str, ...]:
        """Everything that a server is told, as `key=value` configuration overrides."""
        return (
            "server.port=0",
            "replicas.kind=local",
            f"replicas.count={self.replicas}",
            f"replicas.concurrency={self.replica_concurrency}",
            f"grouping.window_ms={self.window_ms:g}",
            f"deadline_ms={self.deadline_ms:g}",
            *scheme.overrides(),
            *self.service_time.overrides(seed),
        )


def parse_schemes(text: str) -> tuple[SchemeChoice, ...]:
    """Parse `--schemes`, such as "none,replication:copies=3,letcc:n=12,wait_for=10".

    A piece without a colon that assigns a value belongs to the scheme before it.

    Raises:
        OptionError: nothing was given, a piece cannot be read, or a scheme is there twice.
    """
    rule = "a comma-separated list such as none,replication:copies=3,letcc:n=12,wait_for=10"
    pieces: list[str] = []
    for piece in (part.strip() for part in text.split(",")):
        if "=" in piece and ":" not in piece and pieces:
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
    choices = tuple(_parse_scheme(piece, rule, text) for piece in pieces)
    labels = [choice.label for choice in choices]
    if len(set(labels)) < len(labels):
        raise OptionError("--schemes", "a list without repetitions", repr(text))
    return choices


def _parse_scheme(piece: str, rule: str, text: str) -> SchemeChoice:
    kind, colon, rest = piece.partition(":")
    parameters = _parse_parameters(rest) if colon else ()
    if parameters is None or not re.fullmatch(r"[a-z][a-z0-9_-]*", kind):
        raise OptionError("--schemes", rule, repr(text))
    return SchemeChoice(piece, kind, parameters)


def parse_service_time(text: str) -> ServiceTime:
    """Parse `--service-time`: "none", or a distribution and its scale, such as "inference-trace:50ms".

    Further parameters follow after commas, as in "lognormal:50ms,sigma=0.5" and
    "bimodal:50ms,slow_ms=250,slow_share=0.02".

    Raises:
        OptionError: the distribution is unknown, the scale is no duration, or a parameter is wrong.
    """
    if text == "none":
        return NO_SERVICE_TIME
    kind, _, rest = text.partition(":")
    form = _DELAY_FORMS.get(kind)
    if form is None:
        rule = f"none or KIND:DURATION with KIND one of {', '.join(_DELAY_FORMS)}"
        raise OptionError("--service-time", rule, repr(text))
    scale, comma, further = rest.partition(",")
    duration_ms = _parse_duration_ms(scale)
    parameters = _parse_parameters(further) if comma else ()
    if duration_ms is None or parameters is None or not _fits(form, parameters):
        raise OptionError("--service-time", _form_rule(kind, form), repr(text))
    return ServiceTime(text, (("kind", kind), (form.duration, f"{duration_ms:g}"), *parameters))


def _fits(form: _DelayForm, parameters: tuple[tuple[str, str], ...]) -> bool:
    keys = frozenset(key for key, _ in parameters)
    numeric = all(_is_number(value) for _, value in parameters)
    return numeric and form.required <= keys <= form.required | form.optional


def _form_rule(kind: str, form: _DelayForm) -> str:
    required = "".join(f",{key}=NUMBER" for key in sorted(form.required))
    optional = "".join(f"[,{key}=NUMBER]" for key in sorted(form.optional))
    return f"{kind}:DURATION{required}{optional} with a duration such as 50ms"


def _parse_duration_ms(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    return float(match["number"]) * (1000.0 if match["unit"] == "s" else 1.0)


def _parse_parameters(text: str) -> tuple[tuple[str, str], ...] | None:
    matches = [_PARAMETER.fullmatch(part.strip()) for part in text.split(",")]
    parsed = tuple((match["key"], match["value"]) for match in matches if match is not None)
    return parsed if len(parsed) == len(matches) else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _require(holds: bool, option: str, rule: str, value: object) -> None:
    if not holds:
        raise OptionError(f"--{option}", rule, value)
