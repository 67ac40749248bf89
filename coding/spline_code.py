"""What the schemes on smoothing splines share: their parameters, and the code built from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_choice, require_non_negative
from coding.code_size import CodeSize
from coding.error_estimate import error_operators
from coding.linear_code import DecodeOperators, LinearCode
from coding.linear_params import LinearParams
from coding.need import ranks_by_need
from coding.nodes import SPLINE_NODES, Points, SplineNodesName, code_points, systematic_points, task_places
from coding.scheme import Array
from coding.spline import SmoothingSpline
from coding.systematic import SystematicCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SplineParams(LinearParams):
    """Smoothing of both curves, and where their points sit."""

    lambda_enc: float = 1e-5
    """Smoothing of the encoding curve, in the sum-of-squares convention; 0 goes through every query."""
    lambda_dec: float = 1e-6
    """Smoothing of the decoding curve, in the sum-of-squares convention; useful are 0 and 1e-8 to 1e-4."""
    nodes: SplineNodesName = "equispaced"
    """Where queries and tasks sit on the curve: equispaced, or chebyshev as in the papers, with more near its ends."""

    def __post_init__(self) -> None:
        """Check every rule (see `LinearParams`)."""
        LinearParams.__post_init__(self)
        require_non_negative("lambda_enc", self.lambda_enc)
        require_non_negative("lambda_dec", self.lambda_dec)
        require_choice("nodes", self.nodes, SPLINE_NODES)


def spline_code(params: SplineParams, rows: int, *, systematic: bool) -> LinearCode | SystematicCode:
    """The code for a group of `rows` queries (see `CodeSize.for_rows`).

    Args:
        params: its numbers.
        rows: 1 to K.
        systematic: whether every query goes out as it is too.

    Raises:
        BadParameter: rows is not between 1 and k.
    """
    size = params.size.for_rows(rows)
    if systematic and rows > 1:
        alpha, beta, own = systematic_points(params.nodes, size.k, size.n)
        encoding = SmoothingSpline(alpha, params.lambda_enc).at(beta)
        encoding[list(own)] = np.eye(size.k)
        return SystematicCode(_code(params, size, alpha, beta, encoding), own)
    alpha, beta = code_points(params.nodes, size.k, size.n)
    return _code(params, size, alpha, beta, SmoothingSpline(alpha, params.lambda_enc).at(beta))


def _code(params: SplineParams, size: CodeSize, alpha: Points, beta: Points, encoding: Array) -> LinearCode:

    def operators(survivors: NDArray[np.intp]) -> DecodeOperators:
        nodes = beta[survivors]
        answers = SmoothingSpline(nodes, params.lambda_dec).at(alpha)
        return DecodeOperators(answers=answers, error=error_operators(nodes, alpha, answers))

    wrong_arrivals = params.wrong_arrivals(size, encoding, task_places(params.nodes, size.k, size.n))
    return LinearCode(size, encoding, operators, ranks_by_need(beta, alpha), wrong_arrivals)
