import pytest

from loadtest.config import (
    LoadSettings,
    SchemeChoice,
    StackSettings,
    parse_schemes,
    parse_service_time,
)
from loadtest.errors import OptionError


def test_schemes_with_and_without_parameters():
    assert parse_schemes("none, replication:copies=3,letcc:n=12,wait_for=10,hedged") == (
        SchemeChoice("none", "none"),
        SchemeChoice("replication:copies=3", "replication", (("copies", "3"),)),
        SchemeChoice("letcc:n=12,wait_for=10", "letcc", (("n", "12"), ("wait_for", "10"))),
        SchemeChoice("hedged", "hedged"),
    )


def test_a_scheme_becomes_overrides():
    (choice,) = parse_schemes("letcc:n=12,wait_for=10")
    assert choice.overrides() == ("scheme.kind=letcc", "scheme.n=12", "scheme.wait_for=10")


@pytest.mark.parametrize("text", ["", "none,", "n=12", "letcc:", "letcc:n", "letcc:n=", "Letcc", "none,none"])
def test_unreadable_schemes_are_named(text):
    with pytest.raises(OptionError, match=r"^--schemes must be a ") as caught:
        parse_schemes(text)
    assert str(caught.value).endswith(f"got {text!r}")


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("inference-trace:50ms", "{kind: inference-trace, median_ms: 50}"),
        ("exponential:0.05s", "{kind: exponential, mean_ms: 50}"),
        ("exponential:50ms,shift_ms=10", "{kind: exponential, mean_ms: 50, shift_ms: 10}"),
        ("constant:2.5ms", "{kind: constant, ms: 2.5}"),
        ("lognormal:50ms,sigma=0.5", "{kind: lognormal, median_ms: 50, sigma: 0.5}"),
        (
            "bimodal:5ms,slow_ms=50,slow_share=0.1",
            "{kind: bimodal, fast_ms: 5, slow_ms: 50, slow_share: 0.1}",
        ),
    ],
)
def test_service_times_become_fault_settings(text, section):
    assert parse_service_time(text).overrides(7) == (
        "replicas.faults.enabled=true",
        "replicas.faults.seed=7",
        f"replicas.faults.delay={section}",
    )


def test_no_service_time_switches_nothing_on():
    assert parse_service_time("none").overrides(7) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gaussian:50ms",
        "constant",
        "constant:50",
        "constant:-5ms",
        "constant:5ms,sigma=1",
        "lognormal:50ms",
        "lognormal:50ms,sigma=x",
        "exponential:50ms,",
        "inference-trace:fast",
    ],
)
def test_unreadable_service_times_are_named(text):
    with pytest.raises(OptionError, match=r"^--service-time must be ") as caught:
        parse_service_time(text)
    assert str(caught.value).endswith(f"got {text!r}")


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({"rate": 0.0}, "--rate"),
        ({"rate": float("nan")}, "--rate"),
        ({"rate": float("inf")}, "--rate"),
        ({"requests": 0}, "--requests"),
        ({"rows_per_request": 0}, "--rows-per-request"),
        ({"seed": -1}, "--seed"),
        ({"warmup": -1}, "--warmup"),
        ({"arrivals": "bursty"}, "--arrivals"),
    ],
)
def test_a_load_that_breaks_a_rule_names_option_and_value(values, option):
    with pytest.raises(OptionError, match=f"^{option} must be .*, got ") as caught:
        LoadSettings(**{"rate": 1.0, "requests": 1, **values})
    (value,) = values.values()
    assert str(caught.value).endswith(f"got {value}")


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({"replicas": 0}, "--replicas"),
        ({"window_ms": -1.0}, "--window-ms"),
        ({"replica_concurrency": -1}, "--replica-concurrency"),
        ({"deadline_ms": 0.0}, "--deadline-ms"),
    ],
)
def test_a_stack_that_breaks_a_rule_names_the_option(values, option):
    with pytest.raises(OptionError, match=f"^{option} must be .*, got "):
        StackSettings(**values)


def test_schemes_differ_in_nothing_but_the_scheme():
    stack = StackSettings(replicas=4, window_ms=50.0, service_time=parse_service_time("constant:5ms"))
    none, letcc = (stack.overrides(choice, 3) for choice in parse_schemes("none,letcc"))
    assert set(none) ^ set(letcc) == {"scheme.kind=none", "scheme.kind=letcc"}
    assert {"replicas.count=4", "grouping.window_ms=50", "replicas.faults.seed=3"} <= set(none)
