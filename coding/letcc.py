"""The LeTCC code: smoothing splines both ways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from coding.errors import BadParameter
from coding.linear_code import LinearCode
from coding.spline_code import SplineParams, spline_code
from coding.systematic import SystematicCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LetccParams(SplineParams):
    """Smoothing splines both ways.

    Source: Moradi, Tahmasebi and Maddah-Ali, the LeTCC scheme, NeurIPS 2024, arXiv 2406.00300.
    """

    kind: Literal["letcc"] = "letcc"
    """Smoothing splines through the queries and through the arrivals."""
    systematic: bool = False
    """Send every query as it is too, to a replica of its own, whose answer is exact; decode only those that are late,
    once `wait_for` answers are there. The n - k coded queries sit between the others."""

    def __post_init__(self) -> None:
        """Check every rule (see `LinearParams`)."""
        SplineParams.__post_init__(self)
        if self.systematic and self.max_wrong:
            raise BadParameter(
                "max_wrong must be 0 where systematic is true, for exact answers are given before others could "
                f"contradict them; got {self.max_wrong}"
            )

    def build(self, rows: int) -> LinearCode | SystematicCode:
        """The code for a group of `rows` queries (see `CodeSize.for_rows`); built once, then shared.

        Raises:
            BadParameter: rows is not between 1 and k.
        """
        return _build(self, rows)


@lru_cache(maxsize=256)
def _build(params: LetccParams, rows: int) -> LinearCode | SystematicCode:
    return spline_code(params, rows, systematic=params.systematic)
