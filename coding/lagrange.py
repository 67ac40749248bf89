"""Lagrange coded computing: exact for models that are polynomials of their input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coding.barycentric import lagrange_matrix
from coding.checks import require_choice, require_integer
from coding.code_size import CodeSize
from coding.error_estimate import ErrorOperators
from coding.errors import BadParameter
from coding.linear_code import DecodeOperators, LinearCode
from coding.need import ranks_by_need
from coding.nodes import Points, chebyshev_first_kind, chebyshev_second_kind
from coding.ordering import OrderName
from coding.output_domain import OutputDomain, OutputDomainName
from coding.scheme import Scheme
from coding.systematic import SystematicCode

MOST_AMPLIFICATION = 1e5
"""Sizes are refused whose decoding may magnify rounding errors by more: single precision has 7 digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagrangeParams:
    """Polynomial interpolation both ways, at Chebyshev-like points.

    A group is a polynomial u of degree K - 1 through its queries. A model that is itself a polynomial of degree d in
    its input answers f(u(z)), a polynomial of degree d (K - 1): any d (K - 1) + 1 answers tell all of it, without
    error but for rounding. With d = 1 (linear classifiers, projections, dot products) that is an MDS code: any K of N.

    Source: Yu, Li, Raviv, Kalan, Soltanolkotabi and Avestimehr, "Lagrange Coded Computing", AISTATS 2019; for d = 1
    Lee et al., "Speeding Up Distributed Machine Learning Using Codes", 2018.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}

    kind: Literal["lagrange"] = "lagrange"
    """Polynomial interpolation: exact from any `degree * (k - 1) + 1` answers, for models that are polynomials."""
    k: int = 8
    """Queries in a full group, K."""
    n: int = 10
    """Tasks of a full group, N, each on a replica of its own; at least degree * (k - 1) + 1, and what is beyond it may
    straggle."""
    degree: int = 1
    """Degree of the model as a polynomial of its input: 1 for linear and affine models."""
    systematic: bool = True
    """Send every query as it is too, to a replica of its own, whose answer is given as soon as it is there."""
    output_domain: OutputDomainName = "logits"
    """What the model answers: logits, probabilities, or something else that is decoded as_is."""

    def __post_init__(self) -> None:
        """Check every rule.

        Raises:
            BadParameter: one is broken; the message names field, rule and value.
        """
        require_integer("k", self.k, 1)
        require_integer("degree", self.degree, 1)
        lowest = max(self.k, self.wait_for)
        require_integer("n", self.n, lowest, low_name="k" if lowest == self.k else "degree * (k - 1) + 1")
        require_choice("output_domain", self.output_domain, tuple(OutputDomain))
        worst = _amplification(self)
        if worst > MOST_AMPLIFICATION:
            raise BadParameter(
                f"n must be such that rounding errors grow at most {MOST_AMPLIFICATION:.0e} times, and they may grow "
                f"{worst:.0e} times where neighbouring answers are missing; got {self.n} at k {self.k}, degree "
                f"{self.degree}: take a smaller n, degree or k"
            )

    @property
    def wait_for(self) -> int:
        """The recovery threshold, d (K - 1) + 1: arrivals from which a full group is answered."""
        return self.degree * (self.k - 1) + 1

    @property
    def order(self) -> OrderName:
        """none: every order of the queries gives exact answers."""
        return "none"

    def build(self, rows: int) -> Scheme:
        """The code for a group of `rows` queries, which tolerates as many stragglers as the full one; built once.

        Raises:
            BadParameter: rows is not between 1 and k.
        """
        require_integer("rows", rows, 1, self.k, high_name="k")
        return _build(self, rows)

    def size(self, rows: int) -> CodeSize:
        """The numbers of a group of `rows` queries. Fewer arrivals than the threshold answer nothing that is coded."""
        threshold = self.degree * (rows - 1) + 1
        return CodeSize(rows, max(rows, threshold + self.n - self.wait_for), threshold, threshold)


@lru_cache(maxsize=256)
def _build(params: LagrangeParams, rows: int) -> Scheme:
    size = params.size(rows)
    alpha, beta, own = _points(params, size)

    def operators(survivors: NDArray[np.intp]) -> DecodeOperators:
        answers = lagrange_matrix(beta[survivors], alpha)
        exact = ErrorOperators(probes=np.zeros((0, survivors.size)), weights=np.zeros((size.k, 0)))
        return DecodeOperators(answers=answers, error=exact)

    code = LinearCode(size, lagrange_matrix(alpha, beta), operators, ranks_by_need(beta, alpha))
    return SystematicCode(code, own) if own and rows > 1 else code


def _points(params: LagrangeParams, size: CodeSize) -> tuple[Points, Points, tuple[int, ...]]:
    """Alpha, beta, and each query's own task where the code is systematic.

    The coded tasks of a systematic code are spread over Chebyshev's points, the ends among them: with a query's own
    task there, losing it would mean to extrapolate.
    """
    beta = chebyshev_second_kind(size.n)
    if not params.systematic:
        return chebyshev_first_kind(size.k), beta, ()
    spare = size.n - size.k
    coded = np.linspace(0, size.n - 1, spare).round().astype(int) if spare > 1 else [size.n // 2] * spare
    own = np.setdiff1d(np.arange(size.n), coded)
    return beta[own], beta, tuple(own.tolist())


@lru_cache(maxsize=256)
def _amplification(params: LagrangeParams) -> float:
    """How many times rounding errors may grow: the norms of encoding and decoding, one times the other.

    The norm is the largest sum of absolute values in a row; that of decoding is the largest over the sets F that lack
    a run of neighbours. These were the worst of all sets, or of 4,000 random ones, at every size that was tried.
    """
    size = params.size(params.k)
    if size.k == 1:
        return 1.0
    alpha, beta, _ = _points(params, size)
    missing = size.n - size.wait_for
    decoding = max(
        _norm(lagrange_matrix(np.delete(beta, slice(at, at + missing)), alpha))
        for at in range(size.n - missing + 1)
    )
    return decoding * _norm(lagrange_matrix(alpha, beta))


def _norm(matrix: NDArray[np.float64]) -> float:
    return float(np.abs(matrix).sum(axis=1).max())
