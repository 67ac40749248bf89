"""The coding experiments: shared draws, fair copies, decoding against laws, and the commands."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from coding.copies import NoneParams
from models.datasets import EvaluationSlice, load_slice
from models.errors import BadOption
from models.experiments.byzantine import ATTACKS, ByzantineExperiment, run_byzantine, tamper
from models.experiments.cli import experiment_app
from models.experiments.coded_points import CodedPointsExperiment, run_coded_points
from models.experiments.comparison import ADAPTED, OUR_VARIANTS, PAPER_VARIANTS, Experiment, compare
from models.experiments.convergence import ConvergenceExperiment, run_convergence
from models.experiments.estimate import EstimateExperiment, auroc, run_estimate
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.lambdas import LambdaExperiment, run_lambda
from models.experiments.measure import (
    Queries,
    Variant,
    ask,
    coded_logits,
    decode_groups,
    lost_to_stragglers,
    order_groups,
)
from models.experiments.report import Report, publish_report
from models.experiments.stragglers import HOST_SHARE, StragglerExperiment, run_stragglers, straggler_sets
from models.experiments.subjects import SUBJECTS, LoadedSubject, choose, load_subject
from models.experiments.table1 import draw_table1
from models.images import Images
from models.runner import ModelRunner

ROW_KEYS = [
    "model",
    "dataset",
    "scheme",
    "variant",
    "k",
    "n",
    "s",
    "groups",
    "mse",
    "mse_sd",
    "accuracy",
    "base_accuracy",
    "rel_accuracy",
    "rel_accuracy_sd",
]
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def digits() -> EvaluationSlice:
    return load_slice("mnist")


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner("builtin:lenet5-mnist", threads=1)


def test_groups_are_distinct_queries_and_survivors_are_n_minus_s():
    draw = draw_groups(CodeSetting(8, 12, 2), rows=20, groups=50, seed=1)
    assert draw.groups.shape == (50, 8)
    assert all(len(set(group)) == 8 for group in draw.groups.tolist())
    assert draw.survivors.shape == (50, 10)
    assert (np.diff(draw.survivors, axis=1) > 0).all()
    assert set(draw.survivors.ravel()) == set(range(12))
    assert set(draw.groups.ravel()) == set(range(20))


def test_a_draw_depends_on_seed_and_setting_alone():
    def draw(setting, seed):
        return draw_groups(setting, rows=100, groups=5, seed=seed).groups.tolist()

    assert draw(CodeSetting(8, 12, 2), 1) == draw(CodeSetting(8, 12, 2, lambda_dec=0.1), 1)
    assert draw(CodeSetting(8, 12, 2), 1) != draw(CodeSetting(8, 12, 2), 2)
    assert draw(CodeSetting(8, 12, 2), 1) != draw(CodeSetting(8, 16, 2), 1)


@pytest.mark.parametrize("setting", [CodeSetting(8, 12, 2), CodeSetting(3, 10, 7), CodeSetting(4, 8, 3)])
def test_copies_lose_a_query_when_all_of_them_straggle(setting):
    survivors = draw_groups(setting, rows=20, groups=100, seed=0).survivors
    lost = lost_to_stragglers(setting, survivors)
    for group, alive in enumerate(survivors.tolist()):
        for query in range(setting.k):
            copies = range(query, setting.n, setting.k)
            assert lost[group, query] == (not set(copies) & set(alive))


def test_lost_queries_count_as_wrong_and_as_zeros():
    queries = Queries(np.zeros((2, 1)), np.array([0, 1]), np.array([[0.8, 0.2], [0.4, 0.6]], np.float32))
    groups = np.array([[0, 1]])
    perfect = queries.score(queries.probabilities[groups], groups)
    assert (perfect.mse, perfect.accuracy, perfect.base_accuracy) == (0.0, 1.0, 1.0)
    lost = queries.score(queries.probabilities[groups], groups, np.array([[True, False]]))
    assert lost.mse == pytest.approx((0.8**2 + 0.2**2) / 2)
    assert (lost.accuracy, lost.base_accuracy) == (0.5, 1.0)


def test_uncoded_groups_come_back_as_the_model_answers_them(digits, runner):
    code = NoneParams().build(1)
    draw = draw_groups(CodeSetting(1, 1, 0), rows=50, groups=30, seed=0)
    outputs = coded_logits(code, digits.images, draw.groups, runner.predict)
    answers = decode_groups(code, outputs, draw.survivors)
    np.testing.assert_allclose(answers, runner.predict(digits.images[:50])[draw.groups], atol=1e-4)


def test_every_group_is_decoded_from_its_own_survivors():
    variant, setting = Variant("letcc", logits=True), CodeSetting(4, 9, 3)
    draw = draw_groups(setting, rows=40, groups=25, seed=3)
    code = variant.code(setting)
    outputs = np.random.default_rng(0).standard_normal((9, 25, 5)).astype(np.float32)
    together = decode_groups(code, outputs, draw.survivors)
    poisoned = outputs.copy()
    for group in range(25):
        poisoned[np.setdiff1d(np.arange(9), draw.survivors[group]), group] = np.nan
    np.testing.assert_array_equal(decode_groups(code, poisoned, draw.survivors), together)


def test_ordering_only_permutes(digits):
    groups = draw_groups(CodeSetting(8, 12, 2), rows=200, groups=20, seed=0).groups
    ordered = order_groups(digits.images, groups)
    assert np.array_equal(np.sort(ordered), np.sort(groups))
    assert not np.array_equal(ordered, groups)


def test_the_uncoded_model_is_asked_in_batches(runner, digits):
    queries = ask(digits.images, digits.labels, runner.predict)
    assert queries.probabilities.shape == (2000, 10)
    np.testing.assert_allclose(queries.probabilities.sum(axis=1), 1.0, atol=1e-5)


@pytest.fixture(scope="module")
def lenet5(digits, runner) -> LoadedSubject:
    """LeNet5, with itself as the network adapted for (8, 12)."""
    small = replace(SUBJECTS["lenet5"], large=CodeSetting(6, 20, 6), groups=12)
    return LoadedSubject(small, runner.predict, digits, {(8, 12): runner.predict})


def experiment(digits, runner, groups: int, setting: CodeSetting, **more) -> Experiment:
    variants = (*PAPER_VARIANTS, *OUR_VARIANTS, ADAPTED)
    return Experiment("m", runner.predict, digits, groups, 0, (setting,), variants, **more)


def test_the_levers_pull_and_splines_beat_berrut(digits, runner):
    done = []
    what = experiment(digits, runner, 60, CodeSetting(8, 20, 3))
    rows = compare(what, done.append)
    assert sum(done) == what.steps
    assert all(list(row) == ROW_KEYS for row in rows)
    mse = {(row["scheme"], row["variant"]): row["mse"] for row in rows}
    assert mse["letcc", "logits+order"] < 0.5 * mse["letcc", "paper"]
    assert mse["letcc", "paper"] < mse["berrut", "paper"]
    assert mse["letcc", "logits+order+equispaced"] < mse["letcc", "logits+order"]
    for row in rows:
        assert row["rel_accuracy"] == pytest.approx(row["accuracy"] / row["base_accuracy"])
        assert row["base_accuracy"] > 0.97


def test_adapted_networks_answer_where_there_are_some(digits, runner):
    def useless(images):
        return np.zeros((len(images), 10), np.float32)

    at_12 = experiment(digits, runner, 4, CodeSetting(8, 12, 2), adapted={(8, 12): useless})
    at_16 = replace(at_12, settings=(CodeSetting(8, 16, 2),))
    scores = {row["variant"]: row["mse"] for row in compare(at_12)}
    assert scores["logits+order+equispaced+adapted"] > scores["logits+order"]
    assert "logits+order+equispaced+adapted" not in {row["variant"] for row in compare(at_16)}


def test_replicas_without_a_code_are_measured_beside_every_code(digits, runner):
    rows = {row["scheme"]: row for row in compare(experiment(digits, runner, 40, CodeSetting(8, 9, 1)))}
    assert rows["hedged"]["mse"] == 0
    assert rows["hedged"]["rel_accuracy"] == 1
    assert rows["replication"]["accuracy"] == pytest.approx(1 - 7 / 9 / 8, abs=0.03)
    assert rows["default"]["accuracy"] == pytest.approx(1 - 8 / 9 / 8 * 0.9, abs=0.03)


def test_all_of_a_host_straggles_before_the_next():
    random = np.random.default_rng(0)
    for kind, host in (("by host", np.arange(60) // 6), ("by host, spread", np.arange(60) % 10)):
        for alive in straggler_sets(kind, 60, 15, 20, random):
            assert (np.diff(alive) > 0).all()
            left = np.bincount(host[alive], minlength=round(1 / HOST_SHARE))
            assert sorted(left) == [0, 0, 3, *[6] * 7]
    anyone = straggler_sets("random", 60, 15, 20, random)
    assert anyone.shape == (20, 45)
    assert len({tuple(alive) for alive in anyone.tolist()}) == 20


def test_false_answers_replace_those_of_e_replicas_in_every_group():
    random = np.random.default_rng(0)
    logits = random.normal(size=(6, 9, 4)).astype(np.float32)
    for attack in ATTACKS.values():
        false, liars = tamper(logits, 2, attack, random)
        changed = (false != logits).any(axis=2)
        for group, some in enumerate(liars):
            assert set(np.flatnonzero(changed[group])) == set(some)
    assert tamper(logits, 2, None, random)[1].shape == (6, 0)
    false, liars = tamper(logits, 1, ATTACKS["plausible"], random)
    told, true = false[np.arange(6), liars[:, 0]], logits[np.arange(6), liars[:, 0]]
    assert (np.sort(told) == np.sort(true)).all()
    assert (told.argmax(axis=1) == np.argsort(true, axis=1)[:, -2]).all()


def test_auroc_is_the_share_of_pairs_in_the_right_order():
    scores, positive = np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True])
    assert auroc(scores, positive) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert auroc(scores, np.zeros(4, bool)) is None


def reports(lenet5: LoadedSubject):
    """Every experiment in its smallest size, and the number of steps that it announces."""
    byzantine = ByzantineExperiment(lenet5, groups=3)
    convergence = ConvergenceExperiment(lenet5, groups=20)
    stragglers = StragglerExperiment([lenet5], sets=3)
    smoothing, estimate = LambdaExperiment([lenet5]), EstimateExperiment([lenet5])
    yield run_byzantine, byzantine
    yield run_convergence, convergence
    yield run_stragglers, stragglers
    yield run_lambda, smoothing
    yield run_estimate, estimate


def test_every_experiment_counts_its_steps_and_writes_its_folder(lenet5, tmp_path):
    for run, what in reports(lenet5):
        done = []
        report = run(what, done.append)
        assert sum(done) == what.steps, run
        check_folder(report, tmp_path)
    check_folder(run_coded_points(CodedPointsExperiment([lenet5.data], groups=2)), tmp_path)


def check_folder(report: Report, folder) -> None:
    name = report.result["name"]
    publish_report(report, None, folder / name)
    assert (folder / name / f"{name}.png").read_bytes().startswith(PNG)
    page = (folder / name / "README.md").read_text()
    assert page.startswith(f"# {name}: ")
    assert f"]({name}.png)" in page
    assert page.count("\n| ") == 1 + len(report.result["rows"])
    stored = json.loads((folder / name / f"{name}.json").read_text())
    assert stored["settings"]["environment"]["cores"] >= 1
    assert all({"k", "n", "s", "groups"} <= row.keys() for row in stored["rows"])


def test_the_comparison_is_drawn_with_the_settings_that_there_are(digits, runner):
    rows = compare(experiment(digits, runner, 4, CodeSetting(8, 12, 2)))
    assert draw_table1({"rows": rows, "seed": 0}).axes


def test_splines_converge_faster_than_the_third_power_and_than_berrut(lenet5):
    rows = run_convergence(ConvergenceExperiment(lenet5, groups=60)).result["rows"]
    slopes = {(row["scheme"], row["s"]): row["slope_high"] for row in rows if row["model"] == "x sin x"}
    for s in (0, 3):
        assert slopes["letcc", s] < -3
        assert slopes["letcc", s] < slopes["berrut", s]


def test_our_locator_is_better_than_approxifers_and_than_none(lenet5):
    rows = run_byzantine(ByzantineExperiment(lenet5, groups=12)).result["rows"]
    noisy = {row["method"]: row for row in rows if (row["attack"], row["wrong"]) == ("noise 10", 3)}
    assert noisy["ours"]["located"] > noisy["ApproxIFER"]["located"]
    assert noisy["ours"]["accuracy"] > noisy["nothing"]["accuracy"]
    assert noisy["ours, fewer"]["n"] < noisy["ApproxIFER"]["n"]


def test_too_much_smoothing_costs(lenet5):
    rows = run_lambda(LambdaExperiment([lenet5], groups=20)).result["rows"]
    mse = {
        (row["variant"], row["lambda_enc"], row["lambda_dec"]): row["mse"] for row in rows if row["k"] == 6
    }
    assert mse["logits+order+equispaced", 0.0, 0.0] < mse["logits+order+equispaced", 0.0, 1e-3]
    assert mse["paper", 0.0, 0.0] < mse["paper", 1e-3, 1e-3]


def test_subjects_are_chosen_by_name():
    assert [subject.name for subject in choose(["lenet5", "lenet5"])] == ["lenet5"]
    with pytest.raises(BadOption, match=r"models must be among lenet5.*got 'lenet6'"):
        choose(["lenet6"])


def test_quick_writes_json_to_standard_output():
    outcome = CliRunner().invoke(experiment_app, ["quick", "--json", "-", "--groups", "2", "--threads", "1"])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    assert (result["name"], result["seed"], result["settings"]["groups"]) == ("quick", 0, 2)
    points = {(row["k"], row["n"], row["s"]) for row in result["rows"]}
    assert points == {(20, 100, 60), (8, 20, 3), (8, 12, 2), (8, 16, 2)}
    assert {"paper", "logits+order", "copies"} <= {row["variant"] for row in result["rows"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1", "--models", "lenet5,alexnet"], "models must be among lenet5, repvgg, vit; got 'alexnet'"),
        (["table1", "--models", ","], "models must name at least one of lenet5, repvgg, vit"),
        (["table1", "--full", "--split", "train"], "--full takes the whole test set, .*; got train"),
        (["coded-points", "--out", "file/x"], "--out must name a folder that can be written to; file/x: "),
        (
            ["quick", "--out", "new", "--json", "new"],
            "--json must not be the file of --out, or a folder of it; got new",
        ),
        (["quick", "--out", "new", "--json", "new/README.md"], "--json must not be the file of --out.*"),
        (["quick", "--out", "new/x", "--json", "new"], "--json must not be the file of --out.*"),
        (
            ["coded-points", "--out", "mine"],
            "--out must name a folder of its own; mine has a README.md that no .*",
        ),
        (["coded-points", "--json", "folder"], "--json must name a file; folder is a folder"),
        (
            ["coded-points", "--json", "file/x.json"],
            "--json must name a file that can be written; file/x.json: ",
        ),
    ],
)
def test_bad_options_end_in_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("# Mine")
    outcome = CliRunner().invoke(experiment_app, arguments)
    assert outcome.exit_code == 2
    assert re.fullmatch(f"unstraggle experiment: {message}.*\n", outcome.stderr)


@pytest.mark.parametrize("option", ["--threads", "--seed", "--groups"])
def test_numbers_beyond_all_use_are_refused(option):
    outcome = CliRunner().invoke(experiment_app, ["quick", option, str(2**64)])
    assert outcome.exit_code == 2
    assert "less than or equal to" in outcome.stderr


def test_the_rest_of_the_test_set_is_what_is_not_in_the_slice(monkeypatch):
    images = Images(np.zeros((2003, 1, 28, 28), np.uint8), np.arange(2003) % 10)
    monkeypatch.setattr("models.experiments.subjects.load", lambda name, split: {"test": images}[split])
    loaded = load_subject(choose(["lenet5"])[0], rows="rest", threads=1)
    assert loaded.data.name == "mnist-rest"
    assert loaded.data.labels.tolist() == [0, 1, 2]
