"""Seeded fault injection: what goes wrong with which call (`draw`, pure), and its doing (`FaultInjector`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.config.faults import (
    BimodalDelay,
    ConstantDelay,
    CorruptionSettings,
    ExponentialDelay,
    FaultSettings,
    InferenceTraceDelay,
    LognormalDelay,
    NoCorruption,
    NoDelay,
    NoiseCorruption,
    ParetoDelay,
    SignFlipCorruption,
)
from serving.errors import ServingError

TRACE_SIGMA = 0.226
"""Standard deviation of the logarithm of the trace's body."""
TRACE_SLOW_SHARE = 0.02
"""Share of slow calls in the trace."""
TRACE_SLOW_MEAN = 706 / 139
"""Mean of the trace's slow mode, in medians of its body."""
TRACE_SLOW_DEVIATION = 40 / 139
"""Standard deviation of the trace's slow mode, in medians of its body."""


class InjectedError(ServingError):
    """The failure that fault injection was asked for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one call.

    Attributes:
        delay_s: time added to it, seconds.
        error: whether it fails after that time.
        corruption: what is wrong with its answer.
        key: (seed, replica, call), from which the answer's noise is drawn.
    """

    delay_s: float
    error: bool
    corruption: CorruptionSettings = field(default_factory=NoCorruption)
    key: tuple[int, int, int] = (0, 0, 0)

    def corrupted(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """What the call answers instead of the model's outputs, shape (b, ...); in their dtype."""
        if isinstance(self.corruption, SignFlipCorruption):
            return -outputs
        if isinstance(self.corruption, NoiseCorruption):
            seed, replica, call = self.key
            # A stream apart from that of delays and errors, which thus are the same with and without noise.
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replica, call, 1)))
            noise = rng.normal(0.0, self.corruption.sigma, outputs.shape)
            return (outputs + noise).astype(outputs.dtype)
        return outputs


def draw(settings: FaultSettings, replica: int, call: int) -> Fault:
    """Draw the fault of one call, a function of (seed, replica, call) and the settings alone.

    Neither other calls nor their order have a part in it, so every scheme that is compared meets the same
    stragglers. The error is drawn first: another delay distribution leaves the failing calls the same.

    Args:
        settings: what to draw from.
        replica: the replica's number.
        call: the number of the call at that replica, from 0.

    Returns:
        The call's fault; none at all where the settings are off or spare this replica.
    """
    if not _affects(settings, replica):
        return Fault(delay_s=0.0, error=False)
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(replica, call)))
    error = bool(rng.random() < settings.error_share)
    return Fault(
        delay_s=_DELAYS_MS[type(settings.delay)](settings.delay, rng) / 1000,
        error=error,
        corruption=settings.corruption,
        key=(settings.seed, replica, call),
    )


class FaultInjector:
    """Disturbs the calls of one replica.

    Args:
        settings: what to inject; may be replaced while calls are waiting.
        replica: the replica's number.
    """

    def __init__(self, settings: FaultSettings, replica: int) -> None:
        self._replica = replica
        self._resumed = asyncio.Event()
        self.replace(settings)

    @property
    def settings(self) -> FaultSettings:
        """What is injected now."""
        return self._settings

    def replace(self, settings: FaultSettings) -> None:
        """Inject this from now on; the next call is number 0, and `stop` lets go of its calls if it is off."""
        self._settings = settings
        self._calls = 0
        if settings.stop and _affects(settings, self._replica):
            self._resumed.clear()
        else:
            self._resumed.set()

    def next_fault(self) -> Fault:
        """The fault of the call that arrives now."""
        call = self._calls
        self._calls += 1
        return draw(self._settings, self._replica, call)

    async def undergo(self, fault: Fault) -> None:
        """Go through a call's fault.

        Raises:
            InjectedError: the call is to fail.
        """
        await self._resumed.wait()
        if fault.delay_s > 0:
            await asyncio.sleep(fault.delay_s)
        if fault.error:
            raise InjectedError(f"fault injection failed this call of replica {self._replica}, as configured")


def _affects(settings: FaultSettings, replica: int) -> bool:
    return settings.enabled and (settings.replicas is None or replica in settings.replicas)


def _none(_: NoDelay, __: np.random.Generator) -> float:
    return 0.0


def _constant(delay: ConstantDelay, _: np.random.Generator) -> float:
    return delay.ms


def _exponential(delay: ExponentialDelay, rng: np.random.Generator) -> float:
    return delay.shift_ms + rng.exponential(delay.mean_ms)


def _lognormal(delay: LognormalDelay, rng: np.random.Generator) -> float:
    return delay.median_ms * rng.lognormal(0.0, delay.sigma)


def _pareto(delay: ParetoDelay, rng: np.random.Generator) -> float:
    return delay.minimum_ms * (1.0 + rng.pareto(delay.shape))


def _bimodal(delay: BimodalDelay, rng: np.random.Generator) -> float:
    return delay.slow_ms if rng.random() < delay.slow_share else delay.fast_ms


def _inference_trace(delay: InferenceTraceDelay, rng: np.random.Generator) -> float:
    if rng.random() < TRACE_SLOW_SHARE:
        return delay.median_ms * rng.normal(TRACE_SLOW_MEAN, TRACE_SLOW_DEVIATION)
    return delay.median_ms * rng.lognormal(0.0, TRACE_SIGMA)


_DELAYS_MS: Mapping[type, Callable[[Any, np.random.Generator], float]] = {
    NoDelay: _none,
    ConstantDelay: _constant,
    ExponentialDelay: _exponential,
    LognormalDelay: _lognormal,
    ParetoDelay: _pareto,
    BimodalDelay: _bimodal,
    InferenceTraceDelay: _inference_trace,
}
