import numpy as np
import pytest

from coding.barycentric import berrut_matrix
from coding.nodes import chebyshev_first_kind, chebyshev_second_kind


def test_it_matches_the_formula() -> None:
    nodes, targets = np.array([-1.0, -0.2, 0.5, 1.0]), np.array([-0.7, 0.1, 0.9])
    for target, row in zip(targets, berrut_matrix(nodes, targets), strict=True):
        terms = [(-1) ** j / (target - node) for j, node in enumerate(nodes)]
        np.testing.assert_allclose(row, np.array(terms) / sum(terms))


def test_signs_alternate_over_the_survivors() -> None:
    """Signs numbered over all twelve nodes leave poles between the survivors: row sums of about a thousand."""
    survivors = chebyshev_second_kind(12)[[0, 1, 3, 4, 6, 7, 9, 10]]
    matrix = berrut_matrix(survivors, chebyshev_first_kind(8))
    assert np.abs(matrix).sum(axis=1).max() < 14


def test_a_target_on_a_node_is_that_node_alone() -> None:
    nodes = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(berrut_matrix(nodes, nodes), np.eye(3))


def test_a_target_next_to_a_node_is_nearly_that_node() -> None:
    nodes = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(berrut_matrix(nodes, np.array([1e-16])), [[0, 1, 0]], atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_rows_sum_to_one(n: int) -> None:
    matrix = berrut_matrix(chebyshev_second_kind(n), chebyshev_first_kind(9))
    assert matrix.shape == (9, n)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-13)


def test_one_node_is_a_constant() -> None:
    np.testing.assert_array_equal(berrut_matrix(np.array([0.3]), np.array([-1.0, 0.3, 1.0])), np.ones((3, 1)))
