"""The dispatcher: sends a batch's upstream calls and cancels them. It obeys and decides nothing.

Groups that were formed together share upstream calls: each replica gets one call that carries its row of every
group. Tasks with a delay are copies of rows that may be late: those of one call wait together, and when they are due
they go to whichever other replica has the least to do. A call is cancelled when no group wants its rows any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coding.scheme import TaskSpec
from serving.errors import TransportError
from serving.hedging import Hedging
from serving.replicas import Replica, ReplicaSet, Seat
from serving.types import CallOutcome, InferRequest, ModelMetadata, NamedTensor

Member: TypeAlias = tuple[int, int]
"""(group's position in the batch, task index)."""


class Sink(Protocol):
    """Receives what becomes of a batch's tasks; its methods run on the event loop and never block."""

    def task_sent(self, member: Member, replica: Replica) -> None:
        """A task with a delay was sent, because it was due or wanted at once, and to whom."""

    def task_arrived(self, member: Member, output: NDArray[Any]) -> None:
        """The task's answer; one row."""

    def tasks_failed(self, members: Sequence[Member], error: TransportError) -> None:
        """These tasks' call failed."""


@dataclass(slots=True, eq=False)
class _Call:
    """One upstream call.

    Attributes:
        replica: where it goes; None for a call with a delay, until it is sent.
        delay_s: the delay, 0 for none.
        asked: the replicas that have been sent the same rows, shared with the calls that copy this one.
    """

    replica: Replica | None
    delay_s: float = 0.0
    asked: list[Replica] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    rank: int = 0
    wanted: set[Member] = field(default_factory=set)
    start_now: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    sent: bool = False
    end: asyncio.TimerHandle | None = None

    def add(self, position: int, task: TaskSpec) -> None:
        """Carry a group's task too."""
        self.members.append((position, task.index))
        self.rank += task.rank


class Dispatcher:
    """Sends batches.

    Args:
        replicas: told when a call starts and how it ends.
        grace_s: how long a call that nobody wants any more may go on before it is cancelled: 0 closes its
            connection at once, more keeps connections warm at the price of occupying the slow replica.
        clock: the event loop's time.
        hedging: when tasks with a delay are sent, and whether; None sends them after their own delay.
    """

    def __init__(
        self,
        replicas: ReplicaSet,
        grace_s: float,
        clock: Callable[[], float],
        hedging: Hedging | None = None,
    ) -> None:
        self._hedging = hedging
        self._replicas = replicas
        self._grace_s = grace_s
        self._clock = clock

    def flight(
        self,
        payloads: NDArray[Any],
        placement: Sequence[Sequence[Seat]],
        tasks: Sequence[TaskSpec],
        metadata: ModelMetadata,
        sink: Sink,
    ) -> Flight:
        """The calls of one batch, not sent yet.

        Args:
            payloads: shape (n, g, ...), one row per task and group, in the datatype of the model's input.
            placement: for each of the g groups, the seat of each of its tasks without a delay, in their order; those
                at unusable replicas are not sent.
            tasks: the scheme's tasks: when each is sent, and in which order.
            metadata: names and shapes of the model's input and output.
            sink: receives the events.
        """
        calls: dict[object, _Call] = {}
        prompt = [task for task in tasks if task.delay_s == 0]
        delayed = [task for task in tasks if task.delay_s > 0]
        for position, seats in enumerate(placement):
            first: dict[int, _Call] = {}
            for task, seat in zip(prompt, seats, strict=True):
                if seat.usable:
                    call = calls.get(seat.replica.number)
                    if call is None:
                        call = calls[seat.replica.number] = _Call(seat.replica, asked=[seat.replica])
                    call.add(position, task)
                    for slot in task.exact:
                        first.setdefault(slot, call)
            self._add_copies(calls, position, delayed, first)
        for call in calls.values():
            call.wanted.update(call.members)
        # All are sent at once, but one after the other: those that are needed the most go first.
        return Flight(
            sorted(calls.values(), key=lambda call: call.rank / len(call.members)),
            payloads,
            metadata,
            sink,
            self._replicas,
            self._clock,
            self._grace_s,
            self._hedging,
        )

    def _add_copies(
        self,
        calls: dict[object, _Call],
        position: int,
        delayed: Sequence[TaskSpec],
        first: Mapping[int, _Call],
    ) -> None:
        """Let the delayed tasks of a group wait beside the calls that they copy, one for each copy of such a call."""
        late_s = self._hedging.delay_s if self._hedging else None
        copies: Counter[frozenset[int]] = Counter()
        for task in delayed:
            copied = next((first[slot] for slot in task.exact if slot in first), None)
            key = (id(copied) if copied else position, copies[task.exact])
            copies[task.exact] += 1
            call = calls.get(key)
            if call is None:
                asked = copied.asked if copied else []
                call = calls[key] = _Call(None, task.delay_s if late_s is None else late_s, asked)
            call.add(position, task)


class Flight:
    """One batch's calls while they are in the air. Made by `Dispatcher.flight`."""

    def __init__(
        self,
        calls: Sequence[_Call],
        payloads: NDArray[Any],
        metadata: ModelMetadata,
        sink: Sink,
        replicas: ReplicaSet,
        clock: Callable[[], float],
        grace_s: float,
        hedging: Hedging | None,
    ) -> None:
        self._hedging = hedging
        self._calls = calls
        self._call_of = {member: call for call in calls for member in call.members}
        self._payloads = payloads
        self._input = metadata.inputs[0]
        self._sink = sink
        self._replicas = replicas
        self._clock = clock
        self._grace_s = grace_s

    async def run(self) -> None:
        """Send every call and see it to its end: answered, failed or cancelled.

        Cancelling this cancels every call.
        """
        async with asyncio.TaskGroup() as group:
            for call in self._calls:
                if call.wanted:
                    call.task = group.create_task(self._perform(call))

    def start(self, members: Iterable[Member]) -> None:
        """Send these tasks now, whatever their delay."""
        for member in members:
            if member in self._call_of:
                self._call_of[member].start_now.set()

    def cancel(self, members: Iterable[Member]) -> None:
        """Nobody wants these tasks any more."""
        for member in members:
            call = self._call_of.get(member)
            if call is None:
                continue
            call.wanted.discard(member)
            if not call.wanted and call.task is not None:
                self._give_up(call, call.task)

    def _give_up(self, call: _Call, task: asyncio.Task[None]) -> None:
        if self._grace_s > 0 and call.sent:
            if call.end is None:
                call.end = asyncio.get_running_loop().call_later(self._grace_s, task.cancel)
        else:
            task.cancel()

    async def _perform(self, call: _Call) -> None:
        replica = call.replica or await self._replica_when_due(call)
        if replica is None:
            self._sink.tasks_failed(
                [member for member in call.members if member in call.wanted],
                TransportError("no other replica was free for a copy"),
            )
            return
        started = self._clock()
        call.sent = True
        self._started(call, replica)
        outcome: CallOutcome = "cancelled"
        try:
            outputs = await self._exchange(call, replica)
            outcome = "answered"
        except TransportError as error:
            outcome = "failed"
            self._sink.tasks_failed([member for member in call.members if member in call.wanted], error)
        finally:
            self._ended(call, replica, outcome, self._clock() - started)
        if outcome == "answered":
            for member, output in zip(call.members, outputs, strict=True):
                if member in call.wanted:
                    self._sink.task_arrived(member, output)

    def _started(self, call: _Call, replica: Replica) -> None:
        self._replicas.call_started(replica)
        if self._hedging and call.delay_s == 0:
            self._hedging.on_sent(len(call.members))

    def _ended(self, call: _Call, replica: Replica, outcome: CallOutcome, seconds: float) -> None:
        if call.end is not None:
            call.end.cancel()
        self._replicas.call_ended(replica, outcome, seconds)
        if self._hedging and call.delay_s == 0:
            self._hedging.on_ended(outcome, seconds)

    async def _replica_when_due(self, call: _Call) -> Replica | None:
        """Wait until a delayed call is due, or wanted at once because others failed; then choose where it goes.

        Returns:
            None where no replica is free that has not been sent these rows.
        """
        try:
            async with asyncio.timeout(call.delay_s):
                await call.start_now.wait()
        except TimeoutError:
            if self._hedging and not self._hedging.allow(len(call.wanted)):
                # No hedge; but should the first call fail, this one is still there to take its place.
                await call.start_now.wait()
        replica = self._replicas.least_busy(call.asked)
        if replica is not None:
            # Rows that have been answered meanwhile are not sent again.
            call.members = [member for member in call.members if member in call.wanted]
            call.asked.append(replica)
            for member in call.members:
                self._sink.task_sent(member, replica)
        return replica

    def _rows(self, members: Sequence[Member]) -> NDArray[Any]:
        if len(members) == 1:
            ((position, task),) = members
            row: NDArray[Any] = self._payloads[task, position : position + 1]
            return row
        positions, tasks = zip(*members, strict=True)
        return np.ascontiguousarray(self._payloads[list(tasks), list(positions)])

    async def _exchange(self, call: _Call, replica: Replica) -> NDArray[Any]:
        transport = replica.transport
        if transport is None:
            raise TransportError(f"{replica.name} went down before its call was sent")
        rows = self._rows(call.members)
        request = InferRequest(
            inputs=(NamedTensor(self._input.name, self._input.datatype, rows),), binary_output=True
        )
        return (await transport.infer(request)).outputs[0].data
