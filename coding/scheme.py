"""The interface between a code and everything else: five members, no I/O.

Letters, as in the papers: K queries form a *group*; query k sits in *slot* k. A scheme turns the group
into N *tasks*, each one model call on one replica; the replica's answer is that task's *arrival*. Slots and
tasks are numbered from 0 here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]
Pool: TypeAlias = Literal["base", "parity"]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One model call of a group.

    Attributes:
        index: position among the scheme's tasks, 0-based.
        serves: the slots that this task's arrival can help to answer.
        pool: which replicas may run it: those of the deployed model, or those of a parity model.
        delay_s: seconds to wait before sending it; 0 for everything but a hedge.
        rank: how well the group can do without its arrival; 0 is needed the most. Tasks of high rank are sent
            last, and to the replicas that look slow.
        exact: the slots of which this task's arrival is the answer, just as the model gives it.
    """

    index: int
    serves: frozenset[int]
    pool: Pool = "base"
    delay_s: float = 0.0
    rank: int = 0
    exact: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Decoded:
    """Answers of g groups that share one set of arrivals.

    Attributes:
        slots: the answered slots, ascending; s of them.
        outputs: shape (s, g, ...), one model output per answered slot and group.
        estimate: computes `error`, which costs about as much as the answers.
        wrong: for each of the g groups, the tasks whose arrivals were found wrong and had no part in its answers.
            Empty, without an entry for any group, where the scheme did not look for wrong arrivals.
    """

    slots: tuple[int, ...]
    outputs: Array
    estimate: Callable[[], Array] = field(repr=False, compare=False)
    wrong: tuple[frozenset[int], ...] = ()

    @cached_property
    def error(self) -> Array:
        """An estimate of each answer's distance from the uncoded model's output, computed when first asked for.

        Shape (s, g), in the output's units (root of the summed squares over the output's elements). 0 where the
        answer is the model's own.
        """
        return self.estimate()


class Scheme(Protocol):
    """A code or copy policy for groups of exactly `k` queries. Immutable and safe to share."""

    @property
    def k(self) -> int:
        """Number of query slots in a group, K."""

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """What to send for one group, in index order; N of them."""

    def encode(self, queries: Array) -> Array:
        """Turn g groups into the payloads of their tasks.

        Args:
            queries: shape (g, k, ...), floating point.

        Returns:
            Payloads of shape (n, g, ...) in task order and in the dtype of `queries`.

        Raises:
            BadShape: the second axis is not k.
        """

    def answerable(self, arrived: Set[int], *, at_deadline: bool = False) -> frozenset[int]:
        """The slots that the arrivals of these tasks can answer.

        At the deadline a scheme without a recovery threshold lowers its demand to its floor.
        """

    def decode(self, outputs: Mapping[int, Array], wanted: Set[int] | None = None) -> Decoded:
        """Answer every slot that these arrivals can answer at the deadline or before.

        Args:
            outputs: task index to that task's arrival, each of shape (g, ...).
            wanted: the slots that matter, all of them answerable; others may be left out, where that saves work.
                None for every slot.

        Returns:
            At least the slots of `answerable(outputs.keys(), at_deadline=True)`. The result does not
            depend on the order in which `outputs` lists its entries.

        Raises:
            NotDecodable: nothing can be answered.
            BadShape: the arrivals differ in shape.
        """


class SchemeParams(Protocol):
    """Parameters of one kind of scheme; knows how to build it for a group of any size up to K."""

    @property
    def kind(self) -> str:
        """The name in the configuration (`scheme.kind`)."""

    @property
    def k(self) -> int:
        """The size of a full group."""

    def build(self, rows: int) -> Scheme:
        """The scheme for a group of `rows` queries, 1 <= rows <= k.

        A group that is smaller than K gets a code of its own size: it keeps the redundancy N - K and the
        straggler tolerance of the full one instead of being padded.

        Raises:
            BadParameter: rows is out of range.
        """


def fewest_arrivals(scheme: Scheme, *, at_deadline: bool = False) -> int:
    """The fewest arrivals that can answer every slot, in time or at the deadline."""
    everything = frozenset(range(scheme.k))
    return next(
        count
        for count in range(1, len(scheme.tasks) + 1)
        if scheme.answerable(frozenset(range(count)), at_deadline=at_deadline) == everything
    )
