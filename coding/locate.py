"""Which arrivals are wrong: not missing but false, from a replica that is broken or lies.

Two locators. Both are told how many arrivals to drop, and both see arrivals of any number of outputs. The server,
which is not told, uses the test of `coding.wrong` instead; these are here to compare it with.

`implausible` is ours. It takes the curve through the arrivals for a path whose second derivative is white noise,
observed with a little noise, which is the model behind the smoothing spline (Wahba 1978). Then
y ~ N(line, sigma^2 B^+), B being the spline's bending matrix, and to drop a set D of the n arrivals leaves evidence
for the rest of

    -C/2 log det B_DD  -  C (n - 2 - |D|) / 2 log(y' B y - (B y)_D' B_DD^-1 (B y)_D),

with C outputs, sigma integrated out, and a flat prior for what a wrong replica says. It drops the set with the most
evidence. `rational` is ApproxIFER's, for comparison.

Measured on LeNet5 and MNIST, K = 12, three wrong replicas whose logits have noise of N(0, 10^2), 60 groups: with N = 29
ours finds 99 % of them and `rational` 57 %; with N = 20, nine replicas fewer, ours finds 97 %.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_integer
from coding.scheme import Array
from coding.spline import SmoothingSpline

LOCATING_LAMBDA = 1e-4
"""Noise of honest arrivals over the strength of the curve's bending; of 1e-6 to 1e-3 the best on LeNet5, narrowly."""
MOST_SUBSETS = 20_000
"""Sets of arrivals that are weighed one by one; beyond it, the search goes step by step."""


def implausible(nodes: Array, arrivals: Array, wrong: int) -> tuple[int, ...]:
    """The arrivals that fit the others least.

    Args:
        nodes: beta_F, shape (n,), strictly ascending.
        arrivals: shape (n, C), finite.
        wrong: how many to name, at most n - 3.

    Returns:
        Their positions in `nodes`, ascending.

    Raises:
        BadParameter: `wrong` is out of range.
    """
    require_integer("wrong", wrong, 0, max(0, nodes.size - 3))
    if wrong == 0:
        return ()
    # What the outputs have in common (logits are known up to a constant) says nothing about who is wrong.
    centred = arrivals - arrivals.mean(axis=1, keepdims=True) if arrivals.shape[1] > 1 else arrivals
    bending = SmoothingSpline(nodes, LOCATING_LAMBDA).bending
    weigher = _Weigher(bending, bending @ centred, float((centred * (bending @ centred)).sum()))
    if comb(nodes.size, wrong) <= MOST_SUBSETS:
        subsets = np.array(list(combinations(range(nodes.size), wrong)))
        return tuple(int(node) for node in subsets[weigher.evidence(subsets).argmax()])
    return _step_by_step(weigher, nodes.size, wrong)


class _Weigher:
    """Weighs sets of arrivals: what would be gained by dropping them."""

    def __init__(self, bending: NDArray[np.float64], pulled: NDArray[np.float64], total: float) -> None:
        self._bending = bending
        self._pulled = pulled
        self._total = total

    def evidence(self, subsets: NDArray[np.intp]) -> NDArray[np.float64]:
        """The evidence that is left, up to a constant and the factor C / 2, for sets of one size, shape (m, size)."""
        blocks = self._bending[subsets[:, :, None], subsets[:, None, :]]
        pulls = self._pulled[subsets]
        explained = (pulls * np.linalg.solve(blocks, pulls)).sum(axis=(1, 2))
        # Rounding may leave a little less than nothing where the rest lies on a line.
        left = np.maximum(self._total - explained, 1e-12 * self._total + np.finfo(np.float64).tiny)
        freedom = len(self._bending) - 2 - subsets.shape[1]
        weighed: NDArray[np.float64] = -np.linalg.slogdet(blocks)[1] - freedom * np.log(left)
        return weighed


def _step_by_step(weigher: _Weigher, nodes: int, wrong: int) -> tuple[int, ...]:
    """Name one after the other, then exchange single ones as long as that helps."""
    chosen: list[int] = []
    for _ in range(wrong):
        rest = [node for node in range(nodes) if node not in chosen]
        grown = np.array([[*chosen, node] for node in rest])
        chosen.append(rest[int(weigher.evidence(grown).argmax())])
    best = float(weigher.evidence(np.array([chosen]))[0])
    while True:
        rest = [node for node in range(nodes) if node not in chosen]
        exchanged = np.array(
            [[*chosen[:index], node, *chosen[index + 1 :]] for index in range(wrong) for node in rest]
        )
        evidence = weigher.evidence(exchanged)
        if evidence.max() <= best:
            return tuple(sorted(chosen))
        best = float(evidence.max())
        chosen = exchanged[evidence.argmax()].tolist()


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
