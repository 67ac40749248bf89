"""The collector decides from arrivals alone: tables of events and what must follow."""

from collections.abc import Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding.copies import HedgedParams, NoneParams, ReplicationParams
from coding.letcc import LetccParams
from coding.scheme import Scheme
from serving.collect import Collector, Progress

LETCC = LetccParams(k=4, n=7, wait_for=5, floor=2).build(4)
ALL = frozenset(range(4))


def feed(collector: Collector, arrivals: Set[int]) -> list[Progress]:
    return [collector.on_arrival(task) for task in sorted(arrivals)]


def test_a_linear_code_answers_all_slots_at_wait_for_and_cancels_the_rest() -> None:
    collector = Collector(LETCC)
    *early, last = feed(collector, {0, 2, 3, 5, 6})
    assert all(progress == Progress() for progress in early)
    assert last == Progress(answer=ALL, cancel=frozenset({1, 4}))
    assert collector.outstanding == frozenset()


def test_a_late_arrival_changes_nothing() -> None:
    collector = Collector(LETCC)
    feed(collector, {0, 1, 2, 3, 4})
    assert collector.on_arrival(5) == Progress()
    assert collector.on_failure([6]) == Progress()
    assert collector.arrived == frozenset(range(5))


def test_the_same_arrival_twice_counts_once() -> None:
    collector = Collector(LETCC)
    feed(collector, {0, 1, 2, 3})
    assert collector.on_arrival(3) == Progress()
    assert collector.open_slots == ALL


def test_after_too_many_failures_it_answers_from_what_is_there_without_waiting_for_the_deadline() -> None:
    collector = Collector(LETCC)
    feed(collector, {0, 1, 2})
    assert collector.on_failure([3, 4, 5]) == Progress()
    assert collector.on_failure([6]) == Progress(answer=ALL, degraded=ALL)


def test_a_group_below_its_floor_fails_as_soon_as_it_is_hopeless() -> None:
    collector = Collector(LETCC)
    feed(collector, {0})
    assert collector.on_failure([1, 2, 3, 4]) == Progress()
    progress = collector.on_failure([5, 6])
    assert progress.fail == ALL
    assert not progress.answer


def test_hopeless_groups_cancel_what_still_runs() -> None:
    collector = Collector(LetccParams(k=4, n=7, wait_for=5, floor=3).build(4))
    assert collector.on_failure([0, 1, 2, 3, 4]) == Progress(fail=ALL, cancel=frozenset({5, 6}))


def test_the_deadline_answers_only_the_slots_that_are_due() -> None:
    collector = Collector(LETCC)
    feed(collector, {0, 1, 2})
    assert collector.on_deadline([0, 3]) == Progress(answer=frozenset({0, 3}), degraded=frozenset({0, 3}))
    assert collector.open_slots == frozenset({1, 2})
    assert collector.on_deadline([1, 2]).cancel == frozenset({3, 4, 5, 6})


def test_the_deadline_below_the_floor_fails() -> None:
    collector = Collector(LETCC)
    feed(collector, {0})
    assert collector.on_deadline(ALL).fail == ALL


def test_one_client_leaving_leaves_its_siblings_answered() -> None:
    collector = Collector(LETCC)
    assert collector.on_withdrawn([1]) == Progress()
    assert feed(collector, {0, 1, 2, 3, 4})[-1].answer == frozenset({0, 2, 3})


def test_when_all_clients_left_everything_is_cancelled() -> None:
    collector = Collector(LETCC)
    collector.on_withdrawn([0, 1, 2])
    assert collector.on_withdrawn([3]) == Progress(cancel=frozenset(range(7)))


def test_the_first_copy_wins() -> None:
    collector = Collector(ReplicationParams(copies=3).build(1))
    assert collector.on_failure([0]) == Progress()
    assert collector.on_arrival(2) == Progress(answer=frozenset({0}), cancel=frozenset({1}))


def test_no_copy_left_fails_the_slot() -> None:
    assert Collector(NoneParams().build(1)).on_failure([0]) == Progress(fail=frozenset({0}))


def test_a_hedge_starts_early_when_its_original_failed() -> None:
    collector = Collector(HedgedParams(copies=2, delay_ms=50).build(1))
    assert collector.on_failure([0]) == Progress(start=frozenset({1}))
    assert collector.on_arrival(1).answer == frozenset({0})


def test_a_hedge_that_was_sent_is_not_started_again() -> None:
    collector = Collector(HedgedParams(copies=2, delay_ms=50).build(1))
    collector.on_started(1)
    assert collector.on_failure([0]) == Progress()


@pytest.mark.parametrize(
    "scheme",
    [
        LETCC,
        ReplicationParams(copies=3).build(1),
        HedgedParams(copies=3, delay_ms=5).build(1),
        NoneParams().build(1),
    ],
    ids=["letcc", "replication", "hedged", "none"],
)
@given(data=st.data())
def test_every_slot_is_answered_or_failed_exactly_once_whatever_happens(
    scheme: Scheme, data: st.DataObject
) -> None:
    collector = Collector(scheme)
    order = data.draw(st.permutations(range(len(scheme.tasks))))
    seen: list[int] = []
    for task in order:
        arrives = data.draw(st.booleans())
        progress = collector.on_arrival(task) if arrives else collector.on_failure([task])
        seen += [*progress.answer, *progress.fail]
        assert progress.degraded <= progress.answer
        assert not progress.answer & progress.fail
        assert not progress.cancel & collector.outstanding
    assert sorted(seen) == list(range(scheme.k))
    assert not collector.open_slots
