"""ApproxIFER's locator."""

import numpy as np
import pytest

from coding.errors import BadParameter
from coding.locate import rational
from coding.nodes import chebyshev_second_kind


@pytest.mark.parametrize("wrong", [-1, 11, 1.5])
def test_a_number_out_of_range_is_refused(wrong: int) -> None:
    with pytest.raises(BadParameter, match="wrong must be"):
        rational(chebyshev_second_kind(10), np.zeros((10, 3)), 4, wrong)


def test_it_finds_errors_where_answers_are_rational() -> None:
    # Polynomials of degree K - 1 are what it is exact for.
    random = np.random.default_rng(0)
    nodes = chebyshev_second_kind(17)
    arrivals = np.polynomial.chebyshev.chebval(nodes, random.normal(size=(6, 4))).T
    arrivals[[3, 11]] += random.normal(size=(2, 4))
    assert rational(nodes, arrivals, 6, 2) == (3, 11)
