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


def check(health: Health, verdicts: str, now: float = 0.0, *, may_eject: bool = True) -> None:
    """Arrivals that were looked at: "." is right and "x" wrong."""
    for verdict in verdicts:
        health.on_checked(now, wrong=verdict == "x", may_eject=may_eject)


@pytest.mark.parametrize(
    ("verdicts", "state"),
    [
        ("." * 50, "healthy"),
        ("xx", "healthy"),
        ("xxx", "ejected"),
        ("x.......x", "healthy"),
        ("x...x....x", "ejected"),
        ("xx.........x", "healthy"),
        ("x....x....x....x....x", "healthy"),
    ],
)
def test_three_wrong_arrivals_of_the_last_ten_eject(healthy: Health, verdicts: str, state: str) -> None:
    check(healthy, verdicts)
    assert healthy.state == state


def test_how_many_is_a_setting() -> None:
    health = Health(hang_after_s=1.0, wrong_before_ejection=1)
    health.on_up()
    check(health, "...x")
    assert health.state == "ejected"


def test_a_probe_may_bring_it_back_only_after_its_term(healthy: Health) -> None:
    check(healthy, "xxx", now=100.0)
    assert healthy.is_held(129.9)
    assert not healthy.is_held(130.0)
    healthy.on_up()
    assert (healthy.state, healthy.on_probation) == ("healthy", True)


def test_one_ejected_for_its_silence_is_not_held(healthy: Health) -> None:
    silent_for(healthy, 2.0)
    healthy.on_probe_failed(may_eject=True)
    assert not healthy.is_held(0.0)


def test_on_probation_one_wrong_arrival_ejects_for_twice_as_long(healthy: Health) -> None:
    now = 0.0
    check(healthy, "xxx", now)
    for term in (30.0, 60.0, 120.0):
        assert healthy.is_held(now + term - 0.1)
        now += term
        assert not healthy.is_held(now)
        healthy.on_up()
        check(healthy, "....x", now)
        assert healthy.state == "ejected"


def test_terms_do_not_grow_for_ever(healthy: Health) -> None:
    check(healthy, "xxx")
    for _ in range(20):
        healthy.on_up()
        check(healthy, "x")
    assert not healthy.is_held(64 * 30.0)


def test_ten_right_arrivals_end_the_probation(healthy: Health) -> None:
    check(healthy, "xxx")
    healthy.on_up()
    check(healthy, "." * 10)
    assert not healthy.on_probation
    check(healthy, "xx", now=50.0)
    assert healthy.state == "healthy"
    check(healthy, "x", now=50.0)
    assert not healthy.is_held(80.0)


def test_it_stays_while_too_many_are_ejected_and_goes_when_it_is_wrong_again(healthy: Health) -> None:
    check(healthy, "xxxx", may_eject=False)
    assert healthy.state == "healthy"
    check(healthy, "x")
    assert healthy.state == "ejected"


def test_a_new_process_has_a_record_of_its_own(healthy: Health) -> None:
    check(healthy, "xx")
    healthy.on_down()
    healthy.on_starting()
    healthy.on_up()
    check(healthy, "xx")
    assert (healthy.state, healthy.on_probation) == ("healthy", False)


def test_what_it_answered_before_it_was_ejected_is_not_held_against_it(healthy: Health) -> None:
    check(healthy, "xxx", now=0.0)
    check(healthy, "xxx", now=29.0)
    assert not healthy.is_held(30.0)
