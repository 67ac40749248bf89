"""Which points of the curve a group can do without."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding.error_estimate import interpolation_variance
from coding.letcc import LetccParams
from coding.need import ranks_by_need
from coding.nodes import chebyshev_first_kind, chebyshev_second_kind


def loss(n: int, k: int, missing: tuple[int, ...]) -> float:
    return float(
        interpolation_variance(np.delete(chebyshev_second_kind(n), missing), chebyshev_first_kind(k)).sum()
    )


@given(n=st.integers(1, 24), k=st.integers(1, 12))
def test_ranks_are_a_permutation(n: int, k: int) -> None:
    ranks = ranks_by_need(chebyshev_second_kind(n), chebyshev_first_kind(k))
    assert sorted(ranks) == list(range(n))


@pytest.mark.parametrize(("k", "n"), [(8, 12), (8, 16), (8, 10), (4, 7)])
def test_leaving_out_the_most_dispensable_costs_little_among_all_choices(k: int, n: int) -> None:
    ranks = ranks_by_need(chebyshev_second_kind(n), chebyshev_first_kind(k))
    for count in (1, 2):
        spared = tuple(task for task in range(n) if ranks[task] >= n - count)
        losses = sorted(loss(n, k, missing) for missing in itertools.combinations(range(n), count))
        assert loss(n, k, spared) <= losses[len(losses) // 10]


def test_the_ends_of_the_curve_are_needed_the_most() -> None:
    ranks = ranks_by_need(chebyshev_second_kind(12), chebyshev_first_kind(8))
    assert {ranks[0], ranks[11]} == {0, 1}


def test_many_points_are_ranked_without_a_search_over_all_of_them() -> None:
    ranks = ranks_by_need(chebyshev_second_kind(100), chebyshev_first_kind(20))
    assert sorted(ranks) == list(range(100))


def test_codes_carry_the_ranks_in_their_tasks() -> None:
    tasks = LetccParams(k=8, n=12).build(8).tasks
    assert sorted(task.rank for task in tasks) == list(range(12))
