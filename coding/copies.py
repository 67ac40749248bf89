"""No redundancy, replication and hedging: the same code with two numbers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from coding.checks import (
    require_choice,
    require_hedging,
    require_integer,
    require_non_negative,
    require_one_shape,
    require_slots,
)
from coding.errors import BadParameter, NotDecodable
from coding.ordering import OrderName
from coding.output_domain import OutputDomain, OutputDomainName
from coding.scheme import Array, Decoded, TaskSpec

_ONLY_SLOT = frozenset({0})
_NO_SLOT: frozenset[int] = frozenset()


class Copies:
    """Every task carries the query itself, and the first answer is the answer.

    Implements `coding.scheme.Scheme` for K = 1: each row is a group of its own, and waits for no other.
    """

    def __init__(self, copies: int, delay_s: float = 0.0) -> None:
        """Set the two numbers.

        Args:
            copies: how many replicas are asked, at least 1.
            delay_s: seconds after which the copies but the first are sent; 0 sends all at once.
        """
        self._tasks = tuple(
            TaskSpec(
                index=index,
                serves=_ONLY_SLOT,
                delay_s=delay_s if index else 0.0,
                rank=index,
                exact=_ONLY_SLOT,
            )
            for index in range(copies)
        )
        self._indices = frozenset(range(copies))

    @property
    def k(self) -> int:
        """1."""
        return 1

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """One task per copy; each serves the only slot."""
        return self._tasks

    def encode(self, queries: Array) -> Array:
        """Copy the queries.

        Args:
            queries: shape (g, 1, ...).

        Returns:
            Shape (copies, g, ...), in the dtype of `queries`.

        Raises:
            BadShape: the second axis is not 1.
        """
        require_slots(queries, 1)
        return np.repeat(queries[None, :, 0], len(self._tasks), axis=0)

    def answerable(self, arrived: Set[int], *, at_deadline: bool = False) -> frozenset[int]:  # noqa: ARG002
        """The only slot, as soon as any copy has arrived."""
        return _ONLY_SLOT if self._indices & arrived else _NO_SLOT

    def decode(self, outputs: Mapping[int, Array], wanted: Set[int] | None = None) -> Decoded:  # noqa: ARG002
        """Answer with the arrival of the lowest index: all of them are the model's own answer.

        Args:
            outputs: task index to that task's arrival, each of shape (g, ...).
            wanted: of no use here: there is one slot.

        Returns:
            Outputs of shape (1, g, ...), a view of that arrival, and errors of 0, shape (1, g).

        Raises:
            NotDecodable: no arrival.
            BadShape: the arrivals differ in shape.
            BadParameter: an index is none of the tasks'.
        """
        if not outputs:
            raise NotDecodable("no copy has arrived")
        if unknown := outputs.keys() - self._indices:
            raise BadParameter(
                f"outputs must be keyed by task indices 0 to {len(self._tasks) - 1}, got {min(unknown)}"
            )
        require_one_shape(list(outputs.values()))
        first = outputs[min(outputs)]
        return Decoded((0,), first[None], lambda: np.zeros((1, first.shape[0]), np.float32))


_copies = lru_cache(maxsize=64)(Copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyParams:
    """What the three kinds have in common: each row is a group of its own."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}

    kind: str
    output_domain: OutputDomainName = "logits"
    """What the model answers: logits, probabilities, or something else that is passed on as_is."""

    def __post_init__(self) -> None:
        """Check every rule.

        Raises:
            BadParameter: one is broken; the message names field, rule and value.
        """
        require_choice("output_domain", self.output_domain, tuple(OutputDomain))

    @property
    def k(self) -> int:
        """1: each row is a group of its own."""
        return 1

    @property
    def order(self) -> OrderName:
        """none: a group of one has only one order."""
        return "none"

    def build(self, rows: int) -> Copies:
        """The scheme for a group of one row; built once, then shared.

        Raises:
            BadParameter: rows is not 1.
        """
        require_integer("rows", rows, 1, 1)
        return _copies(*self._numbers())

    def _numbers(self) -> tuple[int, float]:
        """How many copies, and the delay of all but the first, in seconds."""
        return 1, 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneParams(CopyParams):
    """No redundancy: each row goes to one replica."""

    kind: Literal["none"] = "none"
    """Each row goes to one replica, uncoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationParams(CopyParams):
    """Each row goes to several replicas at once, and the first answer wins."""

    kind: Literal["replication"] = "replication"
    """Each row goes to several replicas at once."""
    copies: int = 2
    """Replicas that each row goes to."""

    def __post_init__(self) -> None:
        """Check every rule (see `CopyParams`)."""
        CopyParams.__post_init__(self)
        require_integer("copies", self.copies, 1)

    def _numbers(self) -> tuple[int, float]:
        return self.copies, 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgedParams(CopyParams):
    """Each row goes to one replica, and to others if that one is late.

    Source: Dean and Barroso, "The Tail at Scale", 2013.
    """

    kind: Literal["hedged"] = "hedged"
    """Each row goes to one replica, and to others if that one is late."""
    copies: int = 2
    """Replicas that each row goes to at most."""
    delay_ms: float = 100.0
    """Wait before the other copies are sent, milliseconds, until enough calls have been timed; 0 sends all at once."""
    percentile: float | None = 95.0
    """From then on they are sent when a call takes longer than this percentile of the latest; null keeps delay_ms."""
    budget: float = 0.05
    """Rows that may be sent again, as a share of all rows. Beyond it, and while many calls fail, nothing is hedged."""

    def __post_init__(self) -> None:
        """Check every rule (see `CopyParams`)."""
        CopyParams.__post_init__(self)
        require_integer("copies", self.copies, 1)
        require_non_negative("delay_ms", self.delay_ms)
        require_hedging(self.percentile, self.budget)

    def _numbers(self) -> tuple[int, float]:
        return self.copies, self.delay_ms / 1000.0
