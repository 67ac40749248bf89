import numpy as np
import pytest
from scipy.stats import spearmanr

from coding.berrut import BerrutParams
from coding.error_estimate import error_operators, interpolation_variance
from coding.letcc import LetccParams
from coding.nodes import chebyshev_first_kind, chebyshev_second_kind
from coding.spline import SmoothingSpline

NODES = chebyshev_second_kind(12)[[0, 1, 3, 4, 6, 7, 9, 10]]


def kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Covariance of a path whose second derivative is white noise from z = -1 on."""
    near, far = np.minimum(left[:, None], right[None, :]) + 1, np.maximum(left[:, None], right[None, :]) + 1
    return near**2 * (3 * far - near) / 6


def kriging(nodes: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (as a matrix) and variance at the targets given the nodes, by the textbook: unknown line plus path."""
    drift, at_targets = np.vander(nodes, 2), np.vander(targets, 2)
    system = np.block([[kernel(nodes, nodes), drift], [drift.T, np.zeros((2, 2))]])
    right = np.vstack([kernel(nodes, targets), at_targets.T])
    weights = np.linalg.solve(system, right)
    variance = np.diag(kernel(targets, targets)) - (weights * right).sum(axis=0)
    return weights[: nodes.size].T, variance


@pytest.mark.parametrize("nodes", [NODES, NODES[2:], NODES[:3], NODES[:2]], ids=len)
def test_the_variance_is_that_of_universal_kriging(nodes: np.ndarray) -> None:
    targets = np.concatenate([chebyshev_first_kind(8), nodes, [-1.0, 1.0]])
    mean, variance = kriging(nodes, targets)
    np.testing.assert_allclose(interpolation_variance(nodes, targets), variance, atol=1e-9)
    np.testing.assert_allclose(SmoothingSpline(nodes, 0.0).at(targets), mean, atol=1e-7)


def test_the_inverse_diagonal_of_bending_is_the_variance_of_a_node_given_the_others() -> None:
    precision = SmoothingSpline(NODES, 0.0).bending.diagonal()
    for node in range(NODES.size):
        _, variance = kriging(np.delete(NODES, node), NODES[[node]])
        np.testing.assert_allclose(1 / precision[node], variance, rtol=1e-5)


def test_paths_of_the_model_have_the_error_that_is_estimated() -> None:
    """Over random paths with a white second derivative the mean squared estimate is the mean squared error."""
    rng, targets = np.random.default_rng(0), chebyshev_first_kind(8)
    points = np.concatenate([NODES, targets])
    paths = np.linalg.cholesky(kernel(points, points) + 1e-13 * np.eye(points.size)) @ rng.normal(
        size=(16, 4000)
    )
    arrivals, truth = paths[: NODES.size], paths[NODES.size :]
    answers = SmoothingSpline(NODES, 1e-3).at(targets)
    operators = error_operators(NODES, targets, answers)
    estimate = operators.weights @ (operators.probes @ arrivals) ** 2
    error = (answers @ arrivals - truth) ** 2
    np.testing.assert_allclose(np.sqrt(estimate.mean(axis=1)), np.sqrt(error.mean(axis=1)), rtol=0.1)


def test_lines_are_read_without_error() -> None:
    targets = chebyshev_first_kind(5)
    operators = error_operators(NODES, targets, SmoothingSpline(NODES, 1e-5).at(targets))
    lines = np.stack([np.ones_like(NODES), NODES])
    np.testing.assert_allclose(operators.probes @ lines.T, 0, atol=1e-12)


def test_an_answer_on_a_node_has_only_the_error_of_smoothing() -> None:
    targets = NODES[[2, 5]]
    exact = error_operators(NODES, targets, SmoothingSpline(NODES, 0.0).at(targets))
    smoothed = error_operators(NODES, targets, SmoothingSpline(NODES, 1e-2).at(targets))
    arrivals = np.random.default_rng(0).normal(size=NODES.size)
    np.testing.assert_allclose(exact.weights @ (exact.probes @ arrivals) ** 2, 0, atol=1e-12)
    shift = SmoothingSpline(NODES, 1e-2).at(targets) @ arrivals - arrivals[[2, 5]]
    np.testing.assert_allclose(smoothed.weights @ (smoothed.probes @ arrivals) ** 2, shift**2, rtol=1e-9)


@pytest.mark.parametrize("nodes", [NODES, NODES[:3], NODES[:2], NODES[:1]], ids=len)
def test_the_condensed_forms_tell_the_same_from_fewer_maps(nodes: np.ndarray) -> None:
    targets = chebyshev_first_kind(5)
    operators = error_operators(nodes, targets, SmoothingSpline(nodes, 1e-3).at(targets))
    forms = operators.condensed()
    arrivals = np.random.default_rng(0).normal(size=(nodes.size, 20))
    mapped = forms.maps @ arrivals
    assert len(forms.maps) == max(1, nodes.size - 2)
    expected = operators.weights @ ((operators.probes @ arrivals) ** 2).sum(axis=1)
    np.testing.assert_allclose(forms.forms @ (mapped @ mapped.T).reshape(-1), expected, rtol=1e-9)


def test_few_arrivals_still_get_an_estimate() -> None:
    one = error_operators(NODES[:1], np.zeros(2), np.ones((2, 1)))
    np.testing.assert_allclose(one.weights @ (one.probes @ [3.0]) ** 2, [9.0, 9.0])
    two = error_operators(NODES[:2], np.zeros(1), np.array([[-1.0, 2.0]]))
    np.testing.assert_allclose(two.weights @ (two.probes @ [3.0, 5.0]) ** 2, [5 * 2.0**2])


@pytest.mark.parametrize(
    ("params", "correlation"),
    [(LetccParams(), 0.4), (LetccParams(nodes="chebyshev"), 0.8), (BerrutParams(), 0.8)],
    ids=["equispaced", "chebyshev", "berrut"],
)
def test_it_ranks_the_errors_of_a_network_and_has_their_size(params, correlation: float) -> None:
    """A random two-layer network, 150 groups, two random stragglers each.

    Equispaced points make all errors of a group more alike, which leaves less to rank.
    """
    rng = np.random.default_rng(7)
    first, second = rng.normal(size=(20, 64)) / 4, rng.normal(size=(64, 10))
    code = params.build(8)
    estimates, errors = [], []
    for _ in range(150):
        queries = rng.normal(size=(1, 8, 20))
        outputs = np.tanh(code.encode(queries) @ first) @ second
        survivors = rng.choice(12, size=10, replace=False)
        decoded = code.decode({int(task): outputs[task] for task in survivors})
        errors.append(np.linalg.norm(decoded.outputs[:, 0] - np.tanh(queries[0] @ first) @ second, axis=1))
        estimates.append(decoded.error[:, 0])
    estimate, error = np.concatenate(estimates), np.concatenate(errors)
    assert spearmanr(estimate, error).statistic > correlation
    assert 0.7 < np.median(estimate / error) < 1.5
