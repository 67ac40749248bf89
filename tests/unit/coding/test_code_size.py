import pytest

from coding.code_size import CodeSize
from coding.errors import BadParameter


def test_a_full_group_has_the_numbers_given() -> None:
    size = CodeSize.checked(8, 12, 10, 5)
    assert size.for_rows(8) == size == CodeSize(k=8, n=12, wait_for=10, floor=5)


@pytest.mark.parametrize(
    ("k", "wait_for", "floor"), [(8, 10, 4), (7, 9, 4), (1, 3, 1), (20, 40, 10), (8, 3, 3)]
)
def test_the_floor_defaults_to_half_the_queries(k: int, wait_for: int, floor: int) -> None:
    assert CodeSize.checked(k, 100, wait_for, None).floor == floor


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(8, (8, 12, 10, 4)), (7, (7, 11, 9, 4)), (4, (4, 8, 6, 2)), (2, (2, 6, 4, 1)), (1, (1, 5, 1, 1))],
)
def test_a_small_group_keeps_redundancy_and_tolerance(rows: int, expected: tuple[int, ...]) -> None:
    assert CodeSize.checked(8, 12, 10, None).for_rows(rows) == CodeSize(*expected)


def test_a_small_group_never_waits_for_less_than_one_nor_falls_below() -> None:
    size = CodeSize.checked(8, 12, 3, 3)
    assert size.for_rows(4) == CodeSize(k=4, n=8, wait_for=1, floor=1)


def test_one_row_needs_one_arrival_even_where_groups_are_of_one() -> None:
    assert CodeSize.checked(1, 5, 4, 2).for_rows(1) == CodeSize(k=1, n=5, wait_for=1, floor=1)


@pytest.mark.parametrize("rows", range(1, 9))
def test_a_small_group_still_has_two_arrivals_to_spare_for_each_wrong_one(rows: int) -> None:
    size = CodeSize.checked(8, 14, 12, None, 2).for_rows(rows)
    assert size.max_wrong == 2
    assert rows + 2 * size.max_wrong <= size.wait_for <= size.n


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 12, 10, None), r"k must be at least 1, got 0"),
        ((8, 7, 5, None), r"n must be at least k \(8\), got 7"),
        ((8, 12, 14, None), r"wait_for must be between 1 and n \(12\), got 14"),
        ((8, 12, 0, None), r"wait_for must be between 1 and n \(12\), got 0"),
        ((8, 12, 10, 11), r"floor must be between 1 and wait_for \(10\), got 11"),
        ((8, 12, 10, 0), r"floor must be between 1 and wait_for \(10\), got 0"),
        ((8, 12, 10, None, 2), r"max_wrong must be between 0 and \(wait_for - k\) / 2 \(1\), got 2"),
        ((8, 12, 6, None, 1), r"max_wrong must be between 0 and \(wait_for - k\) / 2 \(0\), got 1"),
        ((8, 12, 10, None, -1), r"max_wrong must be between 0 and \(wait_for - k\) / 2 \(1\), got -1"),
        ((True, 12, 10, None), r"k must be an integer, got True"),
        ((8, "12", 10, None), r"n must be an integer, got '12'"),
        ((8, 12, 10.0, None), r"wait_for must be an integer, got 10.0"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name_rule_and_value(numbers: tuple, message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        CodeSize.checked(*numbers)


@pytest.mark.parametrize("rows", [0, 9, -1])
def test_a_group_must_have_between_one_and_k_rows(rows: int) -> None:
    with pytest.raises(BadParameter, match=rf"rows must be between 1 and k \(8\), got {rows}"):
        CodeSize.checked(8, 12, 10, None).for_rows(rows)
