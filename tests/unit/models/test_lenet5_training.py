"""Training: what is drawn, what is learnt, and going on after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from models.augment import mixup, shift
from models.datasets import Digits, load_slice
from models.errors import TrainingError
from models.lenet5 import LeNet5
from models.train import WEIGHTS, EpochLog, Recipe, train_lenet5_mnist

RECIPE = Recipe(epochs=2, batch_rows=32, mixup_share=0.5)


class Interruption(Exception):
    """Stands for a power cut."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> Digits:
    shipped = load_slice("mnist")
    pixels = np.rint(shipped.images[:500, 0] * 255).astype(np.uint8)
    return Digits(pixels, shipped.labels[:500].astype(np.uint8))


def part(digits: Digits, rows: slice) -> Digits:
    return Digits(digits.images[rows], digits.labels[rows])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, digits):
    train, test = part(digits, slice(0, 100)), part(digits, slice(100, 150))
    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"

    def pull_the_plug(log: EpochLog) -> None:
        raise Interruption

    train_lenet5_mnist(RECIPE, train, test, out=whole)
    with pytest.raises(Interruption):
        train_lenet5_mnist(RECIPE, train, test, out=broken, on_epoch=pull_the_plug)
    assert not broken.exists()
    resumed = []
    logs = train_lenet5_mnist(RECIPE, train, test, out=broken, on_epoch=resumed.append)
    assert [log.epoch for log in resumed] == [2]
    assert [log.epoch for log in logs] == [1, 2]
    assert broken.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {
        "whole.safetensors",
        "whole.log.json",
        "broken.safetensors",
        "broken.log.json",
    }


def test_seeds_decide_the_weights(tmp_path, digits):
    train, test = part(digits, slice(0, 64)), part(digits, slice(64, 80))
    weights = []
    for number, seed in enumerate((0, 0, 1)):
        out = tmp_path / f"{number}.safetensors"
        train_lenet5_mnist(replace(RECIPE, epochs=1, seed=seed), train, test, out=out)
        weights.append(out.read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_the_global_generator_is_left_alone(tmp_path, digits):
    before = torch.random.get_rng_state()
    train_lenet5_mnist(replace(RECIPE, epochs=1), digits, digits, out=tmp_path / "x.safetensors")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path, digits):
    out = tmp_path / "net.safetensors"

    def pull_the_plug(log: EpochLog) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        train_lenet5_mnist(RECIPE, digits, digits, out=out, on_epoch=pull_the_plug)
    with pytest.raises(TrainingError, match=r"net.checkpoint must come from the recipe .*Delete it"):
        train_lenet5_mnist(replace(RECIPE, seed=9), digits, digits, out=out)


def test_too_few_digits_are_refused(tmp_path, digits):
    with pytest.raises(TrainingError, match="at least batch_rows, 32, training digits; got 10"):
        train_lenet5_mnist(RECIPE, part(digits, slice(0, 10)), digits, out=tmp_path / "x.safetensors")


def test_training_learns(tmp_path, digits):
    recipe = Recipe(epochs=12, batch_rows=25, mixup_share=0.0, shift_pixels=0.0)
    train, test = part(digits, slice(0, 400)), part(digits, slice(400, 500))
    logs = train_lenet5_mnist(recipe, train, test, out=tmp_path / "x.safetensors")
    assert logs[-1].loss < 0.3 * logs[0].loss
    assert logs[-1].test_accuracy > 0.7
    written = json.loads((tmp_path / "x.log.json").read_text())
    assert written["test_accuracy"] == logs[-1].test_accuracy
    assert written["recipe"]["epochs"] == len(written["epochs"]) == 12


def test_the_shipped_log_belongs_to_the_shipped_weights():
    log = json.loads(WEIGHTS.with_suffix(".log.json").read_text())
    state = safetensors.torch.load_file(WEIGHTS)
    assert set(state) == set(LeNet5().state_dict())
    assert log["parameters"] == sum(parameter.numel() for parameter in LeNet5().parameters()) == 61_706
    assert log["test_accuracy"] >= 0.99
    assert Recipe(**log["recipe"]) == Recipe()
    assert len(log["epochs"]) == Recipe().epochs
    assert Path(WEIGHTS).stat().st_size < 1_000_000


def test_shifting_by_nothing_changes_nothing():
    images = torch.rand(3, 1, 28, 28)
    assert torch.equal(shift(images, pixels=0.0, generator=generator()), images)


def test_shifts_keep_the_ink_and_stay_within_their_bound():
    images = torch.zeros(200, 1, 28, 28)
    images[:, 0, 14, 9] = 1.0
    moved = shift(images, pixels=2.0, generator=generator())[:, 0]
    assert torch.allclose(moved.sum(dim=(1, 2)), torch.ones(200), atol=1e-4)
    at = torch.arange(28.0)
    for amounts in ((moved.sum(2) * at).sum(1) - 14, (moved.sum(1) * at).sum(1) - 9):
        assert amounts.abs().max() <= 2.0 + 1e-4
        assert amounts.min() < -1.5
        assert amounts.max() > 1.5


def test_mixtures_lie_between_two_rows_and_take_their_targets_along():
    images = torch.eye(16).reshape(16, 1, 4, 4)
    targets = torch.eye(16)
    mixed, mixed_targets = mixup(images, targets, share=1.0, generator=generator())
    assert torch.allclose(mixed.reshape(16, 16), mixed_targets)
    assert torch.allclose(mixed_targets.sum(1), torch.ones(16))
    assert ((mixed_targets > 0).sum(1) <= 2).all()
    assert (mixed_targets.max(1).values < 0.999).any()


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 0), (0.3, 0.2, 0.4), (1.0, 0.95, 1.0)])
def test_about_the_wanted_share_is_mixed(share, low, high):
    targets = torch.eye(1000)
    _, mixed = mixup(torch.zeros(1000, 2), targets, share=share, generator=generator())
    assert low <= (mixed != targets).any(1).float().mean() <= high
