"""Fine-tuning on coded groups."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from models.adapt import AdaptRecipe, Coder, RoundLog, adapt, decoding_matrix, encoding_matrix
from models.adapt_material import Material, load_material
from models.adapt_report import adapt_result, save
from models.datasets import EvaluationSlice, load_slice
from models.errors import TrainingError
from models.registry import load_model

PARAMS = LetccParams(k=4, n=6, wait_for=5)
RECIPE = AdaptRecipe(rounds=3, steps=30, groups=8, learning_rate=3e-3)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
        for layer in (network[0], network[2]):
            nn.init.normal_(layer.weight, std=1.5)
        return network


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def material(module: nn.Module, inputs: np.ndarray, held_out: np.ndarray) -> Material:
    labels = np.zeros(len(held_out), np.int64)
    return Material("mine", module, inputs, held_out, EvaluationSlice("mine", held_out, labels))


@pytest.mark.parametrize("params", [PARAMS, BerrutParams(k=3, n=5, wait_for=4)])
def test_the_matrices_do_what_the_code_does(params):
    code, coder = params.build(params.k), Coder(params)
    inputs = rows(2 * params.k, 0).reshape(2, params.k, 6)
    survivors = np.array([[0, 1, 2, 3, 4][: params.wait_for], list(range(params.n))[-params.wait_for :]])
    payloads = code.encode(inputs)
    encoded = coder.encode(torch.tensor(inputs), survivors).numpy()
    decoded = coder.decode(torch.tensor(encoded), survivors).numpy()
    for group, some in enumerate(survivors):
        np.testing.assert_allclose(encoded[group], payloads[some, group], atol=1e-5)
        arrivals = {int(task): payloads[task, group : group + 1] for task in some}
        np.testing.assert_allclose(decoded[group], code.decode(arrivals).outputs[:, 0], atol=1e-4)
    assert encoding_matrix(code, params.k).shape == (params.n, params.k)
    assert decoding_matrix(code, tuple(survivors[0])).sum(axis=1) == pytest.approx(np.ones(params.k))


def test_decoded_answers_get_better_and_the_model_itself_is_left_alone(tmp_path):
    model = load_model("builtin:lenet5-mnist").module
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = load_slice("mnist").images
    recipe = AdaptRecipe(rounds=3, steps=25, groups=12, learning_rate=1e-3)
    params = LetccParams(nodes="chebyshev")
    adapted, logs = adapt(
        material(model, images[:1600], images[1600:]), params, recipe, checkpoint=tmp_path / "c"
    )
    assert logs[0].clean_agreement == 1.0
    assert logs[-1].loss < 0.9 * logs[0].loss
    assert logs[-1].clean_agreement > 0.97
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())


class Interruption(Exception):
    """Stands for a power cut."""


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, model):
    def pull_the_plug(log: RoundLog) -> None:
        raise Interruption

    data = material(model, rows(100, 1), rows(50, 2))
    told: list[int] = []
    whole, _ = adapt(data, PARAMS, RECIPE, checkpoint=tmp_path / "whole", advance=told.append)
    assert told == [0, *[1] * 90]
    with pytest.raises(Interruption):
        adapt(data, PARAMS, RECIPE, checkpoint=tmp_path / "c", on_round=pull_the_plug)
    told.clear()
    resumed, logs = adapt(data, PARAMS, RECIPE, checkpoint=tmp_path / "c", advance=told.append)
    assert told == [30, *[1] * 60]
    assert [log.round for log in logs] == [0, 1, 2, 3]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name])


def test_it_stops_when_rounds_bring_nothing(tmp_path, model):
    recipe = replace(RECIPE, rounds=20, steps=1, learning_rate=0.0, patience=2)
    _, logs = adapt(material(model, rows(50, 1), rows(50, 2)), PARAMS, recipe, checkpoint=tmp_path / "c")
    assert [log.round for log in logs] == [0, 1, 2]


def test_a_checkpoint_of_another_run_is_refused(tmp_path, model):
    def pull_the_plug(log: RoundLog) -> None:
        raise Interruption

    data = material(model, rows(50, 1), rows(50, 2))
    with pytest.raises(Interruption):
        adapt(data, PARAMS, RECIPE, checkpoint=tmp_path / "c", on_round=pull_the_plug)
    wider = copy.deepcopy(model)
    with torch.no_grad():
        wider[0].weight[0, 0] += 1e-6
    for other, params, recipe, named in (
        (data, replace(PARAMS, n=7), RECIPE, "code.n 6 instead of 7"),
        (data, PARAMS, replace(RECIPE, seed=1), "recipe.seed 0 instead of 1"),
        (replace(data, module=wider), PARAMS, RECIPE, "weights "),
        (replace(data, inputs=rows(50, 3)), PARAMS, RECIPE, "inputs "),
        (replace(data, held_out=rows(50, 3)), PARAMS, RECIPE, "inputs "),
        (replace(data, source="yours"), PARAMS, RECIPE, "model.source mine instead of yours"),
    ):
        with pytest.raises(TrainingError, match=f"comes from another, with {named}"):
            adapt(other, params, recipe, checkpoint=tmp_path / "c")


def test_answers_that_are_not_finite_are_refused(tmp_path, model):
    huge = rows(50, 1)
    huge[7] = 3e38
    for inputs, held_out, where in (
        (rows(50, 1), huge, "1 of 50 to held-out inputs are not"),
        (huge, rows(50, 2), "of 32 to inputs are not"),
    ):
        with pytest.raises(TrainingError, match=f"own answers must be finite; .*{where}"):
            adapt(material(model, inputs, held_out), PARAMS, RECIPE, checkpoint=tmp_path / "c")


def test_a_run_that_runs_away_ends(tmp_path, model):
    recipe = replace(RECIPE, learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"loss must stay finite; .* A lower --learning-rate than 1e\+30"):
        adapt(material(model, rows(50, 1), rows(50, 2)), PARAMS, recipe, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("damage", [{"logs": []}, {"best": {}}, {"logs": [{"round": 0}]}])
def test_a_checkpoint_that_was_tampered_with_is_refused(tmp_path, model, damage):
    def pull_the_plug(log: RoundLog) -> None:
        raise Interruption

    data = material(model, rows(50, 1), rows(50, 2))
    with pytest.raises(Interruption):
        adapt(data, PARAMS, RECIPE, checkpoint=tmp_path / "c", on_round=pull_the_plug)
    state = torch.load(tmp_path / "c", weights_only=True)
    torch.save(state | damage, tmp_path / "c")
    with pytest.raises(TrainingError, match="must be a checkpoint"):
        adapt(data, PARAMS, RECIPE, checkpoint=tmp_path / "c")


def test_one_row_that_the_model_does_not_bear_is_named(tmp_path):
    images = load_slice("mnist").images[:100].copy()
    images[42] = 3e38
    np.save(tmp_path / "x.npy", images)
    with pytest.raises(TrainingError, match=r"that to row 42 of x\.npy is not"):
        load_material("builtin:lenet5-mnist", str(tmp_path / "x.npy"), k=8, seed=0)


def test_too_few_inputs_are_refused(tmp_path, model):
    with pytest.raises(TrainingError, match="at least k, 4, held-out inputs; got 3"):
        adapt(material(model, rows(50, 1), rows(3, 2)), PARAMS, RECIPE, checkpoint=tmp_path / "c")


def test_the_report_says_what_was_gained_and_what_was_lost():
    original = load_model("builtin:lenet5-mnist").module
    data = load_slice("mnist")
    what = Material("builtin:lenet5-mnist", original, data.images, data.images, data)
    result = adapt_result(what, original, LetccParams(), RECIPE, [])
    score = {(row["scheme"], row["variant"]): row for row in result["rows"]}
    assert score["none", "original"] | {"variant": ""} == score["none", "adapted"] | {"variant": ""}
    assert score["none", "original"]["rel_accuracy"] == 1
    assert (
        score["letcc", "logits+order+equispaced"]["mse"]
        == score["letcc", "logits+order+equispaced+adapted"]["mse"]
    )
    assert {"replication", "hedged"} <= {scheme for scheme, _ in score}


def test_saved_weights_are_loaded_by_one_option(tmp_path):
    module = load_model("builtin:lenet5-mnist").module
    with torch.no_grad():
        next(module.parameters()).add_(1.0)
    save(module, {"rows": []}, tmp_path / "w.safetensors")
    again = load_model(f"builtin:lenet5-mnist?weights={tmp_path / 'w.safetensors'}").module
    assert torch.equal(next(module.parameters()), next(again.parameters()))
    assert (tmp_path / "w.log.json").read_text() == '{\n "rows": []\n}\n'


def test_rows_of_a_file_are_split_and_labelled_by_the_model_itself(tmp_path):
    images = load_slice("mnist").images
    np.save(tmp_path / "x.npy", images[:200])
    some = load_material("builtin:lenet5-mnist", str(tmp_path / "x.npy"), k=8, seed=0)
    assert (len(some.inputs), len(some.held_out)) == (180, 20)
    together = np.concatenate([some.inputs, some.held_out]).reshape(200, -1)
    assert {row.tobytes() for row in together} == {row.tobytes() for row in images[:200].reshape(200, -1)}
    answers = some.module(torch.tensor(some.held_out)).argmax(1)
    assert (some.judged.labels == answers.numpy()).all()
    np.save(tmp_path / "few.npy", images[:79])
    with pytest.raises(TrainingError, match=r"at least 10 rows for each of the k = 8 .*, 80, .* got 79"):
        load_material("builtin:lenet5-mnist", str(tmp_path / "few.npy"), k=8, seed=0)


class Answers(nn.Module):
    """Answers by a function of the images."""

    input_shape = (1, 28, 28)

    def __init__(self, answer, *, trained: bool = True) -> None:
        super().__init__()
        self.answer = answer
        if trained:
            self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.answer(images.flatten(1)[:, 200:203])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Answers(lambda pixels: pixels.softmax(1)),
            "must answer logits to be adapted; it answers probabilities",
        ),
        (
            Answers(lambda pixels: pixels[:, None]),
            r"must answer a row of logits to each input, .*; got \[1, 3\]",
        ),
        (Answers(lambda pixels: pixels[:, :1]), r"of 2 classes or more; got \[1\]"),
        (Answers(lambda pixels: pixels, trained=False), "must have parameters to fine-tune; it has none"),
    ],
)
def test_models_that_cannot_be_adapted_are_refused(tmp_path, monkeypatch, model, message):
    np.save(tmp_path / "x.npy", load_slice("mnist").images[:100])
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(make=lambda: model))
    with pytest.raises(TrainingError, match=message):
        load_material("python:mine:make", str(tmp_path / "x.npy"), k=8, seed=0)
