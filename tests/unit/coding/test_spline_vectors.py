"""Stored reference splines (tests/golden), compared with ours and with scipy as installed."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from coding.spline import SmoothingSpline

GOLDEN = Path(__file__).parents[2] / "golden"
VECTORS = np.load(GOLDEN / "spline_vectors.npz")
CASES = range(len(VECTORS.files) // 4)


def case(number: int) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    nodes, lam, targets, matrix = (
        VECTORS[f"{name}_{number}"] for name in ("nodes", "lam", "targets", "matrix")
    )
    return nodes, float(lam), targets, matrix


@pytest.mark.parametrize("number", CASES)
def test_our_matrix_is_the_stored_one(number: int) -> None:
    nodes, lam, targets, matrix = case(number)
    np.testing.assert_allclose(SmoothingSpline(nodes, lam).at(targets), matrix, atol=1e-8)


@pytest.mark.parametrize("number", CASES[::4])
def test_scipy_still_makes_the_stored_matrix(number: int) -> None:
    script = runpy.run_path(str(GOLDEN / "make_spline_vectors.py"))
    nodes, lam, targets, matrix = case(number)
    np.testing.assert_allclose(script["reference"](nodes, lam, targets), matrix, atol=1e-8)


def test_the_script_still_makes_these_cases() -> None:
    script = runpy.run_path(str(GOLDEN / "make_spline_vectors.py"))
    made = script["cases"]()
    assert len(made) == len(CASES)
    for number, (nodes, lam, targets) in enumerate(made):
        stored_nodes, stored_lam, stored_targets, _ = case(number)
        np.testing.assert_allclose(nodes, stored_nodes, atol=1e-15)
        np.testing.assert_allclose(targets, stored_targets, atol=1e-15)
        assert lam == stored_lam
