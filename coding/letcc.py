"""The LeTCC code: smoothing splines both ways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_choice, require_non_negative
from coding.code_size import CodeSize
from coding.error_estimate import error_operators
from coding.linear_code import DecodeOperators, LinearCode
from coding.need import ranks_by_need
from coding.nodes import chebyshev_first_kind, chebyshev_second_kind
from coding.ordering import ORDERS, OrderName
from coding.output_domain import OutputDomain, OutputDomainName
from coding.spline import SmoothingSpline


@dataclass(frozen=True, slots=True, kw_only=True)
class LetccParams:
    """Smoothing splines both ways.

    Source: Moradi, Tahmasebi and Maddah-Ali, the LeTCC scheme, NeurIPS 2024, arXiv 2406.00300.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}

    kind: Literal["letcc"] = "letcc"
    """Smoothing splines through the queries and through the arrivals."""
    k: int = 8
    """Queries in a full group, K."""
    n: int = 12
    """Tasks of a full group, N, each on a replica of its own; at least k."""
    wait_for: int = 10
    """Arrivals from which a full group is answered; n - wait_for stragglers cost no time."""
    lambda_enc: float = 0.0
    """Smoothing of the encoding curve, in the sum-of-squares convention; 0 goes through every query."""
    lambda_dec: float = 1e-5
    """Smoothing of the decoding curve, in the sum-of-squares convention; useful are 0 and 1e-8 to 1e-4."""
    output_domain: OutputDomainName = "logits"
    """What the model answers: logits, probabilities, or something else that is decoded as_is."""
    order: OrderName = "nearest"
    """nearest puts similar queries next to each other on the curve; none keeps the order of arrival."""
    floor: int | None = None
    """Fewest arrivals to answer from at the deadline; null means half of k, rounded up."""

    def __post_init__(self) -> None:
        """Check every rule.

        Raises:
            BadParameter: one is broken; the message names field, rule and value.
        """
        CodeSize.checked(self.k, self.n, self.wait_for, self.floor)
        require_non_negative("lambda_enc", self.lambda_enc)
        require_non_negative("lambda_dec", self.lambda_dec)
        require_choice("output_domain", self.output_domain, tuple(OutputDomain))
        require_choice("order", self.order, ORDERS)

    @property
    def size(self) -> CodeSize:
        """The numbers of a full group, the floor filled in."""
        return CodeSize.checked(self.k, self.n, self.wait_for, self.floor)

    def build(self, rows: int) -> LinearCode:
        """The code for a group of `rows` queries (see `CodeSize.for_rows`); built once, then shared.

        Raises:
            BadParameter: rows is not between 1 and k.
        """
        return _build(self, rows)


@lru_cache(maxsize=256)
def _build(params: LetccParams, rows: int) -> LinearCode:
    size = params.size.for_rows(rows)
    alpha = chebyshev_first_kind(size.k)
    beta = chebyshev_second_kind(size.n)

    def operators(survivors: NDArray[np.intp]) -> DecodeOperators:
        nodes = beta[survivors]
        answers = SmoothingSpline(nodes, params.lambda_dec).at(alpha)
        return DecodeOperators(answers=answers, error=error_operators(nodes, alpha, answers))

    encoding = SmoothingSpline(alpha, params.lambda_enc).at(beta)
    return LinearCode(size, encoding, operators, ranks_by_need(beta, alpha))
