"""Training: what is drawn, what is learnt, and going on after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from models.augment import crop, cutout, flip, mixup, shift
from models.builtin import BUILTINS, LENET5
from models.datasets import load_slice
from models.errors import TrainingError
from models.images import Images
from models.recipe import Recipe
from models.training import EpochLog, train
from unstraggle import app

RECIPE = replace(LENET5.recipe, epochs=2, batch_rows=32, mixup_share=0.5)


LEAST_ACCURACY = {"linear-mnist": 0.92, "lenet5-mnist": 0.99, "repvgg-cifar10": 0.88, "vit-cifar10": 0.75}


class Interruption(Exception):
    """Stands for a power cut."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> Images:
    shipped = load_slice("mnist")
    pixels = np.rint(shipped.images[:500] * 255).astype(np.uint8)
    return Images(pixels, shipped.labels[:500].astype(np.uint8))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, digits):
    some, test = digits[0:100], digits[100:150]
    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"

    def pull_the_plug(log: EpochLog) -> None:
        raise Interruption

    train(LENET5, RECIPE, some, test, out=whole)
    with pytest.raises(Interruption):
        train(LENET5, RECIPE, some, test, out=broken, on_epoch=pull_the_plug)
    assert not broken.exists()
    resumed = []
    logs = train(LENET5, RECIPE, some, test, out=broken, on_epoch=resumed.append)
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
    some, test = digits[0:64], digits[64:80]
    weights = []
    for number, seed in enumerate((0, 0, 1)):
        out = tmp_path / f"{number}.safetensors"
        train(LENET5, replace(RECIPE, epochs=1, seed=seed), some, test, out=out)
        weights.append(out.read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_the_global_generator_is_left_alone(tmp_path, digits):
    before = torch.random.get_rng_state()
    train(LENET5, replace(RECIPE, epochs=1), digits, digits, out=tmp_path / "x.safetensors")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path, digits):
    out = tmp_path / "net.safetensors"

    def pull_the_plug(log: EpochLog) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        train(LENET5, RECIPE, digits, digits, out=out, on_epoch=pull_the_plug)
    with pytest.raises(TrainingError, match=r"net.checkpoint must come from .*Delete it"):
        train(LENET5, replace(RECIPE, seed=9), digits, digits, out=out)


def test_too_few_rows_are_refused(tmp_path, digits):
    with pytest.raises(TrainingError, match="at least batch_rows, 32, training rows; got 10"):
        train(LENET5, RECIPE, digits[0:10], digits, out=tmp_path / "x.safetensors")


def test_training_learns(tmp_path, digits):
    recipe = replace(LENET5.recipe, epochs=12, batch_rows=25, mixup_share=0.0, shift_pixels=0.0)
    some, test = digits[0:400], digits[400:500]
    logs = train(LENET5, recipe, some, test, out=tmp_path / "x.safetensors")
    assert logs[-1].loss < 0.3 * logs[0].loss
    assert logs[-1].test_accuracy > 0.7
    written = json.loads((tmp_path / "x.log.json").read_text())
    assert written["test_accuracy"] == logs[-1].test_accuracy
    assert written["recipe"]["epochs"] == len(written["epochs"]) == 12


@pytest.mark.parametrize("model", [model for model in BUILTINS.values() if model.weights.exists()])
def test_the_shipped_log_belongs_to_the_shipped_weights(model):
    log = json.loads(model.weights.with_suffix(".log.json").read_text())
    state = safetensors.torch.load_file(model.weights)
    network = model.make()
    assert set(state) == set(network.state_dict())
    assert log["parameters"] == sum(parameter.numel() for parameter in network.parameters())
    assert log["test_accuracy"] >= LEAST_ACCURACY[model.name]
    assert Recipe(**log["recipe"]) == model.recipe
    assert len(log["epochs"]) == model.recipe.epochs
    assert model.weights.stat().st_size < 30_000_000


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


def test_crops_move_by_whole_pixels_within_their_bound():
    images = torch.arange(32.0 * 32).reshape(1, 1, 32, 32).expand(300, 3, 32, 32)
    cut = crop(images, pixels=4, generator=generator())
    assert cut.shape == images.shape
    centre = cut[:, 0, 16, 16]
    down, right = (centre // 32 - 16).int(), (centre % 32 - 16).int()
    assert set(down.tolist()) == set(right.tolist()) == set(range(-4, 5))
    assert torch.equal(cut[:, 0], cut[:, 2])


def test_flips_mirror_about_half_of_the_rows():
    images = torch.rand(400, 1, 4, 4)
    flipped = flip(images, generator=generator())
    mirrored = (flipped == images.flip(3)).all(dim=(1, 2, 3))
    assert (mirrored | (flipped == images).all(dim=(1, 2, 3))).all()
    assert 150 < mirrored.sum() < 250


def test_cutouts_grey_a_square():
    images = torch.zeros(200, 3, 32, 32)
    grey = cutout(images, pixels=8, generator=generator()) == 0.5
    assert grey.sum(dim=(1, 2, 3)).max() == 3 * 64
    assert (grey.any(dim=(1, 3)).sum(1) <= 8).all()
    assert torch.equal(grey[:, 0], grey[:, 2])


def test_merging_branches_keeps_the_function():
    network = BUILTINS["repvgg-cifar10"].make_trainable().train()
    images = torch.rand(8, 3, 32, 32, generator=generator())
    network(images)  # moves the running statistics away from their initial values
    merged = BUILTINS["repvgg-cifar10"].deploy(network)
    assert torch.allclose(merged(images), network.eval()(images), atol=1e-4)
    served = BUILTINS["repvgg-cifar10"].make()
    served.load_state_dict(merged.state_dict())
    assert torch.allclose(served.eval()(images), merged(images))


def test_weights_go_to_a_safetensors_file_alone(tmp_path):
    outcome = CliRunner().invoke(app, ["train", "lenet5-mnist", "--out", str(tmp_path / "w.checkpoint")])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("unstraggle train: --out must end in .safetensors, got ")
