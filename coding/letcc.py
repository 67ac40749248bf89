"""The LeTCC code: smoothing splines both ways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_choice, require_non_negative
from coding.code_size import CodeSize
from coding.error_estimate import error_operators
from coding.errors import BadParameter
from coding.linear_code import DecodeOperators, LinearCode
from coding.linear_params import LinearParams
from coding.need import ranks_by_need
from coding.nodes import SPLINE_NODES, Points, SplineNodesName, code_points, systematic_points, task_places
from coding.scheme import Array
from coding.spline import SmoothingSpline
from coding.systematic import SystematicCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LetccParams(LinearParams):
    """Smoothing splines both ways.

    Source: Moradi, Tahmasebi and Maddah-Ali, the LeTCC scheme, NeurIPS 2024, arXiv 2406.00300.
    """

    kind: Literal["letcc"] = "letcc"
    """Smoothing splines through the queries and through the arrivals."""
    lambda_enc: float = 1e-5
    """Smoothing of the encoding curve, in the sum-of-squares convention; 0 goes through every query."""
    lambda_dec: float = 1e-6
    """Smoothing of the decoding curve, in the sum-of-squares convention; useful are 0 and 1e-8 to 1e-4."""
    nodes: SplineNodesName = "equispaced"
    """Where queries and tasks sit on the curve: equispaced, or chebyshev as in the papers, with more near its ends."""
    systematic: bool = False
    """Send every query as it is too, to a replica of its own, whose answer is exact; decode only those that are late,
    once `wait_for` answers are there. The n - k coded queries sit between the others."""

    def __post_init__(self) -> None:
        """Check every rule (see `LinearParams`)."""
        LinearParams.__post_init__(self)
        require_non_negative("lambda_enc", self.lambda_enc)
        require_non_negative("lambda_dec", self.lambda_dec)
        require_choice("nodes", self.nodes, SPLINE_NODES)
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
    size = params.size.for_rows(rows)
    if params.systematic and rows > 1:
        alpha, beta, own = systematic_points(params.nodes, size.k, size.n)
        encoding = SmoothingSpline(alpha, params.lambda_enc).at(beta)
        encoding[list(own)] = np.eye(size.k)
        return SystematicCode(_code(params, size, alpha, beta, encoding), own)
    alpha, beta = code_points(params.nodes, size.k, size.n)
    return _code(params, size, alpha, beta, SmoothingSpline(alpha, params.lambda_enc).at(beta))


def _code(params: LetccParams, size: CodeSize, alpha: Points, beta: Points, encoding: Array) -> LinearCode:

    def operators(survivors: NDArray[np.intp]) -> DecodeOperators:
        nodes = beta[survivors]
        answers = SmoothingSpline(nodes, params.lambda_dec).at(alpha)
        return DecodeOperators(answers=answers, error=error_operators(nodes, alpha, answers))

    wrong_arrivals = params.wrong_arrivals(size, encoding, task_places(params.nodes, size.k, size.n))
    return LinearCode(size, encoding, operators, ranks_by_need(beta, alpha), wrong_arrivals)
