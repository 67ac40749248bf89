import numpy as np
import pytest

from loadtest.arrivals import draw_schedule


@pytest.mark.parametrize("kind", ["poisson", "constant"])
def test_the_mean_rate_is_the_one_asked_for(kind):
    schedule = draw_schedule(kind, rate=40.0, requests=20_000, seed=3)
    assert schedule.size / schedule[-1] == pytest.approx(40.0, rel=0.03)


@pytest.mark.parametrize("kind", ["poisson", "constant"])
def test_times_ascend_from_zero_on(kind):
    schedule = draw_schedule(kind, rate=500.0, requests=1_000, seed=0)
    assert schedule[0] >= 0
    assert (np.diff(schedule) > 0).all()


def test_poisson_gaps_are_exponential():
    gaps = np.diff(draw_schedule("poisson", rate=10.0, requests=50_000, seed=1))
    assert gaps.std() == pytest.approx(0.1, rel=0.02)
    assert np.mean(gaps > 0.1) == pytest.approx(np.exp(-1.0), abs=0.01)


def test_constant_gaps_are_equal():
    np.testing.assert_allclose(
        draw_schedule("constant", rate=4.0, requests=4, seed=9), [0.0, 0.25, 0.5, 0.75]
    )


def test_the_seed_decides():
    first, again, other = (draw_schedule("poisson", rate=10.0, requests=50, seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_longer_schedule_begins_like_a_shorter_one():
    short, long = (draw_schedule("poisson", rate=10.0, requests=n, seed=5) for n in (20, 200))
    np.testing.assert_array_equal(short, long[:20])
