"""Fine-tuning on coded groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from models.adapt import AdaptRecipe, Coder, RoundLog, adapt, decoding_matrix, encoding_matrix
from models.datasets import load_slice
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
    params = LetccParams()
    adapted, logs = adapt(model, params, images[:1600], images[1600:], recipe, checkpoint=tmp_path / "c")
    assert logs[0].clean_agreement == 1.0
    assert logs[-1].loss < 0.9 * logs[0].loss
    assert logs[-1].clean_agreement > 0.97
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())
    assert not (tmp_path / "c").exists()


class Interruption(Exception):
    """Stands for a power cut."""


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, model):
    def pull_the_plug(log: RoundLog) -> None:
        raise Interruption

    data = rows(100, 1), rows(50, 2)
    whole, _ = adapt(model, PARAMS, *data, RECIPE, checkpoint=tmp_path / "whole")
    with pytest.raises(Interruption):
        adapt(model, PARAMS, *data, RECIPE, checkpoint=tmp_path / "c", on_round=pull_the_plug)
    resumed, logs = adapt(model, PARAMS, *data, RECIPE, checkpoint=tmp_path / "c")
    assert [log.round for log in logs] == [0, 1, 2, 3]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name])


def test_it_stops_when_rounds_bring_nothing(tmp_path, model):
    recipe = replace(RECIPE, rounds=20, steps=1, learning_rate=0.0, patience=2)
    _, logs = adapt(model, PARAMS, rows(50, 1), rows(50, 2), recipe, checkpoint=tmp_path / "c")
    assert [log.round for log in logs] == [0, 1, 2]


def test_a_checkpoint_of_another_code_is_refused(tmp_path, model):
    def pull_the_plug(log: RoundLog) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        adapt(
            model, PARAMS, rows(50, 1), rows(50, 2), RECIPE, checkpoint=tmp_path / "c", on_round=pull_the_plug
        )
    with pytest.raises(TrainingError, match="Delete it"):
        adapt(model, replace(PARAMS, n=7), rows(50, 1), rows(50, 2), RECIPE, checkpoint=tmp_path / "c")


def test_too_few_inputs_are_refused(tmp_path, model):
    with pytest.raises(TrainingError, match="at least k, 4, held-out inputs; got 3"):
        adapt(model, PARAMS, rows(50, 1), rows(3, 2), RECIPE, checkpoint=tmp_path / "c")
