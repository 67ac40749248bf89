"""Picking a policy: what is tried, what it is worth, and why it is picked."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coding.letcc import LetccParams
from coding.output_domain import OutputDomain
from models.datasets import load_slice
from models.decoded_agreement import DecodedAnswers
from models.errors import BadOption, DataError
from models.runner import ModelRunner
from serving.config.load import load
from serving.config.schema import Settings
from serving.plan import (
    Candidate,
    Objective,
    accuracy_of,
    candidates,
    ranked,
    reason,
    row_of,
    service_time,
    with_scheme,
)
from serving.simulate import Load, Simulated, simulate
from unstraggle import app

OBJECTIVE = Objective(latency_ms=100, percentile=99, accuracy=0.9)


def candidate(label: str, *, late_ms: float, accuracy: float = 1.0, sent: float = 1.0) -> Candidate:
    latencies = np.array([0.01] * 90 + [late_ms / 1000] * 10)
    return Candidate(label, Settings(), Simulated(latencies, sent=sent), accuracy)


def picked(*tried: Candidate) -> str:
    return ranked(tried, OBJECTIVE)[0].label


def test_accuracy_comes_first_among_those_that_keep_the_objective_then_load() -> None:
    exact = candidate("exact", late_ms=90, sent=2.0)
    cheap = candidate("cheap", late_ms=90, sent=1.1)
    rough = candidate("rough", late_ms=50, accuracy=0.95)
    late = candidate("late", late_ms=101, sent=1.0)
    wrong = candidate("wrong", late_ms=10, accuracy=0.89)
    assert picked(exact, cheap, rough, late, wrong) == "cheap"
    assert picked(exact, rough, late) == "exact"
    assert picked(rough, late) == "rough"
    order = ranked([exact, cheap, rough, late, wrong], OBJECTIVE)
    assert reason(order, OBJECTIVE) == (
        "cheap: p99 90 of 100 ms, accuracy 1.0000, 1.10 calls per row. It is as accurate as exact at less load "
        "(2.00 calls per row)"
    )
    assert "more accurate than rough (0.9500)" in reason(ranked([exact, rough], OBJECTIVE), OBJECTIVE)
    assert reason(ranked([rough, late], OBJECTIVE), OBJECTIVE).endswith("No other policy keeps the objective")


def test_where_nothing_keeps_it_the_nearest_is_named_with_what_to_do() -> None:
    order = ranked([candidate("far", late_ms=400), candidate("near", late_ms=120)], OBJECTIVE)
    assert re.match(r"nothing keeps the objective; nearest is near: .*Add replicas", reason(order, OBJECTIVE))
    never = candidate("never", late_ms=math.inf)
    assert ranked([never, order[0]], OBJECTIVE)[0].label == "near"
    assert row_of(never, OBJECTIVE)["p99_ms"] is None
    json.dumps(row_of(never, OBJECTIVE), allow_nan=False)


@pytest.mark.parametrize("replicas", [1, 2, 8, 9, 10, 12, 40])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_every_candidate_is_a_legal_configuration_for_so_many_replicas(k, replicas) -> None:
    settings = load(None, {}, [f"replicas.count={replicas}", "scheme.output_domain=as_is"]).settings
    for label, scheme in candidates(k, replicas, OBJECTIVE).items():
        mine = with_scheme(settings, scheme).scheme
        prompt = [task for task in mine.build(mine.k).tasks if task.delay_s == 0]
        assert len(prompt) <= replicas, label
        assert mine.output_domain == "as_is"


@pytest.mark.parametrize(
    ("text", "mean_ms"),
    [
        ("constant:50", 53),
        ("exponential:20", 23),
        ("exponential:20,shift_ms=10", 33),
        ("lognormal:50,sigma=0.001", 53),
        ("bimodal:10,slow_ms=110,slow_share=0.5", 63),
        ("inference-trace:50", 3 + 0.98 * 50 * math.exp(0.226**2 / 2) + 0.02 * 50 * 706 / 139),
        ("trace:times.txt", 23),
    ],
)
def test_service_times_have_the_mean_that_they_say(tmp_path, monkeypatch, text, mean_ms) -> None:
    monkeypatch.chdir(tmp_path)
    Path("times.txt").write_text("10\n30\n")
    calls = service_time(text, 3.0, seed=1)
    drawn = np.array([calls(replica, call) for replica in range(20) for call in range(200)])
    assert 1000 * drawn.mean() == pytest.approx(mean_ms, rel=0.05)
    assert calls(3, 7) == service_time(text, 3.0, seed=1)(3, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("50", "must be KIND:MILLISECONDS"),
        ("weibull:50", "KIND one of constant, .*; got 'weibull:50'"),
        ("constant:", "must be KIND:MILLISECONDS"),
        ("constant:soon", "--latency constant:soon: ms: "),
        ("lognormal:50", "sigma: Field required"),
        ("constant:-1", "ms: Input should be greater than or equal to 0"),
        ("constant:inf", "ms: Input should be a finite number"),
        ("trace:empty.txt", "empty.txt is another"),
        ("trace:absent.txt", "absent.txt"),
        ("trace:bad.txt", "bad.txt"),
        ("trace:negative.txt", "none below 0"),
        ("trace:table.txt", "table.txt is another"),
    ],
)
def test_bad_latencies_are_refused(tmp_path, monkeypatch, text, message) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("bad.txt").write_text("ten\n")
    Path("negative.txt").write_text("-1\n")
    Path("table.txt").write_text("1 2\n3 4\n")
    with pytest.raises(BadOption, match=message):
        service_time(text, 0.0, seed=0)


def waves(rows: np.ndarray) -> np.ndarray:
    return np.stack([rows.sum(axis=1), -rows.sum(axis=1), np.sin(rows[:, 0])], axis=1).astype(np.float32)


def answers(params) -> DecodedAnswers:
    inputs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    return DecodedAnswers(
        params.build(params.k), waves, inputs, ordered=True, domain=OutputDomain.LOGITS, groups=60, seed=0
    )


def test_more_arrivals_decode_better_and_systematic_codes_leave_one_slot_at_least() -> None:
    plain, systematic = (
        answers(LetccParams(k=4, n=8, wait_for=6)),
        answers(LetccParams(k=4, n=8, wait_for=6, systematic=True)),
    )
    assert (plain.most_arrivals, systematic.most_arrivals) == (8, 7)
    assert plain.agreement(8) > plain.agreement(3)
    assert plain.agreement(8) > 0.9
    assert 0 < systematic.agreement(7) <= 1
    with pytest.raises(DataError, match="at least k = 4 rows; got 3"):
        DecodedAnswers(
            LetccParams(k=4).build(4), waves, np.zeros((3, 4), np.float32), ordered=False,
            domain=OutputDomain.LOGITS, groups=1, seed=0,
        )  # fmt: skip


def test_accuracy_counts_exact_rows_decoded_rows_defaults_and_errors() -> None:
    params = LetccParams(k=4, n=8, wait_for=6)
    inputs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)

    def measured(**rows) -> float:
        outcome = Simulated(np.ones(10), Counter(rows))
        return accuracy_of(outcome, params, waves, inputs, groups=20, seed=0)

    assert measured(direct=40) == 1.0
    assert measured(direct=30, default=10) == 0.75
    outcome = Simulated(np.array([1.0, math.inf]), Counter(direct=4))
    assert accuracy_of(outcome, params, waves, inputs, groups=20, seed=0) == 0.5
    outcome = Simulated(np.ones(2), Counter(direct=4, decoded=4), Counter({8: 4}))
    assert 0.9 < accuracy_of(outcome, params, waves, inputs, groups=20, seed=0) <= 1.0


def now_and_then(slow_s: float):
    """Calls of 20 ms, and one in fifty that takes longer."""

    def calls(replica: int, call: int) -> float:
        random = np.random.default_rng([1, replica, call])
        return slow_s if random.random() < 0.02 else 0.02 * random.lognormal(0.0, 0.1)

    return calls


def best_of(calls, rate: float, objective: Objective) -> str:
    """Which kind is picked for LeNet5, with 12 replicas."""
    settings = load(None, {}, ["deadline_ms=5000"]).settings
    runner = ModelRunner("builtin:lenet5-mnist", 1)
    tried = []
    for label, scheme in candidates(8, 12, objective).items():
        mine = with_scheme(settings, scheme)
        outcome = simulate(mine, Load(rate, 400, 8, 1), calls)
        agreement = accuracy_of(
            outcome, mine.scheme, runner.predict, load_slice("mnist").images, groups=40, seed=0
        )
        tried.append(Candidate(label, mine, outcome, agreement))
    best = ranked(tried, objective)[0]
    assert best.keeps(objective)
    return best.settings.scheme.kind


@pytest.mark.parametrize(
    ("kind", "calls", "rate", "objective"),
    [
        # Nothing straggles.
        ("none", lambda replica, call: 0.02, 1.0, Objective(60, 99, 0.999)),
        # There is time to send a late row again.
        ("hedged", now_and_then(1.0), 1.0, Objective(60, 99, 0.999)),
        # There is not, and replicas are idle.
        ("replication", now_and_then(1.0), 1.0, Objective(30, 95, 0.999)),
        # They are not: copies of everything, and hedges, queue behind what is slow. A few guesses are allowed.
        ("layered", now_and_then(0.2), 25.0, Objective(110, 99.9, 0.9)),
    ],
    ids=["steady", "time-to-hedge", "no-time-to-hedge", "busy"],
)
def test_planted_cases_are_recognised(kind, calls, rate, objective) -> None:
    assert best_of(calls, rate, objective) == kind


def test_an_objective_that_nothing_can_keep_is_no_bad_configuration() -> None:
    settings = load(None, {}, ["replicas.count=12"]).settings
    for scheme in candidates(8, 12, Objective(0.001, 99, 1.0)).values():
        with_scheme(settings, scheme)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


FAST = ["--requests", "100", "--groups", "10", "--threads", "1", "--latency", "constant:20"]


def test_the_command_writes_a_plan_that_can_be_served(alone) -> None:
    outcome = CliRunner().invoke(app, ["plan", "--objective-ms", "200", *FAST, "--out", "p"])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.splitlines()[-1].startswith("none: p99.9 ")
    result = json.loads(Path("p/plan.json").read_text())
    assert (result["name"], result["rows"][0]["variant"]) == ("plan", "none")
    assert result["rows"][0]["keeps_objective"]
    assert load(Path("p/config.yaml")).settings.scheme.kind == "none"
    assert Path("p/plan.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latency", "weibull:3"], "--latency must be KIND:MILLISECONDS"),
        (["--set", "replicas={kind: http, urls: ['http://a']}"], "replicas.kind must be local"),
        (["--out", "file/x"], "--out must name a folder that can be written to"),
        (["--out", "x", "--json", "x/plan.png"], "--json must not be the file of --out, plan.png"),
        (["--inputs", "cifar10"], "rows of shape"),
        (["--inputs", "few.npy"], "--inputs must hold at least k = 8 rows; got 3"),
        (["--out", "."], "config.yaml was not written by this command, and would be lost"),
        (["--set", "deadline_ms=100"], "deadline_ms must be at least --objective-ms, 200, "),
    ],
)
def test_bad_input_is_one_line(alone, arguments, message) -> None:
    Path("file").touch()
    Path("config.yaml").write_text("# mine\n")
    np.save("few.npy", load_slice("mnist").images[:3])
    outcome = CliRunner().invoke(app, ["plan", "--objective-ms", "200", *FAST, *arguments])
    assert outcome.exit_code == 2
    assert outcome.stderr.splitlines()[-1].startswith("unstraggle plan: ")
    assert message in outcome.stderr
