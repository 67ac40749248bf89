"""Groups form at K rows or at the end of the window, and nothing is admitted past the limits."""

import numpy as np
import pytest

from serving.config import GroupingSettings
from serving.errors import BodyTooLarge, QueueFull
from serving.grouping import GroupFormer
from serving.types import Query

WINDOW_S = 0.01


def queries(*values: float, raw: bool = False) -> list[Query]:
    return [Query(np.full(3, value, np.float32), deadline=1.0, raw=raw) for value in values]


def former(k: int = 4, **settings: object) -> GroupFormer:
    return GroupFormer(k, GroupingSettings(window_ms=WINDOW_S * 1000, **settings))


def values(groups) -> list[list[float]]:
    return [[float(query.row[0]) for query in group.queries] for group in groups]


def test_nothing_waits_nothing_is_due() -> None:
    empty = former()
    assert empty.due_at() is None
    assert empty.take(0.0) == []


def test_a_full_group_is_due_at_once() -> None:
    full = former()
    full.add(queries(1, 2, 3, 4), now=5.0)
    assert full.due_at() == 5.0
    assert values(full.take(5.0)) == [[1, 2, 3, 4]]
    assert full.due_at() is None


def test_a_request_of_many_rows_spreads_over_groups_and_its_rest_waits_for_the_window() -> None:
    spread = former()
    spread.add(queries(*range(10, 20)), now=0.0)
    assert values(spread.take(0.0)) == [[10, 11, 12, 13], [14, 15, 16, 17]]
    assert spread.due_at() == WINDOW_S
    assert spread.take(WINDOW_S * 0.99) == []
    (rest,) = spread.take(WINDOW_S)
    assert (rest.rows, rest.reason, rest.waited_s) == (2, "window", WINDOW_S)


def test_the_window_counts_from_the_oldest_row() -> None:
    shared = former()
    shared.add(queries(1), now=0.0)
    shared.add(queries(2), now=0.008)
    assert shared.due_at() == WINDOW_S
    assert values(shared.take(WINDOW_S)) == [[1, 2]]


def test_a_rest_that_came_later_keeps_its_own_window() -> None:
    late = former()
    late.add(queries(1, 2, 3), now=0.0)
    late.add(queries(4, 5), now=0.009)
    assert values(late.take(WINDOW_S)) == [[1, 2, 3, 4]]
    assert late.due_at() == pytest.approx(0.009 + WINDOW_S)


def test_rows_of_a_raw_kind_go_alone_and_at_once() -> None:
    mixed = former()
    mixed.add(queries(1), now=0.0)
    mixed.add(queries(float("nan"), raw=True), now=0.001)
    (group,) = mixed.take(0.001)
    assert (group.rows, group.reason) == (1, "raw")
    assert mixed.waiting == 1


def test_at_most_so_many_groups_are_taken_at_once() -> None:
    limited = former(max_groups_per_call=2)
    limited.add(queries(*range(10, 23)), now=0.0)
    assert len(limited.take(1.0)) == 2
    assert [group.rows for group in limited.take(1.0)] == [4, 1]


def test_similar_rows_are_put_side_by_side_before_they_are_cut_into_groups() -> None:
    sorting = GroupFormer(2, GroupingSettings(), ordering=lambda rows: np.argsort(rows[:, 0]))
    sorting.add(queries(3, 1, 4, 2), now=0.0)
    assert values(sorting.take(0.0)) == [[1, 2], [3, 4]]


def test_a_row_of_another_size_goes_alone_whichever_is_in_the_majority() -> None:
    mixed = former(k=3)
    mixed.add(queries(1.0, 500.0, 0.9), now=0.0)
    assert [(group.rows, group.reason) for group in mixed.take(0.0)] == [(1, "outlier"), (2, "window")]
    mixed.add(queries(1e30, 1.0, 1e30), now=0.0)
    assert values(mixed.take(0.0)) == [[1.0], [pytest.approx(1e30), pytest.approx(1e30)]]
    mixed.add(queries(0.0, 0.0, 0.0), now=0.0)
    assert [group.rows for group in mixed.take(0.0)] == [3]


def test_a_request_that_could_never_fit_is_refused_for_good() -> None:
    limited = former(max_queued_rows=4)
    with pytest.raises(BodyTooLarge, match=r"4 rows \(grouping.max_queued_rows\).*this one has 5"):
        limited.add(queries(1, 2, 3, 4, 5), now=0.0)
    assert limited.admitted == (0, 0)


def test_the_limit_in_rows_is_exact_and_all_or_nothing() -> None:
    limited = former(max_queued_rows=5)
    limited.add(queries(1, 2, 3), now=0.0)
    with pytest.raises(QueueFull, match=r"3 rows.*this request has 3.*max_queued_rows is 5") as refused:
        limited.add(queries(4, 5, 6), now=0.0)
    assert refused.value.headers == {"Retry-After": "1"}
    limited.add(queries(4, 5), now=0.0)
    assert limited.admitted == (5, 60)


def test_the_limit_in_bytes_holds_too() -> None:
    limited = former(max_queued_bytes=30)
    limited.add(queries(1, 2), now=0.0)
    with pytest.raises(QueueFull, match="max_queued_bytes is 30"):
        limited.add(queries(3), now=0.0)


def test_a_released_row_makes_room() -> None:
    limited = former(max_queued_rows=2)
    first, second = queries(1, 2)
    limited.add([first, second], now=0.0)
    limited.release(first)
    limited.add(queries(3), now=0.0)
    assert limited.admitted[0] == 2


def test_a_row_can_be_withdrawn_only_before_it_is_in_a_group() -> None:
    leaving = former(k=2)
    first, second, third = queries(1, 2, 3)
    leaving.add([first, second, third], now=0.0)
    leaving.take(0.0)
    assert not leaving.withdraw(first)
    assert leaving.withdraw(third)
    assert leaving.waiting == 0
