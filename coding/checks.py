"""Rules that parameters and arrays must keep; the messages name the argument, the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from coding.errors import BadParameter, BadShape
from coding.scheme import Array


def require_integer(
    name: str,
    value: object,
    low: int,
    high: int | None = None,
    *,
    low_name: str = "",
    high_name: str = "",
) -> None:
    """Refuse what is not an integer from `low` to `high`, both included.

    Args:
        name: the parameter's name, for the message.
        value: what was given. A bool is not an integer here.
        low: the smallest legal value.
        high: the largest one; None means that there is none.
        low_name: what `low` is, such as "k", where it is itself a parameter.
        high_name: the same of `high`.

    Raises:
        BadParameter: the rule is broken.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadParameter(f"{name} must be an integer, got {value!r}")
    lower = f"{low_name} ({low})" if low_name else f"{low}"
    if high is None and value < low:
        raise BadParameter(f"{name} must be at least {lower}, got {value}")
    if high is not None and not low <= value <= high:
        upper = f"{high_name} ({high})" if high_name else f"{high}"
        raise BadParameter(f"{name} must be between {lower} and {upper}, got {value}")


def require_non_negative(name: str, value: object) -> None:
    """Refuse what is not a finite number >= 0.

    Raises:
        BadParameter: the rule is broken.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BadParameter(f"{name} must be a number, got {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise BadParameter(f"{name} must be finite and at least 0, got {value}")


def require_positive(name: str, value: object) -> None:
    """Refuse what is not a finite number above 0.

    Raises:
        BadParameter: the rule is broken.
    """
    require_non_negative(name, value)
    if value == 0:
        raise BadParameter(f"{name} must be above 0, got {value}")


def require_hedging(percentile: float | None, budget: float) -> None:
    """Refuse what is no rule for when to hedge, and how often.

    Raises:
        BadParameter: a rule is broken.
    """
    require_non_negative("budget", budget)
    if percentile is not None and not 0.0 < percentile < 100.0:
        raise BadParameter(f"percentile must be above 0 and below 100, got {percentile}")


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse what is not one of `choices`.

    Raises:
        BadParameter: the rule is broken.
    """
    if value not in choices:
        raise BadParameter(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def require_floating(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse arrays of whole numbers, flags or objects: a weighted sum of them is not one of them.

    Raises:
        BadParameter: the rule is broken.
    """
    if dtype.kind != "f":
        raise BadParameter(f"{name} must be floating point, got {dtype}")


def require_slots(queries: Array, k: int) -> None:
    """Refuse queries that are not of shape (g, k, ...).

    Raises:
        BadShape: the rule is broken.
    """
    if queries.ndim < 2 or queries.shape[1] != k:
        raise BadShape(f"queries must have shape (g, {k}, ...), got {queries.shape}")


def require_one_shape(arrivals: Sequence[Array]) -> tuple[int, ...]:
    """Refuse arrivals that differ in shape, or that lack the axis of the groups.

    Args:
        arrivals: at least one.

    Returns:
        Their shape, (g, ...).

    Raises:
        BadShape: the rule is broken.
    """
    shape = arrivals[0].shape
    for arrival in arrivals:
        if arrival.shape != shape:
            raise BadShape(f"arrivals must all have one shape, got {shape} and {arrival.shape}")
    if not shape:
        raise BadShape("arrivals must have shape (g, ...), got ()")
    return shape
