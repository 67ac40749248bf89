import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline, make_smoothing_spline

from coding.nodes import chebyshev_first_kind, chebyshev_second_kind
from coding.spline import SmoothingSpline, gap_of, sum_convention

INSIDE = np.linspace(-1, 1, 41)


@st.composite
def some_nodes(draw: st.DrawFn, smallest: int = 1) -> np.ndarray:
    """Some of a code's nodes: what is left when tasks have not arrived."""
    n = draw(st.integers(smallest, 30))
    size = draw(st.integers(smallest, n))
    chosen = draw(st.permutations(range(n)))[:size]
    return chebyshev_second_kind(n)[sorted(chosen)]


@given(some_nodes(smallest=5), st.sampled_from([0.0, 1e-8, 1e-5, 1e-3, 1.0]))
@settings(deadline=None, max_examples=40)
def test_it_matches_scipy_from_five_nodes_on(nodes: np.ndarray, lam: float) -> None:
    targets = INSIDE[(nodes[0] <= INSIDE) & (nodes[-1] >= INSIDE)]
    values = np.random.default_rng(nodes.size).normal(size=(nodes.size, 3))
    expected = make_smoothing_spline(nodes, values, lam=lam)(targets)
    np.testing.assert_allclose(SmoothingSpline(nodes, lam).at(targets) @ values, expected, atol=1e-7)


def test_one_node_is_a_constant() -> None:
    spline = SmoothingSpline(np.array([0.2]), 1e-3)
    np.testing.assert_array_equal(spline.at(INSIDE), np.ones((41, 1)))


def test_two_nodes_are_a_line_inside_and_out() -> None:
    spline = SmoothingSpline(np.array([-0.5, 0.5]), 1e-3)
    np.testing.assert_allclose(spline.at(INSIDE) @ [-0.5, 0.5], INSIDE, atol=1e-15)


@pytest.mark.parametrize("n", [3, 4])
def test_three_and_four_nodes_minimise_the_objective(n: int) -> None:
    """Scipy has no answer for so few nodes: compare with the objective, minimised over natural splines."""
    nodes, lam = np.sort(np.random.default_rng(n).uniform(-1, 1, n)), 0.05
    values = np.random.default_rng(n + 1).normal(size=n)

    def objective(at_nodes: np.ndarray) -> float:
        natural = CubicSpline(nodes, at_nodes, bc_type="natural")
        bend = natural.derivative(2)
        gaps = itertools.pairwise(nodes)  # bend is linear in each gap: Simpson's rule is exact
        energy = sum(
            (b - a) / 6 * (bend(a) ** 2 + 4 * bend((a + b) / 2) ** 2 + bend(b) ** 2) for a, b in gaps
        )
        return float(((values - at_nodes) ** 2).sum() + lam * energy)

    best = SmoothingSpline(nodes, lam).hat @ values
    for nudge in np.concatenate([np.eye(n), -np.eye(n)]):
        assert objective(best) < objective(best + 1e-3 * nudge)


@given(some_nodes(), st.sampled_from([0.0, 1e-5, 1.0]))
@settings(deadline=None, max_examples=40)
def test_constants_and_lines_pass_unchanged(nodes: np.ndarray, lam: float) -> None:
    matrix = SmoothingSpline(nodes, lam).at(INSIDE)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-10)
    if nodes.size > 1:
        np.testing.assert_allclose(matrix @ nodes, INSIDE, atol=1e-10)


def test_without_smoothing_it_interpolates() -> None:
    nodes = chebyshev_second_kind(9)
    spline = SmoothingSpline(nodes, 0.0)
    np.testing.assert_array_equal(spline.hat, np.eye(9))
    np.testing.assert_allclose(spline.at(nodes), np.eye(9), atol=1e-14)


def test_with_all_smoothing_it_is_the_least_squares_line() -> None:
    nodes = chebyshev_second_kind(9)
    values = np.random.default_rng(0).normal(size=9)
    line = np.polynomial.Polynomial.fit(nodes, values, 1)
    np.testing.assert_allclose(SmoothingSpline(nodes, 1e9).at(INSIDE) @ values, line(INSIDE), atol=1e-6)


def test_the_hat_is_the_spline_at_its_own_nodes() -> None:
    nodes = chebyshev_second_kind(12)[[0, 2, 3, 6, 7, 10]]
    spline = SmoothingSpline(nodes, 1e-2)
    np.testing.assert_allclose(spline.at(nodes), spline.hat, atol=1e-13)


def test_it_continues_as_a_straight_line() -> None:
    nodes = chebyshev_second_kind(12)[2:-3]
    values = np.random.default_rng(0).normal(size=nodes.size)
    scipy_spline = make_smoothing_spline(nodes, values, lam=1e-4)
    slope = scipy_spline.derivative()
    beyond = np.array([-1.0, -0.95, 0.9, 1.0])
    end = np.where(beyond < 0, nodes[0], nodes[-1])
    expected = scipy_spline(end) + (beyond - end) * slope(end)
    np.testing.assert_allclose(SmoothingSpline(nodes, 1e-4).at(beyond) @ values, expected, atol=1e-10)


@given(some_nodes(smallest=2), st.sampled_from([0.0, 1e-5, 1e-2]))
@settings(deadline=None, max_examples=40)
def test_leave_one_out_is_a_fit_without_that_node(nodes: np.ndarray, lam: float) -> None:
    values = np.random.default_rng(nodes.size).normal(size=nodes.size)
    residuals = SmoothingSpline(nodes, lam).leave_one_out() @ values
    for left_out in range(nodes.size):
        rest = np.arange(nodes.size) != left_out
        predicted = SmoothingSpline(nodes[rest], lam).at(nodes[[left_out]]) @ values[rest]
        np.testing.assert_allclose(residuals[left_out], values[left_out] - predicted[0], rtol=1e-6, atol=1e-6)


def test_leaving_out_the_only_node_leaves_its_value() -> None:
    np.testing.assert_array_equal(SmoothingSpline(np.array([0.0]), 0.0).leave_one_out(), [[1.0]])


def test_bending_measures_the_integral_of_the_squared_second_derivative() -> None:
    nodes = np.sort(np.random.default_rng(3).uniform(-1, 1, 7))
    values = np.random.default_rng(4).normal(size=7)
    bend = CubicSpline(nodes, values, bc_type="natural").derivative(2)
    integral = sum(
        (b - a) / 3 * (bend(a) ** 2 + bend(a) * bend(b) + bend(b) ** 2) for a, b in itertools.pairwise(nodes)
    )
    np.testing.assert_allclose(values @ SmoothingSpline(nodes, 0.0).bending @ values, integral)


def test_the_papers_lambda_is_per_point() -> None:
    """Minimising the mean of the squares with lambda is minimising their sum with |F| * lambda."""
    nodes, lambda_paper = chebyshev_second_kind(10), 1e-3
    values = np.random.default_rng(0).normal(size=10)

    def mean_objective(at_nodes: np.ndarray) -> float:
        energy = at_nodes @ SmoothingSpline(nodes, 0.0).bending @ at_nodes
        return float(((values - at_nodes) ** 2).mean() + lambda_paper * energy)

    best = SmoothingSpline(nodes, sum_convention(lambda_paper, 10)).hat @ values
    for other in (0.5, 2.0):
        unconverted = SmoothingSpline(nodes, other * sum_convention(lambda_paper, 10)).hat @ values
        assert mean_objective(best) < mean_objective(unconverted)
    for nudge in np.concatenate([np.eye(10), -np.eye(10)]):
        assert mean_objective(best) < mean_objective(best + 1e-5 * nudge)


def test_gaps_are_found_and_targets_outside_get_the_end_gaps() -> None:
    nodes = np.array([-1.0, 0.0, 0.5])
    assert gap_of(nodes, np.array([-2.0, -1.0, -0.5, 0.0, 0.4, 0.5, 3.0])).tolist() == [0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("n", [100, 256])
@pytest.mark.parametrize("lam", [0.0, 1e-12, 1e-5, 1e3])
def test_many_nodes_stay_well_conditioned(n: int, lam: float) -> None:
    matrix = SmoothingSpline(chebyshev_second_kind(n), lam).at(chebyshev_first_kind(20))
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-10)
    assert np.abs(matrix).sum(axis=1).max() < 3
