"""A systematic code: every query goes out as it is, and coded ones beside them.

What a query's own replica answers is exact, and is the answer as soon as it is there. Only the queries whose replicas
are late are read off the curve, through the answers that have come, raw and coded alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from coding.checks import require_one_shape
from coding.errors import BadParameter, NotDecodable
from coding.linear_code import LinearCode
from coding.scheme import Array, Decoded, TaskSpec


class SystematicCode:
    """A linear code of which K tasks carry one query each, as it is.

    Implements `coding.scheme.Scheme`. A slot is answerable once its own task has arrived, and all slots are once
    `wait_for` tasks have, or `floor` of them at the deadline.
    """

    def __init__(self, curve: LinearCode, own: Sequence[int]) -> None:
        """Combine a linear code with the knowledge which of its tasks carry plain queries.

        Args:
            curve: its encoding has the unit vector of slot k in the row of task `own[k]`.
            own: for each slot, the task that carries its query, ascending.
        """
        self._curve = curve
        self._own = tuple(own)
        slot_of = {task: slot for slot, task in enumerate(own)}
        raw_first = sorted(curve.tasks, key=lambda task: (task.index not in slot_of, task.rank))
        ranks = {task.index: rank for rank, task in enumerate(raw_first)}
        self._tasks = tuple(
            replace(
                task,
                rank=ranks[task.index],
                exact=frozenset({slot_of[task.index]}) if task.index in slot_of else frozenset(),
            )
            for task in curve.tasks
        )

    @property
    def k(self) -> int:
        """Number of query slots in a group, K."""
        return self._curve.k

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """N tasks; the plain ones are needed more than the coded ones."""
        return self._tasks

    def encode(self, queries: Array) -> Array:
        """Plain and coded payloads, by `LinearCode.encode`."""
        return self._curve.encode(queries)

    def answerable(self, arrived: Set[int], *, at_deadline: bool = False) -> frozenset[int]:
        """Every slot once enough tasks have arrived; before that, those whose own task has."""
        everything = self._curve.answerable(arrived, at_deadline=at_deadline)
        return everything or frozenset(slot for slot, task in enumerate(self._own) if task in arrived)

    def decode(self, outputs: Mapping[int, Array], wanted: Set[int] | None = None) -> Decoded:
        """Answer each slot by its own arrival, where there is one, and the others by the curve.

        Args:
            outputs: task index to that task's arrival, each of shape (g, ...), floating point.
            wanted: see `Scheme.decode`; the curve is left alone where it is not needed.

        Raises:
            NotDecodable: no slot's own task, and fewer arrivals than the floor.
            BadShape: the arrivals differ in shape.
            BadParameter: an index is none of the tasks', or the arrivals are not floating point.
        """
        own = {slot: task for slot, task in enumerate(self._own) if task in outputs}
        slots = range(self.k) if wanted is None else wanted
        if own.keys() >= set(slots) or not self._curve.answerable(outputs.keys(), at_deadline=True):
            return self._own_answers(outputs, own)
        decoded = self._curve.decode(outputs)
        answers = decoded.outputs.copy()
        for slot, task in own.items():
            answers[slot] = outputs[task]

        def errors() -> Array:
            estimates = decoded.error.copy()
            estimates[list(own)] = 0.0
            return estimates

        return Decoded(decoded.slots, answers, errors)

    def _own_answers(self, outputs: Mapping[int, Array], own: Mapping[int, int]) -> Decoded:
        """The slots whose own task has arrived."""
        if unknown := outputs.keys() - {task.index for task in self._tasks}:
            raise BadParameter(
                f"outputs must be keyed by task indices 0 to {len(self._tasks) - 1}, got {min(unknown)}"
            )
        if not own:
            raise NotDecodable(
                f"{len(outputs)} arrivals, none of them of a plain query, are fewer than the floor of "
                f"{self._curve.size.floor}"
            )
        require_one_shape(list(outputs.values()))
        answers = np.stack([outputs[task] for task in own.values()])
        return Decoded(tuple(own), answers, lambda: np.zeros(answers.shape[:2], answers.dtype))
