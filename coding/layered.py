"""Exact first, a hedge for what is late, and a decoded answer for what is late even then."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from coding.checks import require_hedging, require_one_shape, require_positive
from coding.errors import BadParameter
from coding.scheme import Array, Decoded, Scheme, TaskSpec
from coding.spline_code import SplineParams, spline_code


class LayeredCode:
    """A systematic code, and a delayed copy of every query.

    Implements `coding.scheme.Scheme`. The copy of a query stands for its own task: whichever of the two arrives is the
    answer, and lies on the curve where the task does.
    """

    def __init__(self, code: Scheme, delay_s: float) -> None:
        """Add the copies to a code.

        Args:
            code: for each slot it has a task whose arrival is exact.
            delay_s: seconds after which a copy is sent, above 0.
        """
        self._code = code
        n = len(code.tasks)
        own = {slot: task.index for task in reversed(code.tasks) for slot in task.exact}
        self._own_of_copy = {n + slot: own[slot] for slot in range(code.k)}
        copies = (
            TaskSpec(n + slot, frozenset({slot}), delay_s=delay_s, rank=n + slot, exact=frozenset({slot}))
            for slot in range(code.k)
        )
        self._tasks = (*code.tasks, *copies)

    @property
    def k(self) -> int:
        """Number of query slots in a group, K."""
        return self._code.k

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """N tasks of the code, and K delayed copies in the order of the slots."""
        return self._tasks

    def encode(self, queries: Array) -> Array:
        """The code's payloads, and the queries as they are.

        Raises:
            BadShape: the second axis is not K.
        """
        payloads = self._code.encode(queries)
        return np.concatenate([payloads, payloads[list(self._own_of_copy.values())]])

    def answerable(self, arrived: Set[int], *, at_deadline: bool = False) -> frozenset[int]:
        """What the code can answer, with copies for tasks."""
        return self._code.answerable({self._place(task) for task in arrived}, at_deadline=at_deadline)

    def decode(self, outputs: Mapping[int, Array], wanted: Set[int] | None = None) -> Decoded:
        """Decode by the code; where a query's own task has arrived, its copy changes nothing.

        Raises:
            NotDecodable: nothing can be answered.
            BadShape: the arrivals differ in shape.
            BadParameter: an index is none of the tasks', or the arrivals are not floating point.
        """
        if outputs:
            require_one_shape([outputs[task] for task in sorted(outputs)])
        # Copies come first, so that tasks take their places.
        ordered = sorted(outputs, reverse=True)
        return self._code.decode({self._place(task): outputs[task] for task in ordered}, wanted)

    def _place(self, task: int) -> int:
        return self._own_of_copy.get(task, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredParams(SplineParams):
    """A systematic spline code whose late queries are hedged first, and decoded only when an objective has passed.

    Sources: Dean and Barroso, "The Tail at Scale", 2013 (hedging); Kosaian, Rashmi and Venkataraman, "Parity Models",
    SOSP 2019 (exact answers first, approximate ones for the late); the curve is LeTCC's.
    """

    kind: Literal["layered"] = "layered"
    """Each row goes to a replica of its own, and coded ones beside them: late rows are sent again, and decoded when the
    objective has passed."""
    n: int = 9
    """Tasks of a full group, N, each on a replica of its own; at least k. Copies of late rows go to whoever is free."""
    wait_for: int = 8
    """Arrivals from which a row is decoded that no replica can answer exactly any more."""
    floor: int | None = None
    """Arrivals from which rows are decoded that are late even at the objective; null means half of k, rounded up. Few
    keep the objective at any load, and more decode better."""
    objective_ms: float = 200.0
    """What is missing so long after its group was sent is decoded, milliseconds; before that answers are exact."""
    delay_ms: float = 100.0
    """Wait before a late row is sent again, milliseconds, until enough calls have been timed."""
    percentile: float | None = 90.0
    """From then on it is sent when its call takes longer than this percentile of the latest; null keeps delay_ms."""
    budget: float = 0.15
    """Rows that may be sent again, as a share of all rows. Beyond it, and while many calls fail, none is."""

    def __post_init__(self) -> None:
        """Check every rule (see `LinearParams`)."""
        SplineParams.__post_init__(self)
        require_positive("objective_ms", self.objective_ms)
        require_positive("delay_ms", self.delay_ms)
        require_hedging(self.percentile, self.budget)
        if self.max_wrong:
            raise BadParameter(
                "max_wrong must be 0, for exact answers are given before others could contradict them; "
                f"got {self.max_wrong}"
            )

    def build(self, rows: int) -> Scheme:
        """The code for a group of `rows` queries (see `CodeSize.for_rows`); built once, then shared.

        A query alone goes to one replica, and has its copy: it needs no code, and copies at once would be replication.

        Raises:
            BadParameter: rows is not between 1 and k.
        """
        return _build(self, rows)


@lru_cache(maxsize=256)
def _build(params: LayeredParams, rows: int) -> Scheme:
    if rows == 1:
        params = replace(params, n=params.k, wait_for=params.k, floor=None)
    return LayeredCode(spline_code(params, rows, systematic=True), params.delay_ms / 1000.0)
