"""The Berrut code: rational interpolation both ways (BACC, ApproxIFER)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coding.barycentric import berrut_matrix
from coding.checks import require_choice
from coding.error_estimate import error_operators
from coding.linear_code import DecodeOperators, LinearCode
from coding.linear_params import LinearParams
from coding.need import ranks_by_need
from coding.nodes import BERRUT_NODES, BerrutNodesName, code_points, task_places


@dataclass(frozen=True, slots=True, kw_only=True)
class BerrutParams(LinearParams):
    """Berrut rational interpolation both ways.

    Sources: Jahani-Nezhad and Maddah-Ali, "Berrut Approximated Coded Computing" (BACC); Soleymani et al.,
    "ApproxIFER", AAAI 2022. Wrong arrivals are found as `coding.wrong` has it, not by ApproxIFER's locator.
    """

    kind: Literal["berrut"] = "berrut"
    """Rational interpolation: a code without smoothing, the baseline of letcc."""
    nodes: BerrutNodesName = "chebyshev"
    """Where queries and tasks sit on the curve: chebyshev (BACC), equispaced, or approxifer (its authors' points)."""

    def __post_init__(self) -> None:
        """Check every rule (see `LinearParams`)."""
        LinearParams.__post_init__(self)
        require_choice("nodes", self.nodes, BERRUT_NODES)

    def build(self, rows: int) -> LinearCode:
        """The code for a group of `rows` queries (see `CodeSize.for_rows`); built once, then shared.

        Raises:
            BadParameter: rows is not between 1 and k.
        """
        return _build(self, rows)


@lru_cache(maxsize=256)
def _build(params: BerrutParams, rows: int) -> LinearCode:
    size = params.size.for_rows(rows)
    alpha, beta = code_points(params.nodes, size.k, size.n)

    def operators(survivors: NDArray[np.intp]) -> DecodeOperators:
        nodes = beta[survivors]
        answers = berrut_matrix(nodes, alpha)
        return DecodeOperators(answers=answers, error=error_operators(nodes, alpha, answers))

    encoding = berrut_matrix(alpha, beta)
    wrong_arrivals = params.wrong_arrivals(size, encoding, task_places(params.nodes, size.k, size.n))
    return LinearCode(size, encoding, operators, ranks_by_need(beta, alpha), wrong_arrivals)
