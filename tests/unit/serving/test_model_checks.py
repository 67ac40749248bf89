"""Models that would be answered for wrongly, or not at all, are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from coding.lagrange import LagrangeParams
from serving.errors import ConfigError
from serving.model_checks import random_rows, require_finite, require_polynomial
from serving.types import InferRequest, InferResponse, ModelMetadata, NamedTensor, TensorSpec

RANDOM = np.random.default_rng(0)
WEIGHTS, BIAS = RANDOM.normal(size=(6, 4)).astype(np.float32), RANDOM.normal(size=4).astype(np.float32)


class Replica:
    """Answers by a function of rows."""

    def __init__(self, model: Callable[[np.ndarray], np.ndarray]) -> None:
        self._model = model

    async def infer(self, request: InferRequest) -> InferResponse:
        (rows,) = request.inputs
        answers = self._model(rows.data.reshape(len(rows.data), -1)).astype(np.float32)
        return InferResponse("m", (NamedTensor("output", "FP32", answers),))

    async def metadata(self) -> ModelMetadata:
        return metadata("FP32")

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        pass


def metadata(datatype: str) -> ModelMetadata:
    return ModelMetadata(
        "m",
        ("1",),
        "pytorch",
        (TensorSpec("input", datatype, (-1, 2, 3)),),
        (TensorSpec("output", "FP32", (-1, 4)),),
    )


def affine(rows: np.ndarray) -> np.ndarray:
    return rows @ WEIGHTS + BIAS


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("params", "model"),
    [
        (LagrangeParams(), affine),
        (LagrangeParams(systematic=False, output_domain="as_is"), affine),
        (LagrangeParams(k=4, n=9, degree=2, output_domain="as_is"), lambda rows: affine(rows) ** 2),
        (LagrangeParams(k=3, n=5, output_domain="probabilities"), lambda rows: softmax(affine(0.1 * rows))),
        (LagrangeParams(k=1, n=2), lambda rows: np.tanh(affine(rows))),
    ],
)
async def test_polynomials_of_the_stated_degree_pass(params, model) -> None:
    await require_polynomial(params, metadata("FP32"), Replica(model))


@pytest.mark.parametrize(
    ("params", "model"),
    [
        (LagrangeParams(), lambda rows: np.maximum(affine(rows), 0)),
        (LagrangeParams(), lambda rows: affine(np.tanh(rows))),
        (LagrangeParams(k=2, n=3), lambda rows: affine(rows) ** 2),
        (LagrangeParams(output_domain="as_is"), lambda rows: softmax(affine(rows))),
        (LagrangeParams(), lambda rows: np.full((len(rows), 4), np.nan)),
    ],
)
async def test_others_are_refused_with_the_reason(params, model) -> None:
    with pytest.raises(
        ConfigError, match=r"lagrange needs a model that is a polynomial of degree 1 .* 'm' .* off by"
    ):
        await require_polynomial(params, metadata("FP32"), Replica(model))


async def test_half_precision_is_no_reason_to_refuse() -> None:
    await require_polynomial(LagrangeParams(k=4, n=5), metadata("FP16"), Replica(affine))


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "INT64"])
def test_random_rows_fit_the_input_and_are_the_same_each_time(datatype) -> None:
    one, other = (random_rows(metadata(datatype), 5, "uniform") for _ in range(2))
    assert one.shape == (5, 2, 3)
    np.testing.assert_array_equal(one, other)
    assert one.any() == (datatype != "INT64")


async def test_a_model_that_answers_no_numbers_is_refused() -> None:
    await require_finite(metadata("FP32"), Replica(affine))
    # Such as one that standardises each row: zeros would tell nothing of it.
    await require_finite(
        metadata("FP32"), Replica(lambda rows: affine(rows / rows.std(axis=1, keepdims=True)))
    )
    with pytest.raises(ConfigError, match="'m' must answer finite numbers; "):
        await require_finite(metadata("FP32"), Replica(lambda rows: affine(rows) * np.nan))
