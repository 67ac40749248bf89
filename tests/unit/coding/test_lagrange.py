"""Exact recovery of polynomial models, and the refusal of sizes that would lose digits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from coding.barycentric import lagrange_matrix
from coding.errors import BadParameter, NotDecodable
from coding.lagrange import LagrangeParams
from coding.nodes import chebyshev_second_kind


def test_the_matrix_reproduces_polynomials_and_passes_through_its_nodes() -> None:
    nodes, targets = chebyshev_second_kind(12), np.linspace(-1, 1, 7)
    polynomial = np.polynomial.Chebyshev(np.random.default_rng(0).normal(size=12))
    np.testing.assert_allclose(
        lagrange_matrix(nodes, targets) @ polynomial(nodes), polynomial(targets), atol=1e-12
    )
    np.testing.assert_array_equal(lagrange_matrix(nodes, nodes), np.eye(12))


def test_many_nodes_stay_within_the_range_of_numbers() -> None:
    nodes = chebyshev_second_kind(800)
    matrix = lagrange_matrix(nodes, np.array([0.1234]))
    assert np.isfinite(matrix).all()
    assert (matrix @ np.sin(3 * nodes)).item() == pytest.approx(np.sin(3 * 0.1234), abs=1e-12)


def answers(params: LagrangeParams, model, queries: np.ndarray, lost: tuple[int, ...]) -> np.ndarray:
    scheme = params.build(queries.shape[1])
    payloads = scheme.encode(queries)
    arrivals = {task: model(payloads[task]) for task in range(len(payloads)) if task not in lost}
    assert scheme.answerable(arrivals.keys()) == set(range(queries.shape[1]))
    return scheme.decode(arrivals).outputs.swapaxes(0, 1)


@pytest.mark.parametrize("systematic", [True, False])
def test_a_linear_classifier_loses_four_digits_at_most_whichever_two_are_missing(systematic) -> None:
    random = np.random.default_rng(0)
    weights, bias = (
        random.normal(size=(784, 10)).astype(np.float32),
        random.normal(size=10).astype(np.float32),
    )

    def classifier(rows: np.ndarray) -> np.ndarray:
        return rows @ weights + bias

    queries = random.random((3, 8, 784), np.float32)
    exact = classifier(queries)
    params = LagrangeParams(systematic=systematic)
    assert (params.k, params.n, params.wait_for) == (8, 10, 8)
    for lost in itertools.combinations(range(10), 2):
        error = np.linalg.norm(answers(params, classifier, queries, lost) - exact) / np.linalg.norm(exact)
        assert error < 1e-4


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("systematic", [True, False])
def test_polynomials_of_the_stated_degree_are_recovered_and_others_are_not(degree, systematic) -> None:
    params = LagrangeParams(k=4, n=3 * degree + 3, degree=degree, systematic=systematic)
    queries = np.random.default_rng(degree).normal(size=(2, 4, 5))

    def power(exponent: int):
        return lambda rows: rows[..., :3] ** exponent - rows[..., 2:] * 0.5 + 1.0

    lost = tuple(task.index for task in params.build(4).tasks if task.exact or not systematic)[1:3]
    np.testing.assert_allclose(
        answers(params, power(degree), queries, lost), power(degree)(queries), atol=1e-9
    )
    off = answers(params, power(degree + 1), queries, lost) - power(degree + 1)(queries)
    assert np.abs(off).max() > 1e-2


def test_twenty_queries_stay_stable() -> None:
    params = LagrangeParams(k=20, n=22)
    random = np.random.default_rng(1)
    weights = random.normal(size=(30, 5)).astype(np.float32)
    queries = random.normal(size=(1, 20, 30)).astype(np.float32)
    for lost in ((0, 1), (10, 11), (20, 21), (3, 17)):
        error = answers(params, lambda rows: rows @ weights, queries, lost) - queries @ weights
        assert np.abs(error).max() < 5e-3


def test_a_smaller_group_keeps_the_stragglers_that_it_tolerates() -> None:
    params = LagrangeParams(k=8, n=17, degree=2)
    for rows in range(2, 9):
        scheme = params.build(rows)
        assert len(scheme.tasks) - (2 * (rows - 1) + 1) == 2
    assert len(params.build(1).tasks) == 3


def test_too_few_arrivals_answer_only_what_is_there() -> None:
    scheme = LagrangeParams().build(8)
    own = next(task for task in scheme.tasks if task.exact)
    coded = next(task for task in scheme.tasks if not task.exact)
    assert scheme.answerable({own.index}, at_deadline=True) == own.exact
    assert not scheme.answerable({coded.index}, at_deadline=True)
    with pytest.raises(NotDecodable):
        scheme.decode({coded.index: np.zeros((1, 2))})


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"degree": 0}, "degree must be at least 1, got 0"),
        ({"n": 7}, r"n must be at least k \(8\), got 7"),
        ({"degree": 2, "n": 14}, r"n must be at least degree \* \(k - 1\) \+ 1 \(15\), got 14"),
        (
            {"k": 20, "n": 24},
            r"n must be such that rounding errors .* 3e\+07 times .*; got 24 at k 20, degree 1",
        ),
    ],
)
def test_what_cannot_be_is_refused(numbers, message) -> None:
    with pytest.raises(BadParameter, match=message):
        LagrangeParams(**numbers)
