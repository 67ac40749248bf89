"""Settings of the workers' fault injection: which slowdowns, failures and lies to draw, and from which seed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class NoDelay(_Strict):
    """No added delay."""

    kind: Literal["none"] = "none"


class ConstantDelay(_Strict):
    """The same delay on every call."""

    kind: Literal["constant"] = "constant"
    ms: float = Field(default=0.0, ge=0)
    """The delay, milliseconds."""


class ExponentialDelay(_Strict):
    """A minimum plus an exponential part (the shifted exponential of the coded-computing papers)."""

    kind: Literal["exponential"] = "exponential"
    mean_ms: float = Field(gt=0)
    """Mean of the exponential part, milliseconds."""
    shift_ms: float = Field(default=0.0, ge=0)
    """The minimum, milliseconds."""


class LognormalDelay(_Strict):
    """Lognormal."""

    kind: Literal["lognormal"] = "lognormal"
    median_ms: float = Field(gt=0)
    """Median, milliseconds."""
    sigma: float = Field(gt=0)
    """Standard deviation of the logarithm."""


class ParetoDelay(_Strict):
    """Pareto: a heavy tail."""

    kind: Literal["pareto"] = "pareto"
    minimum_ms: float = Field(gt=0)
    """Smallest delay, milliseconds."""
    shape: float = Field(gt=0)
    """Tail exponent; the smaller, the heavier the tail."""


class BimodalDelay(_Strict):
    """Fast most of the time, slow now and then."""

    kind: Literal["bimodal"] = "bimodal"
    fast_ms: float = Field(ge=0)
    """Delay of a fast call, milliseconds."""
    slow_ms: float = Field(ge=0)
    """Delay of a slow call, milliseconds."""
    slow_share: float = Field(ge=0, le=1)
    """Share of slow calls."""


class InferenceTraceDelay(_Strict):
    """The fit to a measured inference service: a lognormal body and 2% slow calls at five times the median."""

    kind: Literal["inference-trace"] = "inference-trace"
    median_ms: float = Field(default=139.0, gt=0)
    """Median of the body, milliseconds; the slow mode scales with it."""


DelaySettings = Annotated[
    NoDelay
    | ConstantDelay
    | ExponentialDelay
    | LognormalDelay
    | ParetoDelay
    | BimodalDelay
    | InferenceTraceDelay,
    Field(discriminator="kind"),
]


class NoCorruption(_Strict):
    """Answers as the model gives them."""

    kind: Literal["none"] = "none"


class NoiseCorruption(_Strict):
    """Gaussian noise on every output."""

    kind: Literal["noise"] = "noise"
    sigma: float = Field(default=10.0, gt=0)
    """Standard deviation of the noise, in the units of the outputs."""


class SignFlipCorruption(_Strict):
    """Every output with the opposite sign."""

    kind: Literal["sign-flip"] = "sign-flip"


CorruptionSettings = Annotated[
    NoCorruption | NoiseCorruption | SignFlipCorruption, Field(discriminator="kind")
]


class FaultSettings(_Strict):
    """Seeded fault injection in the workers. Off unless `enabled`."""

    enabled: bool = False
    """Inject the faults below, and let `PUT /faults` on a worker change them while it runs."""
    seed: int = Field(default=0, ge=0)
    """Replica r's call number j draws from (seed, r, j), whatever the scheme or the order of arrival."""
    replicas: tuple[int, ...] | None = None
    """Numbers of the replicas to disturb; null means all of them."""
    delay: DelaySettings = NoDelay()
    """Time added to each call, drawn anew for each."""
    error_share: float = Field(default=0.0, ge=0, le=1)
    """Share of calls that are answered with status 500."""
    corruption: CorruptionSettings = NoCorruption()
    """What is wrong with the answers, all of them, of the replicas that are disturbed: they lie."""
    stop: bool = False
    """Accept calls and never answer them."""
