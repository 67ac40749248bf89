"""The parameters that every linear code has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coding.checks import require_choice
from coding.code_size import CodeSize
from coding.ordering import ORDERS, OrderName
from coding.output_domain import OutputDomain, OutputDomainName
from coding.scheme import Array
from coding.wrong import WrongArrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearParams:
    """A code's size, and what is done around it; the kinds add how its matrices are made."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}

    kind: str
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
    max_wrong: int = 0
    """Arrivals of a group that may be wrong, from replicas that are broken or lie: as many are looked for and left
    out. Each needs two arrivals more than k, so at most (wait_for - k) / 2; 0 believes every replica."""

    def __post_init__(self) -> None:
        """Check every rule.

        Raises:
            BadParameter: one is broken; the message names field, rule and value.
        """
        CodeSize.checked(self.k, self.n, self.wait_for, self.floor, self.max_wrong)
        require_choice("output_domain", self.output_domain, tuple(OutputDomain))
        require_choice("order", self.order, ORDERS)

    @property
    def size(self) -> CodeSize:
        """The numbers of a full group, the floor filled in."""
        return CodeSize.checked(self.k, self.n, self.wait_for, self.floor, self.max_wrong)

    def wrong_arrivals(self, size: CodeSize, encoding: Array, places: Array) -> WrongArrivals | None:
        """What finds wrong arrivals of a code; None where none are looked for.

        Args:
            size: the code's numbers.
            encoding: E, shape (N, K).
            places: where the tasks sit, counted in queries, shape (N,).
        """
        if size.max_wrong == 0:
            return None
        shifted = self.output_domain != "as_is"
        return WrongArrivals(encoding, places, most=size.max_wrong, offset_free=shifted)
