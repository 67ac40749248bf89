"""The collector: what one group's arrivals mean. Pure state; it decides, the dispatcher obeys.

A group has open slots (callers that wait) and tasks, each of which is outstanding, arrived or failed. After
every event the collector says which slots can be answered, which tasks to start or cancel, and which slots can
never be answered, so that nobody waits for a reply that cannot come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coding.scheme import Scheme

_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Progress:
    """What to do now.

    Attributes:
        answer: slots to answer from the arrivals there are.
        degraded: those of `answer` that had to do with fewer arrivals than the scheme wants.
        fail: slots that no arrival still to come can answer.
        start: tasks to send now, whatever their delay.
        cancel: tasks that nobody needs any more.
    """

    answer: frozenset[int] = _NOTHING
    degraded: frozenset[int] = _NOTHING
    fail: frozenset[int] = _NOTHING
    start: frozenset[int] = _NOTHING
    cancel: frozenset[int] = _NOTHING


_WAIT = Progress()


class Collector:
    """State of one group from its first task to its last answer.

    Args:
        scheme: the group's.
        patient: before `on_objective`, answer a slot only by an arrival that is exact for it, as long as one may come;
            after it, from as few arrivals as at the deadline.
    """

    def __init__(self, scheme: Scheme, *, patient: bool = False) -> None:
        self._scheme = scheme
        self._patient = patient
        self._content = False
        self._exact = {task.index: task.exact for task in scheme.tasks}
        self._serves = {task.index: task.serves for task in scheme.tasks}
        self._delayed = {task.index for task in scheme.tasks if task.delay_s > 0}
        self._outstanding = set(self._serves)
        self._arrived: set[int] = set()
        self._open = set(range(scheme.k))

    @property
    def arrived(self) -> frozenset[int]:
        """Tasks whose answers are there."""
        return frozenset(self._arrived)

    @property
    def outstanding(self) -> frozenset[int]:
        """Tasks that may still arrive: neither arrived, failed nor cancelled."""
        return frozenset(self._outstanding)

    @property
    def open_slots(self) -> frozenset[int]:
        """Slots whose callers still wait."""
        return frozenset(self._open)

    def on_started(self, task: int) -> None:
        """A delayed task was sent because its delay passed."""
        self._delayed.discard(task)

    def on_arrival(self, task: int) -> Progress:
        """A task's answer came in. An answer to a task that is no longer outstanding changes nothing."""
        if task not in self._outstanding:
            return Progress()
        self._outstanding.discard(task)
        self._arrived.add(task)
        if self._outstanding and not self._open & self._answerable():
            # An arrival makes nothing hopeless and nothing useless: the common case, and quick.
            return _WAIT
        return self._review()

    def on_failure(self, tasks: Iterable[int]) -> Progress:
        """Tasks failed, or could not be sent at all."""
        self._outstanding.difference_update(tasks)
        return self._review()

    def on_deadline(self, slots: Iterable[int]) -> Progress:
        """These slots cannot wait any longer: answer them from what is there, or fail them."""
        due = self._open.intersection(slots)
        answer = due & self._scheme.answerable(self._arrived, at_deadline=True)
        return self._close(answer=answer, degraded=answer, fail=due - answer)

    def on_objective(self) -> Progress:
        """No more patience: from now on slots are answered as soon as the scheme can at all."""
        self._patient, self._content = False, True
        return self._review()

    def on_withdrawn(self, slots: Iterable[int]) -> Progress:
        """The callers of these slots left; their siblings' answers do not change."""
        self._open.difference_update(slots)
        return self._close()

    def _review(self) -> Progress:
        """What follows from the arrivals and failures so far."""
        answer = self._open & self._answerable()
        rest = self._open - answer
        degraded = set(answer - self._scheme.answerable(self._arrived)) if self._content else set()
        if rest and not self._outstanding:
            degraded |= rest & self._scheme.answerable(self._arrived, at_deadline=True)
        reachable = self._scheme.answerable(self._arrived | self._outstanding, at_deadline=True)
        return self._close(answer=answer | degraded, degraded=degraded, fail=rest - degraded - reachable)

    def _answerable(self) -> frozenset[int]:
        """What may be answered now from the arrivals."""
        answerable = self._scheme.answerable(self._arrived, at_deadline=self._content)
        if not self._patient or not answerable:
            return answerable
        worth_waiting_for = self._exactly(self._outstanding) - self._exactly(self._arrived)
        return answerable - worth_waiting_for

    def _exactly(self, tasks: Iterable[int]) -> frozenset[int]:
        """The slots of which these tasks' arrivals are the answer."""
        return _NOTHING.union(*(self._exact[task] for task in tasks))

    def _close(
        self, answer: Iterable[int] = (), degraded: Iterable[int] = (), fail: Iterable[int] = ()
    ) -> Progress:
        answered, failed = frozenset(answer), frozenset(fail)
        self._open -= answered | failed
        useless = frozenset(task for task in self._outstanding if self._open.isdisjoint(self._serves[task]))
        self._outstanding -= useless
        return Progress(answered, frozenset(degraded), failed, self._overdue(), useless)

    def _overdue(self) -> frozenset[int]:
        """Delayed tasks to start early: every task already started that is exact for one of their slots has failed."""
        pending = self._delayed & self._outstanding
        if not pending:
            return _NOTHING
        served = self._exactly((self._outstanding - self._delayed) | self._arrived)
        early = frozenset(task for task in pending if (self._exact[task] & self._open) - served)
        self._delayed -= early
        return early
