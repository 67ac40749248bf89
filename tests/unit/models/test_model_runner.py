"""Running the shipped model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from models.datasets import SHIPPED, load_slice
from models.errors import BadRows
from models.runner import ModelRunner


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner("builtin:lenet5-mnist", threads=1)


@pytest.fixture(scope="module")
def digits():
    return load_slice("mnist")


def test_the_shipped_model_is_right_on_ninety_nine_of_a_hundred_test_digits():
    log = json.loads((SHIPPED / "lenet5-mnist.log.json").read_text())
    assert log["test_accuracy"] >= 0.99


def test_the_shipped_weights_are_those_of_the_log(runner, digits):
    # The slice is the first fifth of the test set, and harder than the rest: the log's .994 is .992 on it.
    answers = runner.predict(digits.images)
    assert (answers.argmax(axis=1) == digits.labels).mean() >= 0.99


def test_the_contract_of_the_shipped_model(runner):
    assert (runner.spec.input.name, runner.spec.input.shape) == ("input", (-1, 1, 28, 28))
    assert (runner.spec.output.name, runner.spec.output.shape) == ("output", (-1, 10))
    assert runner.spec.classes == tuple("0123456789")


def test_the_same_batch_gives_the_same_bits(runner, digits):
    rows = digits.images[:24]
    again = ModelRunner("builtin:lenet5-mnist", threads=1)
    assert np.array_equal(runner.predict(rows), runner.predict(rows))
    assert np.array_equal(runner.predict(rows), again.predict(rows))


def test_batching_moves_only_the_last_bits(runner, digits):
    rows = digits.images[:20]
    together = runner.predict(rows)
    apart = np.concatenate([runner.predict(row[np.newaxis]) for row in rows])
    np.testing.assert_allclose(together, apart, atol=1e-5 * np.abs(together).max())


def test_outputs_are_logits(runner, digits):
    answers = runner.predict(digits.images[:50])
    assert (answers < 0).any()
    assert (answers > 1).any()


def test_rows_are_not_clipped(runner, digits):
    rows = digits.images[:4]
    outside = 1.5 * rows - 0.25
    assert not np.allclose(runner.predict(outside), runner.predict(outside.clip(0, 1)), atol=1e-2)


def test_read_only_and_strided_rows_are_taken_and_left_alone(runner, digits):
    rows = digits.images[:8].copy()
    expected = runner.predict(rows[::2].copy())
    rows.setflags(write=False)
    before = rows.copy()
    assert np.array_equal(runner.predict(rows[::2]), expected)
    assert np.array_equal(rows, before)


def test_no_rows_give_no_answers(runner):
    assert runner.predict(np.empty((0, 1, 28, 28), np.float32)).shape == (0, 10)


@pytest.mark.parametrize("shape", [(2, 28, 28), (2, 3, 28, 28), (2, 1, 28, 27), (2, 784), ()])
def test_wrong_shapes_are_explained(runner, shape):
    with pytest.raises(BadRows, match=r"'input' must have shape \[-1, 1, 28, 28\]; got"):
        runner.predict(np.zeros(shape, np.float32))


def test_wrong_types_are_explained(runner):
    with pytest.raises(BadRows, match="must be float32; got float64"):
        runner.predict(np.zeros((1, 1, 28, 28)))


def test_an_answer_with_the_wrong_number_of_rows_is_refused(tmp_path, monkeypatch):
    (tmp_path / "fickle_model.py").write_text(
        "import torch\n"
        "class Fickle(torch.nn.Module):\n"
        "    input_shape = (3,)\n"
        "    def forward(self, rows):\n"
        "        return rows[:2]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    fickle = ModelRunner("python:fickle_model:Fickle")
    with pytest.raises(BadRows, match=r"'output' must have shape \[5, 3\]; got \[2, 3\]"):
        fickle.predict(np.zeros((5, 3), np.float32))


def test_normalisation_is_inside_and_commutes_with_weighted_means(digits):
    import torch

    from models.normalise import Normalise

    normalise = Normalise([0.1307], [0.3081])
    weights = torch.tensor([0.7, -0.4, 0.7])
    images = torch.from_numpy(digits.images[:3])
    mixed = torch.tensordot(weights, images, dims=1)
    assert torch.allclose(
        normalise(mixed[None])[0], torch.tensordot(weights, normalise(images), dims=1), atol=1e-5
    )
    assert {name for name, _ in normalise.named_buffers()} == {"mean", "std"}
    assert list(normalise.parameters()) == []
