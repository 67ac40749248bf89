"""The coding experiments: shared draws, fair copies, decoding against laws, and the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from coding.copies import NoneParams
from models.datasets import EvaluationSlice, load_slice
from models.experiments.cli import experiment_app
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.lambdas import run_lambdas
from models.experiments.measure import (
    Queries,
    Variant,
    ask,
    coded_logits,
    decode_groups,
    lost_to_stragglers,
    order_groups,
)
from models.experiments.quick import Experiment, run_quick
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
    "accuracy",
    "base_accuracy",
    "rel_accuracy",
]


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


def test_the_levers_pull_and_splines_beat_berrut(digits, runner):
    done = []
    experiment = Experiment("m", runner.predict, digits, groups=60, settings=(CodeSetting(8, 20, 3),))
    result = run_quick(experiment, done.append)
    assert sum(done) == experiment.steps
    assert all(list(row) == ROW_KEYS for row in result["rows"])
    mse = {(row["scheme"], row["variant"]): row["mse"] for row in result["rows"]}
    assert mse["letcc", "logits+order"] < 0.5 * mse["letcc", "paper"]
    assert mse["letcc", "paper"] < mse["berrut", "paper"]
    for row in result["rows"]:
        assert row["rel_accuracy"] == pytest.approx(row["accuracy"] / row["base_accuracy"])
        assert row["base_accuracy"] > 0.97


def test_lambda_zero_and_a_huge_lambda_differ_as_they_should(digits, runner):
    experiment = Experiment("m", runner.predict, digits, groups=20, settings=(CodeSetting(8, 20, 3),))
    result = run_lambdas(experiment, candidates=(0.0, 10.0))
    mse = {(row["variant"], row["lambda_dec"]): row["mse"] for row in result["rows"]}
    assert mse["logits+order", 0.0] < mse["logits+order", 10.0]
    assert mse["paper", 0.0] < mse["paper", 10.0]


def test_quick_writes_json_to_standard_output():
    outcome = CliRunner().invoke(experiment_app, ["quick", "--json", "-", "--groups", "2", "--threads", "1"])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    assert (result["name"], result["seed"], result["settings"]["groups"]) == ("quick", 0, 2)
    points = {(row["k"], row["n"], row["s"]) for row in result["rows"]}
    assert points == {(20, 100, 60), (8, 20, 3), (8, 12, 2), (8, 16, 2)}
    assert {"paper", "logits+order", "copies"} <= {row["variant"] for row in result["rows"]}


def test_a_bad_model_ends_in_one_line():
    outcome = CliRunner().invoke(experiment_app, ["quick", "--model", "keras:x"])
    assert outcome.exit_code == 1
    assert "model.source must be" in outcome.stderr
