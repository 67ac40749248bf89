"""A request against the model that it addresses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from serving.errors import BadRequest
from serving.protocol import check_against
from serving.types import InferRequest, ModelMetadata, NamedTensor, OutputRequest, TensorSpec

ONE = ModelMetadata(
    "m",
    ("1",),
    "p",
    (TensorSpec("input", "FP32", (-1, 1, 28, 28)),),
    (TensorSpec("output", "FP32", (-1, 10)),),
)
TWO = ModelMetadata(
    "pair",
    ("1",),
    "p",
    (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT64", (-1,))),
    (TensorSpec("y", "FP32", (-1, 1)), TensorSpec("z", "FP32", (-1, 1))),
)


def tensor(name: str, shape: tuple[int, ...], datatype: str = "FP32", dtype: Any = "f4") -> NamedTensor:
    return NamedTensor(name, datatype, np.zeros(shape, dtype))


def pair(rows_a: int, rows_b: int) -> InferRequest:
    return InferRequest((tensor("a", (rows_a, 2)), tensor("b", (rows_b,), "INT64", "i8")))


@pytest.mark.parametrize("rows", [1, 8, 20])
def test_any_number_of_rows_is_fine(rows: int) -> None:
    check_against(
        ONE, InferRequest((tensor("input", (rows, 1, 28, 28)),), outputs=(OutputRequest("output"),))
    )


def test_inputs_may_come_in_any_order() -> None:
    check_against(TWO, pair(3, 3))
    check_against(TWO, InferRequest(pair(3, 3).inputs[::-1]))


REFUSED = {
    "unknown input": (
        ONE,
        InferRequest((tensor("image", (1, 1, 28, 28)),)),
        'inputs[0] "image": not an input of m, which takes "input"',
    ),
    "extra input": (
        ONE,
        InferRequest((tensor("input", (1, 1, 28, 28)), tensor("more", (1,)))),
        'inputs[1] "more": not an input of m, which takes "input"',
    ),
    "missing input": (TWO, InferRequest(pair(1, 1).inputs[:1]), 'lacks "b": pair takes 2 inputs, got 1'),
    "wrong datatype": (
        ONE,
        InferRequest((tensor("input", (1, 1, 28, 28), "FP64", "f8"),)),
        'inputs[0] "input": expected datatype FP32, got FP64',
    ),
    "wrong shape": (
        ONE,
        InferRequest((tensor("input", (2, 3, 28, 28)),)),
        'inputs[0] "input": expected shape [-1, 1, 28, 28], got [2, 3, 28, 28]',
    ),
    "wrong rank": (
        ONE,
        InferRequest((tensor("input", (28, 28)),)),
        "expected shape [-1, 1, 28, 28], got [28, 28]",
    ),
    "no rows": (
        ONE,
        InferRequest((tensor("input", (0, 1, 28, 28)),)),
        'inputs[0] "input": has 0 rows, at least 1 is needed',
    ),
    "different rows": (TWO, pair(3, 2), 'inputs[1] "b": has 2 rows, but "a" has 3'),
    "no rows in one": (TWO, pair(3, 0), 'inputs[1] "b": has 0 rows, at least 1 is needed'),
    "unknown output": (
        TWO,
        InferRequest(pair(1, 1).inputs, outputs=(OutputRequest("y"), OutputRequest("w"))),
        'outputs[1] "w": not an output of pair, which gives "y", "z"',
    ),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_a_request_that_does_not_fit_is_refused(rule: str) -> None:
    metadata, request, message = REFUSED[rule]
    with pytest.raises(BadRequest, match=re.escape(message)):
        check_against(metadata, request)
