"""ApproxIFER's locator of wrong arrivals, to measure `coding.wrong` against.

It is told how many arrivals to drop, and always drops as many.
"""

from __future__ import annotations

import numpy as np

from coding.checks import require_integer
from coding.scheme import Array


def rational(nodes: Array, arrivals: Array, k: int, wrong: int) -> tuple[int, ...]:
    """ApproxIFER's locator: a rational function per output, whose poles mark the wrong arrivals.

    Per output, P and Q of degree K + E - 1 with P(z_i) = y_i Q(z_i) at every node; Q is small where an arrival is
    wrong. Each output votes for the E nodes with the smallest |Q|. In a Chebyshev basis, since powers of z fail past
    K = 12, and with the smallest singular vector, which fixes the scale of Q better than Q(0) = 1.

    Source: Soleymani et al., "ApproxIFER", AAAI 2022, algorithm 2. It needs N >= 2 (K + E) - 1 arrivals.

    Args:
        nodes: shape (n,), strictly ascending.
        arrivals: shape (n, C), finite.
        k: K.
        wrong: E, how many to name.

    Returns:
        Their positions in `nodes`, ascending.

    Raises:
        BadParameter: `wrong` is out of range.
    """
    require_integer("wrong", wrong, 0, nodes.size)
    basis = np.polynomial.chebyshev.chebvander(nodes, k + wrong - 1)
    votes = np.zeros(nodes.size)
    for values in arrivals.T:
        system = np.concatenate([basis, -values[:, None] * basis], axis=1)
        denominator = np.linalg.svd(system)[2][-1, basis.shape[1] :]
        votes[np.argsort(np.abs(basis @ denominator), kind="stable")[:wrong]] += 1
    return tuple(sorted(int(node) for node in np.argsort(-votes, kind="stable")[:wrong]))
