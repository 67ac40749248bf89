"""Which replica gets which task: even, wandering, and around the bad ones."""

from collections import Counter

import pytest
from scenario import METADATA, double

from serving.config import LocalReplicas
from serving.metrics import PrometheusObserver
from serving.replicas import ReplicaSet
from serving.transport.scripted import ScriptedTransport, Step

pytestmark = pytest.mark.looptime


async def replica_set(count: int, down: set[int] = frozenset()) -> ReplicaSet:
    names = tuple(f"replica-{number}" for number in range(count))
    replicas = ReplicaSet(names, LocalReplicas(count=count), lambda: 0.0, PrometheusObserver(names))
    for number in range(count):
        replicas.attach(number, ScriptedTransport([Step(double)], METADATA, ready=number not in down))
    await replicas._probe_doubtful()
    return replicas


def names(seats, *, usable: bool = True) -> list[str]:
    return [seat.replica.name for seat in seats if seat.usable == usable]


async def test_each_task_of_a_group_gets_a_replica_of_its_own() -> None:
    replicas = await replica_set(12)
    for _ in range(20):
        assert len(set(names(replicas.place(range(12))))) == 12
        assert len(set(names(replicas.place(range(5))))) == 5


async def test_single_tasks_go_round_the_ring() -> None:
    replicas = await replica_set(4)
    assert [names(replicas.place(range(1)))[0] for _ in range(8)] == [f"replica-{n % 4}" for n in range(8)]


async def test_first_copies_of_groups_that_follow_each_other_go_to_different_replicas() -> None:
    replicas = await replica_set(12)
    first = [names(replicas.place(range(2), shuffled=False))[0] for _ in range(12)]
    assert len(set(first)) == 12


async def test_a_silent_replica_gets_the_second_copy() -> None:
    replicas = await replica_set(4)
    replicas.place(range(2), shuffled=False)[0].replica.health.on_sent(-0.5)
    for _ in range(8):
        seats = replicas.place(range(2), shuffled=False)
        assert seats[0].replica.name != "replica-0"


async def test_replicas_with_less_to_do_come_first() -> None:
    replicas = await replica_set(4)
    busy = {seat.replica for seat in replicas.place(range(2))}
    for replica in busy:
        replicas.call_started(replica)
    free = {"replica-0", "replica-1", "replica-2", "replica-3"} - {replica.name for replica in busy}
    for _ in range(8):
        assert set(names(replicas.place(range(2)))) == free
        assert replicas.least_busy([]).name in free
    one, other = free
    chosen = replicas.least_busy([replica for replica in replicas._ring if replica.name == one])
    assert chosen is not None
    assert chosen.name == other
    assert replicas.least_busy(replicas._ring) is None


async def test_groups_that_are_sent_together_count_each_others_tasks() -> None:
    replicas = await replica_set(6)
    replicas.call_started(replicas.place(range(1))[0].replica)
    planned: Counter[int] = Counter()
    placed = [names(replicas.place(range(1), planned=planned))[0] for _ in range(5)]
    assert len(set(placed)) == 5
    assert "replica-0" not in placed


async def test_small_groups_load_every_replica_alike() -> None:
    replicas = await replica_set(12)
    load = Counter(name for _ in range(120) for name in names(replicas.place(range(5))))
    assert set(load.values()) == {50}


async def test_a_replica_takes_every_point_of_the_curve_and_neighbours_do_not_stay_neighbours() -> None:
    replicas = await replica_set(12)
    groups = [names(replicas.place(range(12))) for _ in range(600)]
    points = Counter(group.index("replica-3") for group in groups)
    assert set(points) == set(range(12))
    assert min(points.values()) > 20
    neighbours = sum(abs(group.index("replica-3") - group.index("replica-4")) == 1 for group in groups)
    assert neighbours / 600 == pytest.approx(2 / 12, abs=0.06)


async def test_bad_replicas_are_passed_over_while_there_are_enough_good_ones() -> None:
    replicas = await replica_set(12, down={3, 8})
    for _ in range(24):
        assert not {"replica-3", "replica-8"} & {seat.replica.name for seat in replicas.place(range(10))}


async def test_past_that_they_keep_their_seats_as_erasures() -> None:
    replicas = await replica_set(12, down={3, 8})
    for _ in range(24):
        seats = replicas.place(range(12))
        assert sorted(names(seats, usable=False)) == ["replica-3", "replica-8"]
        assert len(names(seats)) == 10


async def test_no_more_erasures_than_needed() -> None:
    replicas = await replica_set(12, down={1, 3, 8})
    assert len(names(replicas.place(range(10)), usable=False)) == 1


async def test_bad_replicas_take_the_tasks_that_can_be_spared_and_silent_ones_the_next() -> None:
    replicas = await replica_set(6, down={2})
    silent = next(seat.replica for seat in replicas.place(range(6)) if seat.replica.name == "replica-4")
    silent.health.on_sent(-0.5)
    for _ in range(12):
        seats = replicas.place([3, 0, 5, 1, 4, 2])
        assert seats[2].replica.name == "replica-2"
        assert seats[4].replica.name == "replica-4"
        assert len({seat.replica.name for seat in seats}) == 6
