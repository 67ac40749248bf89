"""Patience with workers that die: it grows to a limit, and is forgotten after a long life."""

import itertools

from serving.supervisor import Backoff

QUICK_S, LONG_S = 0.01, 1.0


def waits_after(*lives_s):
    backoff = Backoff(0.2, LONG_S)
    return [backoff.wait_after(life_s) for life_s in lives_s]


def test_it_doubles_up_to_the_limit():
    assert waits_after(*[QUICK_S] * 5) == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_long_life_starts_it_anew():
    assert waits_after(QUICK_S, QUICK_S, LONG_S, QUICK_S) == [0.2, 0.4, 0.2, 0.4]


def test_a_first_wait_over_the_limit_is_cut():
    backoff = Backoff(5.0, LONG_S)
    assert list(itertools.islice(iter(lambda: backoff.wait_after(QUICK_S), None), 3)) == [1.0, 1.0, 1.0]
