"""The replicas: who is fit for work, how much each has in hand, and which task of a group goes to which."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import numpy as np
import structlog

from serving.config.schema import HttpReplicas, LocalReplicas
from serving.health import Health, State
from serving.observe import Observer
from serving.transport.base import Transport
from serving.types import CallOutcome

_log = structlog.get_logger(__name__)

WRONG_LOG_INTERVAL_S = 10.0
"""The log tells of a replica's wrong arrivals once in this time, with their number since."""


class Replica:
    """One replica: its name, its health, its open calls and, while it is up, the way to reach it.

    Attributes:
        wrong_unlogged: its wrong arrivals since the log last told of one.
        quiet_until: the loop's time until which the log tells of no more.
    """

    def __init__(self, number: int, name: str, health: Health) -> None:
        self.number = number
        self.name = name
        self.health = health
        self.transport: Transport | None = None
        self.in_flight = 0
        self.wrong_unlogged = 0
        self.quiet_until = -inf


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a task of a group belongs; an unusable replica keeps its seat and the task is an erasure."""

    replica: Replica
    usable: bool


class ReplicaSet:
    """All replicas of one model.

    Args:
        names: one per replica, in the order of the ring that groups rotate over.
        settings: limits and intervals.
        clock: the event loop's time.
        observer: told of every change of state and every call.
    """

    def __init__(
        self,
        names: Sequence[str],
        settings: LocalReplicas | HttpReplicas,
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._observer = observer
        hang_after_s = settings.hang_after_ms / 1000
        self._ring = [
            Replica(
                number,
                name,
                Health(hang_after_s, settings.wrong_before_ejection, settings.wrong_ejection_s),
            )
            for number, name in enumerate(names)
        ]
        self._turn = 0
        self._deal = np.random.default_rng(0)
        self._wake = asyncio.Event()
        self._retired: list[Transport] = []
        self._listeners: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def states(self) -> dict[str, State]:
        """Each replica's state by name, in the order of the ring."""
        return {replica.name: replica.health.state for replica in self._ring}

    @property
    def in_flight(self) -> dict[str, int]:
        """Each replica's open calls by name, in the order of the ring."""
        return {replica.name: replica.in_flight for replica in self._ring}

    @property
    def serving(self) -> int:
        """How many replicas are fit for work, busy or not."""
        return sum(replica.health.serving for replica in self._ring)

    @property
    def healthy(self) -> int:
        """How many replicas are fit for work beyond doubt."""
        return sum(replica.health.state == "healthy" for replica in self._ring)

    @property
    def available(self) -> int:
        """How many of those are under their in-flight limit."""
        return sum(self._is_available(replica) for replica in self._ring)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a replica may have become available."""
        self._listeners.append(listener)

    async def until_serving(self, count: int) -> None:
        """Wait until at least `count` replicas are fit for work."""
        changed = asyncio.Event()
        self._listeners.append(changed.set)
        try:
            while self.serving < count:
                changed.clear()
                await changed.wait()
        finally:
            self._listeners.remove(changed.set)

    def any_transport(self) -> Transport | None:
        """A way to reach some replica that serves."""
        return next((replica.transport for replica in self._ring if replica.health.serving), None)

    def place(
        self, ranks: Sequence[int], *, shuffled: bool = True, planned: Counter[int] | None = None
    ) -> tuple[Seat, ...]:
        """Give each task of one group a replica of its own: to those with the fewest calls in hand.

        The ring is turned by one from group to group, so that work spreads evenly among replicas that have as much to
        do. Bad replicas are passed over while there are enough good ones; past that they keep their places, and their
        tasks are erasures. The chosen replicas are dealt to the tasks by rank: the bad ones take the points of the
        curve that the group can best do without, then those that have been silent longest, and the rest in a new order
        each time.

        Args:
            ranks: one per task, at most as many as there are replicas; 0 is needed the most.
            shuffled: deal the rest in a new order, so that no two replicas always take neighbouring points. Copies
                have no points: left in the order of the ring, the first copies of groups that follow each other
                go to different replicas.
            planned: by number of the replica, the tasks that groups to be sent together have there; added to.
        """
        seats = self._choose(len(ranks), Counter() if planned is None else planned)
        now = self._clock()
        chance = self._deal.permutation(len(seats)) if shuffled else range(len(seats))
        worth = sorted(
            range(len(seats)),
            key=lambda index: (
                not seats[index].usable,
                seats[index].replica.health.silence_s(now),
                chance[index],
            ),
        )
        dealt: list[Seat] = [seats[0]] * len(seats)
        for task, index in zip(sorted(range(len(ranks)), key=ranks.__getitem__), worth, strict=True):
            dealt[task] = seats[index]
        return tuple(dealt)

    def least_busy(self, others_than: Collection[Replica]) -> Replica | None:
        """A replica for one more call: of those that may be sent work, the one with the fewest calls in hand.

        Args:
            others_than: those that must not be chosen.

        Returns:
            None where there is none.
        """
        now = self._clock()
        free = [
            replica for replica in self._ring if self._is_available(replica) and replica not in others_than
        ]
        chance = self._deal.permutation(len(self._ring))
        return min(
            free,
            key=lambda replica: (
                replica.in_flight,
                replica.health.silence_s(now),
                chance[replica.number],
            ),
            default=None,
        )

    def _choose(self, tasks: int, planned: Counter[int]) -> list[Seat]:
        """The usable replicas with the least to do, and as many others as are needed to make up the number."""
        start, self._turn = self._turn, (self._turn + 1) % len(self._ring)
        ring = self._ring[start:] + self._ring[:start]
        seats = [Seat(replica, self._is_available(replica)) for replica in ring]
        # Sorting is stable: among those with as much to do, the ring decides.
        seats.sort(key=lambda seat: (not seat.usable, seat.replica.in_flight + planned[seat.replica.number]))
        chosen = seats[:tasks]
        for seat in chosen:
            planned[seat.replica.number] += 1
            if not seat.usable:
                self._observer.task_skipped(seat.replica.name)
        return chosen

    def call_started(self, replica: Replica) -> None:
        """An upstream call goes out."""
        replica.in_flight += 1
        replica.health.on_sent(self._clock())

    def call_ended(self, replica: Replica, outcome: CallOutcome, seconds: float) -> None:
        """An upstream call ended, well or not."""
        before = replica.health.state
        replica.in_flight -= 1
        now = self._clock()
        if outcome == "answered":
            replica.health.on_answered(now)
        elif outcome == "failed":
            replica.health.on_failed(now)
        else:
            replica.health.on_cancelled(now)
        self._observer.call_done(replica.name, outcome, seconds)
        self._note(replica, before)
        self._changed()

    def arrivals_checked(self, right: Iterable[Replica], wrong: Iterable[Replica]) -> None:
        """A group's arrivals were looked at, and these replicas' were found right and wrong."""
        now = self._clock()
        for replica in right:
            self._check(replica, now, wrong=False)
        for replica in wrong:
            self._observer.arrival_wrong(replica.name)
            replica.wrong_unlogged += 1
            if now >= replica.quiet_until:
                _log.warning("wrong_arrivals", replica=replica.name, count=replica.wrong_unlogged)
                replica.quiet_until, replica.wrong_unlogged = now + WRONG_LOG_INTERVAL_S, 0
            self._check(replica, now, wrong=True)

    def _check(self, replica: Replica, now: float, *, wrong: bool) -> None:
        before = replica.health.state
        replica.health.on_checked(now, wrong=wrong, may_eject=self._may_eject())
        self._note(replica, before, reason="wrong arrivals")

    def attach(self, number: int, transport: Transport) -> None:
        """A replica can be reached from now on; it serves once it says that it is ready."""
        replica = self._ring[number]
        replica.transport = transport
        before = replica.health.state
        replica.health.on_starting()
        self._note(replica, before)
        self._wake.set()

    def detach(self, number: int, reason: str) -> None:
        """A replica's process is gone."""
        replica = self._ring[number]
        if replica.transport is not None:
            self._retired.append(replica.transport)
        replica.transport = None
        before = replica.health.state
        replica.health.on_down()
        self._note(replica, before, reason=reason)
        self._wake.set()
        self._changed()

    async def run(self) -> None:
        """Probe the replicas that are starting or in doubt, until cancelled; then close every connection."""
        try:
            while True:
                self._wake.clear()
                await self._probe_doubtful()
                while self._retired:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._settings.probe_timeout_ms / 1000):
                            await self._retired.pop().aclose()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.probe_interval_ms / 1000):
                        await self._wake.wait()
        finally:
            attached = [replica.transport for replica in self._ring if replica.transport is not None]
            for transport in attached + self._retired:
                await transport.aclose()

    async def _probe_doubtful(self) -> None:
        for replica in self._ring:
            before = replica.health.state
            replica.health.review(self._clock())
            self._note(replica, before)
        async with asyncio.TaskGroup() as probes:
            for replica in self._ring:
                doubtful = replica.health.state in ("starting", "suspect", "ejected")
                if doubtful and replica.transport is not None and not replica.health.is_held(self._clock()):
                    probes.create_task(self._decide(replica, replica.transport))

    async def _decide(self, replica: Replica, transport: Transport) -> None:
        answered = await self._probe(transport)
        if replica.transport is not transport:
            return
        if answered:
            self._mark_up(replica)
            return
        before = replica.health.state
        replica.health.on_probe_failed(may_eject=self._may_eject())
        self._note(replica, before)

    async def _probe(self, transport: Transport) -> bool:
        try:
            async with asyncio.timeout(self._settings.probe_timeout_ms / 1000):
                return await transport.ready()
        except TimeoutError:
            return False

    def _mark_up(self, replica: Replica) -> None:
        before = replica.health.state
        replica.health.on_up()
        self._note(replica, before)
        self._changed()

    def _may_eject(self) -> bool:
        ejected = sum(replica.health.state == "ejected" for replica in self._ring)
        return ejected + 1 <= self._settings.max_ejected_share * len(self._ring)

    def _is_available(self, replica: Replica) -> bool:
        return replica.health.serving and replica.in_flight < self._settings.max_in_flight

    def _note(self, replica: Replica, before: State, **details: str) -> None:
        after = replica.health.state
        if after == before:
            return
        self._observer.replica_state(replica.name, after)
        tell = _log.info if after == "healthy" else _log.warning
        tell("replica_state", replica=replica.name, was=before, now=after, **details)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
