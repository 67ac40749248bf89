"""A replica is suspected for silence or errors and ejected only when a probe fails too."""

import pytest

from serving.health import FAILURES_BEFORE_SUSPICION, Health


@pytest.fixture
def healthy() -> Health:
    health = Health(hang_after_s=1.0)
    health.on_up()
    return health


def silent_for(health: Health, seconds: float, start: float = 0.0) -> float:
    """One straggling call that is cancelled after `seconds`."""
    health.on_sent(start)
    health.on_cancelled(start + seconds)
    return start + seconds


def test_it_serves_only_after_it_came_up() -> None:
    health = Health(hang_after_s=1.0)
    assert not health.serving
    health.on_up()
    assert health.serving


def test_one_cancelled_straggler_is_no_reason_for_suspicion(healthy: Health) -> None:
    silent_for(healthy, 0.9)
    assert healthy.state == "healthy"


def test_it_is_suspected_when_it_has_answered_nothing_since_it_was_asked(healthy: Health) -> None:
    now = silent_for(healthy, 0.06)
    healthy.review(now + 0.5)
    assert healthy.state == "healthy"
    healthy.review(1.0)
    assert healthy.state == "suspect"


def test_an_idle_replica_is_not_suspected(healthy: Health) -> None:
    healthy.on_sent(0.0)
    healthy.on_answered(0.1)
    healthy.review(100.0)
    assert healthy.state == "healthy"
    assert healthy.silence_s(100.0) == 0.0


def test_an_answer_ends_the_silence(healthy: Health) -> None:
    healthy.on_sent(0.0)
    healthy.on_sent(0.5)
    healthy.on_answered(0.9)
    assert healthy.silence_s(1.0) == pytest.approx(0.1)


def test_a_call_that_hangs_is_seen_while_it_hangs(healthy: Health) -> None:
    healthy.on_sent(0.0)
    healthy.review(0.99)
    assert healthy.state == "healthy"
    healthy.review(1.0)
    assert healthy.state == "suspect"
    assert healthy.serving


def test_errors_in_a_row_raise_suspicion_and_an_answer_between_them_does_not(healthy: Health) -> None:
    for outcome in ["failed"] * (FAILURES_BEFORE_SUSPICION - 1) + ["answered", "failed"]:
        healthy.on_sent(0.0)
        (healthy.on_failed if outcome == "failed" else healthy.on_answered)(0.0)
    assert healthy.state == "healthy"
    for _ in range(FAILURES_BEFORE_SUSPICION - 1):
        healthy.on_sent(0.0)
        healthy.on_failed(0.0)
    assert healthy.state == "suspect"


def test_only_a_failed_probe_ejects_and_only_if_allowed(healthy: Health) -> None:
    healthy.on_probe_failed(may_eject=True)
    assert healthy.state == "healthy"
    silent_for(healthy, 2.0)
    healthy.on_probe_failed(may_eject=False)
    assert healthy.state == "suspect"
    healthy.on_probe_failed(may_eject=True)
    assert healthy.state == "ejected"
    assert not healthy.serving


def test_a_probe_that_answers_takes_it_back_with_a_clean_slate(healthy: Health) -> None:
    silent_for(healthy, 2.0)
    healthy.on_probe_failed(may_eject=True)
    healthy.on_up()
    assert healthy.state == "healthy"
    assert healthy.silence_s(5.0) == 0.0


def test_a_suspect_that_answers_is_healthy_again(healthy: Health) -> None:
    healthy.on_sent(0.0)
    healthy.review(2.0)
    healthy.on_answered(2.1)
    assert healthy.state == "healthy"
