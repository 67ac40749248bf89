"""How many arrivals are wrong, and which: the test that decides what is left out before a group is decoded.

Honest answers differ from each other too, and dropping one costs accuracy, so an arrival is dropped only when it stands
out. ApproxIFER's locator, which always drops as many as it is told to, is in `coding.locate`, for comparison.

**What honest answers look like.** The model's answers to two payloads are alike where the payloads are. Payload n is
E_n x, so that for queries that have nothing in common the distance of two payloads is |E_m - E_n|, and its
variance |E_n|^2. Neighbours on the curve are alike beyond that, because similar queries sit side by side. Answers
are therefore taken for draws of a Gaussian process with mean 0 and covariance, up to an unknown factor,

    K_mn = |E_m| |E_n| (M(|E_m - E_n|) + M(|t_m - t_n|)) / 2  +  NOISE |E_n|^2 [m = n],

M being Matern's correlation 3/2 of length 1, and t the tasks' places, in which queries are 1 apart. In a group
of one every payload is the query, and only rounding is left: K_mn = 1.

The form of K was chosen among some twenty, and `NOISE` and `SIGNIFICANT` among four settings, all on coded groups of
the evaluation slice. There, at (8, 12), ten arrivals, each with its own threshold of 1 % false alarms, one noisy
arrival is found in 92 % of groups with this K; in 49 % and 72 % with the bending of a spline for K_FF^-1
(lambda 1e-4 and 1e-2), in 94 % with the covariance measured on LeNet5 itself.

**Who stands out.** With the precision A = K_FF^-1 of the m arrivals y (C outputs each) and p = A y, dropping a set D
of d arrivals takes tr(p_D' A_DD^-1 p_D) off the misfit tr(y' A y), and leaves S_D. Among the sets of d arrivals the
one with the most evidence, -log det A_DD - (m - d) log S_D, is put to the test. Member v's own part in it is

    F_v = |w_v|^2 / (A_DD^-1)_vv / (S_D / (m - d)),      w = A_DD^-1 p_D,

its squared surprise given the arrivals that are kept, over what is usual among those. It is 1 on average for honest
Gaussian answers; real ones have longer tails. The largest set of which every member has an F above `SIGNIFICANT` is
dropped, the empty one if there is none (and above what chance allows, `CHANCE`, where answers have few outputs).
Testing the largest set first keeps two wrong arrivals from hiding each other (as Rosner's many-outlier procedure
does, Technometrics 1983), testing every member keeps honest ones from being dropped with them.

Measured on LeNet5 and the 8,000 MNIST test digits outside the slice, on which nothing was chosen; equispaced points,
nearest order, 400 honest groups and 400 with E wrong arrivals of each kind. Noise is N(0, 10^2) on every logit, other
is the model's answer to another group's payload. Share of honest groups that lose an arrival (none lost accuracy),
share of the wrong arrivals that are found, and accuracy (without looking -> looking):

    (K, N, arrivals, E)   honest   noise   sign flip   other   accuracy: noise   sign flip
    (2, 6, 6, 2)           3.3 %     90 %     64 %      29 %    .795 -> .978   .682 -> .845
    (4, 8, 6, 1)            .7 %     81 %     24 %       4 %    .817 -> .917   .731 -> .789
    (4, 12, 10, 1)          .7 %     92 %     84 %      43 %    .928 -> .989   .874 -> .963
    (4, 12, 10, 2)          .7 %     89 %     75 %      35 %    .854 -> .977   .774 -> .919
    (8, 12, 10, 1)          .3 %     82 %     12 %       1 %    .875 -> .921   .845 -> .857
    (8, 16, 14, 2)          .7 %     90 %     45 %       6 %    .858 -> .961   .771 -> .874
    (12, 20, 18, 3)         .0 %     94 %     28 %       2 %    .848 -> .944   .779 -> .828

At Chebyshev's points it finds a little more and alarms falsely up to 2.9 % of the time. An answer of the usual
size, such as a sign flip, is told from an honest one only where arrivals are dense, N about 3 K, and may cost an
honest neighbour its place. Looking takes .2 to .5 ms a group at N = 20, E = 3, and about 1 ms of computation once
for each new set of arrivals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from coding.scheme import Array

Floats = NDArray[np.float64]

SIGNIFICANT = (7.0, 6.5, 4.5)
"""What F must exceed where one arrival is dropped, where two are, and where more are, each of which must pass.

Set for about 1 % of honest groups."""
CHANCE = 1e-5
"""What F exceeds with at most this probability if honest answers are Gaussian. It is the stricter of both rules where
an answer has one or two numbers, whose squares scatter widely; F is a mean over them."""
NOISE = 0.04
"""Variance of honest answers, over their whole variance, that the distance of the payloads does not explain."""
ROUNDING = 1e-4
"""The same in a group of one, whose honest answers differ by rounding alone."""
MOST_SETS = 5_000
"""Sets of arrivals of one size that are weighed one by one; beyond it, sets grow by one arrival at a time."""
_CACHE_BYTES = 16 * 1024 * 1024


def covariance(encoding: Array, places: Array) -> Floats:
    """K: how the honest answers to N payloads vary together, up to a factor.

    Args:
        encoding: E, shape (N, K).
        places: where the tasks sit, counted in queries, shape (N,).

    Returns:
        Shape (N, N), positive definite.
    """
    n, k = encoding.shape
    if k == 1:
        return np.ones((n, n)) + ROUNDING * np.eye(n)
    sizes = np.linalg.norm(encoding, axis=1)
    apart = np.linalg.norm(encoding[:, None] - encoding[None], axis=2)
    along = np.abs(places[:, None] - places)
    alike = (_matern(apart) + _matern(along)) / 2.0
    answers: Floats = np.outer(sizes, sizes) * (alike + NOISE * np.eye(n))
    return answers


def _matern(distances: Floats) -> Floats:
    """Matern's correlation with smoothness 3/2 and length 1."""
    scaled = np.sqrt(3.0) * distances
    correlation: Floats = (1.0 + scaled) * np.exp(-scaled)
    return correlation


class WrongArrivals:
    """Finds the wrong ones among a code's arrivals. Immutable but for its cache, and safe to share."""

    def __init__(self, encoding: Array, places: Array, *, most: int, offset_free: bool) -> None:
        """Prepare for one code.

        Args:
            encoding: E, shape (N, K).
            places: where the tasks sit, counted in queries, shape (N,).
            most: E of the papers, how many arrivals may be wrong; at least 1.
            offset_free: the outputs are logits, known up to a constant that they have in common.
        """
        self._covariance = covariance(encoding, places)
        self._k = encoding.shape[1]
        self._most = most
        self._offset_free = offset_free
        sets = max(1, min(MOST_SETS, comb(len(encoding), most)))
        bytes_each = 8 * (most * most + 1) * sets
        held = max(16, _CACHE_BYTES // bytes_each)
        self._evidence: Callable[[tuple[int, ...], int], _Evidence] = lru_cache(maxsize=held)(
            self._build_evidence
        )

    def find(self, tasks: tuple[int, ...], arrivals: Array) -> tuple[frozenset[int], ...]:
        """The wrong arrivals of g groups that share their tasks.

        Of m arrivals at most (m - K) // 2 are dropped: fewer than K + 2 E do not tell which E are wrong, whatever the
        code (the Singleton bound).

        Args:
            tasks: which tasks the m arrivals answer, ascending.
            arrivals: shape (m, g, C).

        Returns:
            For each group the tasks whose arrivals are to be left out; none where its arrivals are not finite. Empty,
            without an entry for any group, where the arrivals are too few to look.
        """
        most = min(self._most, (len(tasks) - self._k) // 2)
        if most < 1 or arrivals.size == 0:
            return ()
        evidence = self._evidence(tasks, most)
        groups = np.ascontiguousarray(arrivals.transpose(1, 0, 2), np.float64)
        found = [
            evidence.wrong(self._comparable(group)) if np.isfinite(group).all() else () for group in groups
        ]
        return tuple(frozenset(tasks[position] for position in positions) for positions in found)

    def _comparable(self, values: Floats) -> Floats:
        """One group's arrivals, shape (m, C), without what says nothing about them."""
        if not self._offset_free or values.shape[1] == 1:
            return values
        centred: Floats = values - values.mean(axis=1, keepdims=True)
        return centred

    def _build_evidence(self, tasks: tuple[int, ...], most: int) -> _Evidence:
        chosen = np.array(tasks)
        return _Evidence(np.linalg.inv(self._covariance[np.ix_(chosen, chosen)]), most)


class _Evidence:
    """Weighs sets among m arrivals; what depends on the groups' answers is passed in."""

    def __init__(self, precision: Floats, most: int) -> None:
        self._precision = precision
        m = len(precision)
        self._sizes = range(1, most + 1)
        self._weighers = {
            size: _Weigher(precision, *_all_sets(m, size))
            for size in self._sizes
            if comb(m, size) <= MOST_SETS
        }

    def wrong(self, values: Floats) -> tuple[int, ...]:
        """Positions of the arrivals of one group, shape (m, C), that stand out."""
        scale = float(np.abs(values).max(initial=0.0))
        if scale == 0.0:
            return ()
        scaled = values / scale  # no square overflows
        pulls = self._precision @ scaled
        products = pulls @ pulls.T
        misfit = float((scaled * pulls).sum())
        found: tuple[int, ...] = ()
        chosen: tuple[int, ...] = ()
        for size in self._sizes:
            weigher = self._weighers.get(size) or self._grown(chosen)
            chosen, surprise = weigher.best(products, misfit)
            if surprise > _significant(size, values.shape[1], len(values) - size):
                found = chosen
        return found

    def _grown(self, chosen: tuple[int, ...]) -> _Weigher:
        """The sets that have one arrival more than this one."""
        rest = [position for position in range(len(self._precision)) if position not in chosen]
        sets = np.array([sorted((*chosen, position)) for position in rest])
        return _Weigher(self._precision, sets, _entries(len(self._precision), sets))


@lru_cache(maxsize=256)
def _significant(size: int, outputs: int, freedom: int) -> float:
    """What F must exceed where `size` arrivals of `outputs` numbers each are dropped and `freedom` are kept."""
    by_chance = float(fdtri(outputs, outputs * freedom, 1.0 - CHANCE))
    return max(SIGNIFICANT[min(size, len(SIGNIFICANT)) - 1], by_chance)


class _Weigher:
    """Weighs sets of one size: everything that does not depend on the answers is computed once."""

    def __init__(self, precision: Floats, sets: NDArray[np.intp], entries: NDArray[np.intp]) -> None:
        """Prepare the sets D.

        Args:
            precision: A, shape (m, m).
            sets: shape (s, d).
            entries: where each set's block lies in a matrix like A, shape (s, d * d).
        """
        size = sets.shape[1]
        blocks = precision.reshape(-1)[entries].reshape(-1, size, size)
        self._sets = sets
        self._inverses = np.linalg.inv(blocks)
        self._volumes = np.linalg.slogdet(blocks)[1]
        self._flat = self._inverses.reshape(len(sets), -1)
        self._entries = entries
        self._freedom = len(precision) - size

    def best(self, products: Floats, misfit: float) -> tuple[tuple[int, ...], float]:
        """The set with the most evidence, and the smallest F among its members.

        Args:
            products: p p', shape (m, m).
            misfit: tr(y' A y).
        """
        explained = np.einsum("se,se->s", self._flat, products.reshape(-1)[self._entries])
        # Rounding may leave a little less than nothing where the rest fits exactly.
        left = np.maximum(misfit - explained, 1e-12 * misfit)
        index = int((-self._volumes - self._freedom * np.log(left)).argmax())
        chosen, inverse = self._sets[index], self._inverses[index]
        weighted = inverse @ products[np.ix_(chosen, chosen)] @ inverse
        surprises = weighted.diagonal() / inverse.diagonal() * (self._freedom / left[index])
        return tuple(chosen.tolist()), float(surprises.min())


@lru_cache(maxsize=256)
def _all_sets(m: int, size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Every set of `size` of m positions, shape (C(m, size), size), and where their blocks lie."""
    sets = np.array(list(combinations(range(m), size)), np.intp)
    return sets, _entries(m, sets)


def _entries(m: int, sets: NDArray[np.intp]) -> NDArray[np.intp]:
    """Flat indices, in a matrix of m rows, of each set's block of d rows and columns; shape (s, d * d)."""
    return (sets[:, :, None] * m + sets[:, None, :]).reshape(len(sets), -1)
