import numpy as np
import pytest

from coding.banded import solve_banded


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_it_solves_the_system_that_the_bands_describe(n: int) -> None:
    rng = np.random.default_rng(n)
    bands = np.vstack([np.full(n, 5.0), rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)])
    full = np.diag(bands[0])
    for below in range(1, min(3, n)):
        full += np.diag(bands[below, : n - below], -below) + np.diag(bands[below, : n - below], below)
    right_sides = rng.normal(size=(n, 4))
    np.testing.assert_allclose(full @ solve_banded(bands, right_sides), right_sides, atol=1e-12)


def test_it_leaves_its_arguments_alone() -> None:
    bands, right_sides = np.vstack([np.full(4, 3.0), np.ones(4)]), np.eye(4)
    solve_banded(bands, right_sides)
    np.testing.assert_array_equal(bands, np.vstack([np.full(4, 3.0), np.ones(4)]))
    np.testing.assert_array_equal(right_sides, np.eye(4))


def test_an_indefinite_matrix_is_an_error() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        solve_banded(np.vstack([np.full(3, 1.0), np.full(3, 2.0)]), np.eye(3))
