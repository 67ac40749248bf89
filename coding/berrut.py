"""The Berrut code: rational interpolation both ways (BACC, ApproxIFER)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coding.barycentric import berrut_matrix
from coding.checks import require_choice
from coding.code_size import CodeSize
from coding.error_estimate import error_operators
from coding.linear_code import DecodeOperators, LinearCode
from coding.need import ranks_by_need
from coding.nodes import chebyshev_first_kind, chebyshev_second_kind
from coding.ordering import ORDERS, OrderName
from coding.output_domain import OutputDomain, OutputDomainName


@dataclass(frozen=True, slots=True, kw_only=True)
class BerrutParams:
    """Berrut rational interpolation both ways.

    Sources: Jahani-Nezhad and Maddah-Ali, "Berrut Approximated Coded Computing" (BACC); Soleymani et al.,
    "ApproxIFER", AAAI 2022, for stragglers without wrong replicas.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}

    kind: Literal["berrut"] = "berrut"
    """Rational interpolation: a code without smoothing, the baseline of letcc."""
    k: int = 8
    """Queries in a full group, K."""
    n: int = 12
    """Tasks of a full group, N, each on a replica of its own; at least k."""
    wait_for: int = 10
    """Arrivals from which a full group is answered; n - wait_for stragglers cost no time."""
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
def _build(params: BerrutParams, rows: int) -> LinearCode:
    size = params.size.for_rows(rows)
    alpha = chebyshev_first_kind(size.k)
    beta = chebyshev_second_kind(size.n)

    def operators(survivors: NDArray[np.intp]) -> DecodeOperators:
        nodes = beta[survivors]
        answers = berrut_matrix(nodes, alpha)
        return DecodeOperators(answers=answers, error=error_operators(nodes, alpha, answers))

    return LinearCode(size, berrut_matrix(alpha, beta), operators, ranks_by_need(beta, alpha))
