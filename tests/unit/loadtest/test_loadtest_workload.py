import numpy as np
import pytest

from loadtest.errors import TargetError
from loadtest.workload import check_input, draw_rows, prepare_requests
from models.datasets import EvaluationSlice
from serving.protocol.codec import decode_infer_request
from serving.protocol.tensors import HEADER_LENGTH
from serving.types import TensorSpec


@pytest.fixture
def digits():
    generator = np.random.default_rng(0)
    images = generator.random((30, 1, 28, 28), dtype=np.float32)
    return EvaluationSlice("made up", images, generator.integers(0, 10, 30))


def test_every_row_is_used_equally_often():
    rows = draw_rows(30, requests=15, rows_per_request=8, seed=0)
    assert rows.shape == (15, 8)
    _, uses = np.unique(rows, return_counts=True)
    assert set(uses) == {4}


def test_an_unfinished_deck_uses_no_row_twice_more_than_another():
    _, uses = np.unique(draw_rows(30, requests=5, rows_per_request=8, seed=0), return_counts=True)
    assert set(uses) == {1, 2}


def test_the_seed_decides_the_rows():
    first, again, other = (draw_rows(30, requests=5, rows_per_request=8, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_prepared_request_carries_its_rows_and_their_labels(digits):
    chosen = np.array([[4, 0, 29], [7, 7, 1]])
    requests = prepare_requests("image", digits, chosen)
    for request, rows in zip(requests, chosen, strict=True):
        parsed = decode_infer_request(request.body, int(request.headers[HEADER_LENGTH]))
        (tensor,) = parsed.inputs
        assert (tensor.name, tensor.datatype) == ("image", "FP32")
        np.testing.assert_array_equal(tensor.data, digits.images[rows])
        np.testing.assert_array_equal(request.labels, digits.labels[rows])
        assert parsed.binary_output
        assert request.rows == 3


@pytest.mark.parametrize("shape", [(-1, 1, 28, 28), (-1, -1, -1, -1), (64, 1, 28, 28)])
def test_a_fitting_input_passes(digits, shape):
    check_input(TensorSpec("image", "FP32", shape), digits.images)


@pytest.mark.parametrize(
    ("datatype", "shape"),
    [("FP16", (-1, 1, 28, 28)), ("FP32", (-1, 28, 28)), ("FP32", (-1, 3, 28, 28)), ("FP32", (-1, 784))],
)
def test_a_misfit_names_input_rule_and_value(digits, datatype, shape):
    with pytest.raises(TargetError) as caught:
        check_input(TensorSpec("pixels", datatype, shape), digits.images)
    for part in ("pixels", "FP32", "[1, 28, 28]", datatype, str(list(shape))):
        assert part in str(caught.value)
