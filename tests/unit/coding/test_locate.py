"""Finding wrong arrivals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding import locate
from coding.errors import BadParameter
from coding.locate import implausible, rational
from coding.nodes import chebyshev_second_kind


def smooth_arrivals(n: int, outputs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A few slow waves, as logits along the coded curve are."""
    random = np.random.default_rng(seed)
    nodes = chebyshev_second_kind(n)
    waves = np.stack([np.cos(rate * nodes + phase) for rate, phase in random.uniform(0, 3, (4, 2))])
    return nodes, waves.T @ random.normal(size=(4, outputs))


@given(st.integers(12, 30), st.integers(1, 3), st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_gross_errors_are_found(n: int, wrong: int, seed: int) -> None:
    nodes, arrivals = smooth_arrivals(n, 10, seed)
    random = np.random.default_rng(seed + 1)
    bad = np.sort(random.choice(n, wrong, replace=False))
    arrivals[bad] += 30 * random.normal(size=(wrong, 10))
    assert implausible(nodes, arrivals, wrong) == tuple(bad)


@given(st.integers(0, 2**32), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
@settings(deadline=None, max_examples=30)
def test_units_lines_and_the_order_of_outputs_do_not_matter(seed: int, scale: float, slope: float) -> None:
    nodes, arrivals = smooth_arrivals(14, 6, seed)
    arrivals[[2, 9]] += 5 * np.random.default_rng(seed + 1).normal(size=(2, 6))
    found = implausible(nodes, arrivals, 2)
    assert implausible(nodes, scale * arrivals[:, ::-1], 2) == found
    assert implausible(nodes, arrivals + slope * nodes[:, None], 2) == found


def test_nobody_is_accused_where_nobody_may_be_wrong() -> None:
    assert implausible(*smooth_arrivals(10, 3, 0), 0) == ()


def test_one_output_and_exact_lines_are_fine() -> None:
    nodes = chebyshev_second_kind(9)
    line = 2 * nodes[:, None] + 1
    assert len(implausible(nodes, line, 2)) == 2
    line[4] += 1
    assert implausible(nodes, line, 1) == (4,)


def test_stepping_finds_what_weighing_all_sets_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = 0
    for seed in range(30):
        nodes, arrivals = smooth_arrivals(18, 10, seed)
        random = np.random.default_rng(seed)
        arrivals[random.choice(18, 3, replace=False)] += 2 * random.normal(size=(3, 10))
        everything = implausible(nodes, arrivals, 3)
        with monkeypatch.context() as patched:
            patched.setattr(locate, "MOST_SUBSETS", 0)
            agreed += implausible(nodes, arrivals, 3) == everything
    assert agreed >= 27


@pytest.mark.parametrize("wrong", [-1, 8, 1.5])
def test_a_number_out_of_range_is_refused(wrong: int) -> None:
    with pytest.raises(BadParameter, match="wrong must be"):
        implausible(*smooth_arrivals(10, 3, 0), wrong)


def test_the_rational_locator_finds_errors_where_answers_are_rational() -> None:
    # Polynomials of degree K - 1 are what it is exact for.
    random = np.random.default_rng(0)
    nodes = chebyshev_second_kind(17)
    arrivals = np.polynomial.chebyshev.chebval(nodes, random.normal(size=(6, 4))).T
    arrivals[[3, 11]] += random.normal(size=(2, 4))
    assert rational(nodes, arrivals, 6, 2) == (3, 11)
