import numpy as np
import pytest

from coding.errors import BadParameter
from coding.nodes import (
    BERRUT_NODES,
    approxifer_tasks,
    chebyshev_first_kind,
    chebyshev_second_kind,
    code_points,
    equispaced,
    task_places,
)

SIZES = [1, 2, 3, 8, 12, 101]


@pytest.mark.parametrize("n", SIZES)
def test_first_kind_matches_the_formula_in_ascending_order(n: int) -> None:
    k = np.arange(1, n + 1)
    formula = np.cos((2 * k - 1) * np.pi / (2 * n))
    np.testing.assert_allclose(chebyshev_first_kind(n), formula[::-1], atol=1e-15)


@pytest.mark.parametrize("n", SIZES[1:])
def test_second_kind_matches_the_formula_in_ascending_order(n: int) -> None:
    k = np.arange(1, n + 1)
    formula = np.cos((k - 1) * np.pi / (n - 1))
    np.testing.assert_allclose(chebyshev_second_kind(n), formula[::-1], atol=1e-15)


def test_second_kind_includes_both_ends_and_one_node_is_the_middle() -> None:
    assert chebyshev_second_kind(12)[[0, -1]].tolist() == [-1.0, 1.0]
    assert chebyshev_second_kind(1).tolist() == [0.0]


@pytest.mark.parametrize("n", SIZES)
def test_equispaced_nodes_are_the_centres_of_equal_cells(n: int) -> None:
    edges = np.linspace(-1, 1, n + 1)
    np.testing.assert_allclose(equispaced(n), (edges[:-1] + edges[1:]) / 2, atol=1e-15)


@pytest.mark.parametrize("n", SIZES)
def test_approxifer_matches_its_formula_in_ascending_order(n: int) -> None:
    formula = np.cos(np.arange(n) * np.pi / n)
    np.testing.assert_allclose(approxifer_tasks(n), formula[::-1], atol=1e-15)
    assert approxifer_tasks(n)[-1] == 1.0


@pytest.mark.parametrize("nodes", BERRUT_NODES)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 4), (8, 12), (20, 100)])
def test_every_choice_puts_k_queries_and_n_tasks_on_the_interval(nodes, k: int, n: int) -> None:
    for points, count in zip(code_points(nodes, k, n), (k, n), strict=True):
        assert points.shape == (count,)
        assert (np.diff(points) > 0).all()
        assert np.abs(points).max() <= 1


@pytest.mark.parametrize("nodes", [chebyshev_first_kind, chebyshev_second_kind, equispaced])
@pytest.mark.parametrize("n", SIZES)
def test_nodes_ascend_and_are_symmetric_to_the_last_bit(nodes, n: int) -> None:
    points = nodes(n)
    assert points.dtype == np.float64
    assert (np.diff(points) > 0).all()
    np.testing.assert_array_equal(points, -points[::-1])


@pytest.mark.parametrize("nodes", [chebyshev_first_kind, chebyshev_second_kind, equispaced, approxifer_tasks])
@pytest.mark.parametrize("n", [0, -1, 1.5, True, "8"])
def test_a_bad_number_of_nodes_is_refused(nodes, n) -> None:
    with pytest.raises(BadParameter, match="n must be"):
        nodes(n)


@pytest.mark.parametrize("nodes", BERRUT_NODES)
def test_places_count_queries_along_the_curve(nodes) -> None:
    alpha, beta = code_points(nodes, 7, 7 * 4 + 1)
    places = task_places(nodes, 7, len(beta))
    assert (np.diff(places) > 0).all()
    assert places.min() >= 0
    assert places.max() <= 7
    queries = np.interp(alpha, beta, places)
    np.testing.assert_allclose(queries, np.arange(7) + 0.5, atol=0.05)
