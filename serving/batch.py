"""One batch: groups of the same scheme that were due together, from encoding to their last answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coding.output_domain import OutputDomain
from coding.scheme import Scheme, TaskSpec
from serving.collect import Collector, Progress
from serving.dispatch import Dispatcher, Flight, Member
from serving.errors import (
    AnswerNotFinite,
    DeadlineExceeded,
    NotFiniteAnswer,
    ServingError,
    TooFewReplicas,
    TransportError,
)
from serving.grouping import Group
from serving.observe import Observer
from serving.replicas import Replica, ReplicaSet, Seat
from serving.types import Answer, ModelMetadata, Obtained, Provenance, Query

Resolve: TypeAlias = Callable[[Query, "Answer | ServingError"], None]


@dataclass(frozen=True, slots=True)
class Stages:
    """What every batch needs to run.

    Attributes:
        replicas: gives each group its seats.
        dispatcher: sends the calls.
        domain: where outputs are decoded (logits, or as they are).
        metadata: the served model.
        observer: told what happens.
        reserve_s: kept back from each deadline for decoding and sending the answer.
        objective_s: how long after a group was sent exact answers are waited for, where others could be had; None
            for not at all.
    """

    replicas: ReplicaSet
    dispatcher: Dispatcher
    domain: OutputDomain
    metadata: ModelMetadata
    observer: Observer
    reserve_s: float
    objective_s: float | None = None


class Batch:
    """Runs groups of one scheme; implements the dispatcher's `Sink`.

    Args:
        groups: each of exactly `scheme.k` queries.
        scheme: how they are encoded.
        stages: what it needs to run.
        resolve: given each query with its answer or its error, once.
    """

    def __init__(self, groups: Sequence[Group], scheme: Scheme, stages: Stages, resolve: Resolve) -> None:
        self._groups = groups
        self._scheme = scheme
        self._stages = stages
        self._resolve = resolve
        patient = stages.objective_s is not None
        self._collectors = [Collector(scheme, patient=patient) for _ in groups]
        self._arrivals: list[dict[int, NDArray[Any]]] = [{} for _ in groups]
        self._asked: list[dict[int, Replica]] = [{} for _ in groups]
        self._erased: list[list[int]] = [[] for _ in groups]
        self._flight: Flight | None = None
        self._errors: list[list[TransportError]] = [[] for _ in groups]
        self._checked: set[int] = set()

    async def run(self) -> None:
        """Encode, send, and answer every query as soon as its group allows; resolves them all."""
        loop = asyncio.get_running_loop()
        payloads = self._encode()
        tasks = self._scheme.tasks
        prompt = [task for task in tasks if task.delay_s == 0]
        ranks = [task.rank for task in prompt]
        coded = self._scheme.k > 1
        planned: Counter[int] = Counter()
        placement = [
            self._stages.replicas.place(ranks, shuffled=coded, planned=planned) for _ in self._groups
        ]
        for asked, seats in zip(self._asked, placement, strict=True):
            asked.update((task.index, seat.replica) for task, seat in zip(prompt, seats, strict=True))
        flight = self._stages.dispatcher.flight(payloads, placement, tasks, self._stages.metadata, self)
        self._flight = flight
        self._erase_unusable(placement, prompt)
        deadlines = {query.deadline for group in self._groups for query in group.queries}
        timers = [loop.call_at(when - self._stages.reserve_s, self._expire, when) for when in deadlines]
        if self._stages.objective_s is not None:
            timers.append(loop.call_later(self._stages.objective_s, self._end_patience))
        try:
            await flight.run()
        finally:
            for timer in timers:
                timer.cancel()

    def fail(self, error: ServingError) -> None:
        """Give every query that still waits this error; for the end of a batch that broke."""
        for position, collector in enumerate(self._collectors):
            self._fail(position, collector.open_slots, error)

    def withdraw(self, query: Query) -> None:
        """The query's caller left; cancel what only it needed."""
        for position, group in enumerate(self._groups):
            slots = [slot for slot, other in enumerate(group.queries) if other is query]
            if slots:
                self._obey(position, self._collectors[position].on_withdrawn(slots))

    def task_sent(self, member: Member, replica: Replica) -> None:
        """A delayed task was sent."""
        position, task = member
        self._asked[position][task] = replica
        self._collectors[position].on_started(task)

    def task_arrived(self, member: Member, output: NDArray[Any]) -> None:
        """One row came back; one that is not finite counts as a failure of this task only."""
        position, task = member
        if self._groups[position].reason != "raw" and not np.isfinite(output).all():
            name = self._asked[position][task].name
            self.tasks_failed([member], NotFiniteAnswer(f"{name} answered a value that is not finite"))
            return
        self._arrivals[position][task] = self._stages.domain.to_coding(output[np.newaxis])
        self._obey(position, self._collectors[position].on_arrival(task))

    def tasks_failed(self, members: Sequence[Member], error: TransportError) -> None:
        """A call failed, and with it these tasks."""
        for position in sorted({position for position, _ in members}):
            self._errors[position].append(error)
            failed = [task for where, task in members if where == position]
            self._obey(position, self._collectors[position].on_failure(failed))

    def _encode(self) -> NDArray[Any]:
        started = perf_counter()
        rows = np.stack([[query.row for query in group.queries] for group in self._groups])
        wire = rows.dtype
        if wire == np.float16:
            rows = rows.astype(np.float32)
        payloads = self._scheme.encode(rows).astype(wire, copy=False)
        self._stages.observer.stage_done("encode", perf_counter() - started)
        return payloads

    def _erase_unusable(self, placement: Sequence[Sequence[Seat]], prompt: Sequence[TaskSpec]) -> None:
        for position, seats in enumerate(placement):
            erased = [task.index for task, seat in zip(prompt, seats, strict=True) if not seat.usable]
            if erased:
                self._erased[position] = erased
                self._obey(position, self._collectors[position].on_failure(erased))

    def _end_patience(self) -> None:
        for position, collector in enumerate(self._collectors):
            self._obey(position, collector.on_objective())

    def _expire(self, deadline: float) -> None:
        for position, group in enumerate(self._groups):
            due = [slot for slot, query in enumerate(group.queries) if query.deadline == deadline]
            progress = self._collectors[position].on_deadline(due)
            late = DeadlineExceeded(f"the deadline passed when {self._tally(position)}")
            self._obey(position, progress, late)

    def _obey(self, position: int, progress: Progress, reason: ServingError | None = None) -> None:
        if progress.answer:
            self._answer(position, progress)
        if progress.fail:
            self._fail(position, progress.fail, reason or self._too_few(position))
        if self._flight is not None:
            self._flight.start((position, task) for task in progress.start)
            self._flight.cancel((position, task) for task in progress.cancel)

    def _answer(self, position: int, progress: Progress) -> None:
        started = perf_counter()
        arrivals = self._arrivals[position]
        decoded = self._scheme.decode(arrivals, progress.answer)
        outputs = self._stages.domain.to_client(decoded.outputs)
        late = self._asked[position].keys() - arrivals.keys()
        wrong = self._check(position, decoded.wrong)
        tasks = self._scheme.tasks
        believed = [tasks[task] for task in sorted(arrivals) if task not in wrong]
        wrong_names = self._names(position, wrong)
        for index, slot in enumerate(decoded.slots):
            if slot in progress.answer:
                own = [task for task in believed if slot in task.exact]
                # An exact answer was waited for from those alone that could give it.
                missing = [task for task in late if not own or slot in tasks[task].exact]
                provenance = Provenance(
                    obtained=self._obtained(slot, own),
                    replicas_used=len(own) or sum([slot in task.serves for task in believed]),
                    missing=self._names(position, missing),
                    wrong=wrong_names,
                    degraded=slot in progress.degraded,
                    error_estimate=float(decoded.error[index, 0]),
                )
                self._resolve(self._groups[position].queries[slot], Answer(outputs[index, 0], provenance))
        self._stages.observer.stage_done("decode", perf_counter() - started)

    def _check(self, position: int, found: Sequence[frozenset[int]]) -> frozenset[int]:
        """The tasks of a group whose arrivals were found wrong; their replicas are told of it, once for each group.

        Args:
            position: the group's.
            found: what the scheme found; empty where it did not look.
        """
        if not found:
            return frozenset()
        (wrong,) = found
        if position not in self._checked:
            self._checked.add(position)
            asked = self._asked[position]
            self._stages.replicas.arrivals_checked(
                right=[asked[task] for task in self._arrivals[position] if task not in wrong],
                wrong=[asked[task] for task in sorted(wrong)],
            )
        return wrong

    def _names(self, position: int, tasks: Iterable[int]) -> tuple[str, ...]:
        """The replicas of these tasks, in the order of the ring."""
        replicas = {self._asked[position][task] for task in tasks}
        return tuple(replica.name for replica in sorted(replicas, key=lambda replica: replica.number))

    def _obtained(self, slot: int, own: Sequence[TaskSpec]) -> Obtained:
        """By its own replica alone, by the first of several copies, by a hedge, or by decoding.

        Args:
            slot: the answered one.
            own: the tasks whose arrivals are the model's own answer to it, in index order.
        """
        if not own:
            return "decoded"
        if own[0].delay_s > 0:
            return "hedged"
        copies = [task for task in self._scheme.tasks if slot in task.exact]
        return "replicated" if len(copies) > 1 and not any(task.delay_s > 0 for task in copies) else "direct"

    def _fail(self, position: int, slots: Iterable[int], error: ServingError) -> None:
        for slot in slots:
            self._resolve(self._groups[position].queries[slot], error)

    def _too_few(self, position: int) -> ServingError:
        errors = self._errors[position]
        alone = self._groups[position].rows == 1
        if alone and errors and all(isinstance(error, NotFiniteAnswer) for error in errors):
            return AnswerNotFinite(
                "what the model answers to this row is not finite; its values may be too large"
            )
        detail = f"; the last failure: {errors[-1]}" if errors else ""
        return TooFewReplicas(f"too many replicas failed: {self._tally(position)}{detail}", retry_after_s=1.0)

    def _tally(self, position: int) -> str:
        asked = set(self._asked[position].values())
        unfit = len(self._erased[position])
        others = f", {unfit} were not fit to be asked" if unfit else ""
        return f"{len(self._arrivals[position])} of {len(asked)} replicas had answered{others}"
