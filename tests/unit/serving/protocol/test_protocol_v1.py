"""The V1 predict protocol, in row and column format."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from serving.errors import BadRequest, ServingError
from serving.protocol import decode_predict_request, encode_predict_response
from serving.types import InferResponse, ModelMetadata, NamedTensor, TensorSpec


def model(*inputs: TensorSpec) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "p", inputs, (TensorSpec("y", "FP32", (-1, 1)),))


IMAGE = model(TensorSpec("image", "FP32", (-1, 1, 2, 2)))
SCALAR = model(TensorSpec("x", "INT64", (-1,)))
JPEG = model(TensorSpec("image_bytes", "BYTES", (-1,)))
PAIR = model(TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT64", (-1,)))
VARIABLE = model(TensorSpec("x", "FP32", (-1, -1, 2)))


def decoded(document: Any, metadata: ModelMetadata) -> dict[str, list[Any]]:
    request = decode_predict_request(json.dumps(document).encode(), metadata)
    return {tensor.name: tensor.data.tolist() for tensor in request.infer.inputs}


ACCEPTED = {
    "rows of one input": ({"instances": [[[[1, 2], [3, 4]]]]}, IMAGE, {"image": [[[[1, 2], [3, 4]]]]}),
    "flat rows": ({"instances": [[1, 2, 3, 4]] * 2}, IMAGE, {"image": [[[[1, 2], [3, 4]]]] * 2}),
    "rows of scalars": ({"instances": [1, 2]}, SCALAR, {"x": [1, 2]}),
    "named rows of one input": ({"instances": [{"x": 1}, {"x": 2}]}, SCALAR, {"x": [1, 2]}),
    "rows of two inputs": (
        {"instances": [{"a": [1, 2], "b": 3}, {"a": [4, 5], "b": 6}]},
        PAIR,
        {"a": [[1, 2], [4, 5]], "b": [3, 6]},
    ),
    "a column": ({"inputs": [[[[1, 2], [3, 4]]]]}, IMAGE, {"image": [[[[1, 2], [3, 4]]]]}),
    "named columns": (
        {"inputs": {"b": [3, 6], "a": [[1, 2], [4, 5]]}},
        PAIR,
        {"a": [[1, 2], [4, 5]], "b": [3, 6]},
    ),
    "base64 rows": ({"instances": [{"b64": "/9g="}, {"b64": ""}]}, JPEG, {"image_bytes": [b"\xff\xd8", b""]}),
    "named base64 rows": (
        {"instances": [{"image_bytes": {"b64": "/9g="}}]},
        JPEG,
        {"image_bytes": [b"\xff\xd8"]},
    ),
    "text rows": ({"instances": ["é"]}, JPEG, {"image_bytes": ["é".encode()]}),
    "base64 column": ({"inputs": {"image_bytes": [{"b64": "/9g="}]}}, JPEG, {"image_bytes": [b"\xff\xd8"]}),
    "variable dimension": (
        {"instances": [[[1, 2], [3, 4], [5, 6]]]},
        VARIABLE,
        {"x": [[[1, 2], [3, 4], [5, 6]]]},
    ),
    "extra keys": ({"instances": [1], "signature_name": "serving_default"}, SCALAR, {"x": [1]}),
    "no rows": ({"instances": []}, SCALAR, {"x": []}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_request_is_read(case: str) -> None:
    document, metadata, values = ACCEPTED[case]
    assert decoded(document, metadata) == values


def test_the_reply_follows_the_format_of_the_request() -> None:
    assert not decode_predict_request(b'{"instances": [1]}', SCALAR).columns
    assert decode_predict_request(b'{"inputs": [1]}', SCALAR).columns


def test_tokens_are_read() -> None:
    request = decode_predict_request(b'{"instances": [[NaN, -Infinity, 1, 2]]}', IMAGE)
    np.testing.assert_array_equal(
        request.infer.inputs[0].data.ravel(), np.array([np.nan, -np.inf, 1, 2], "f4")
    )


REFUSED = {
    "neither": ({}, SCALAR, 'exactly one of "instances" and "inputs" is needed, got neither'),
    "both": ({"instances": [1], "inputs": [1]}, SCALAR, "is needed, got both"),
    "instances of another type": (
        {"instances": 3},
        SCALAR,
        "instances must be a list with one entry per row, got 3",
    ),
    "column of another type": ({"inputs": 3}, SCALAR, "inputs: must be a list with one entry per row, got 3"),
    "bare rows for two inputs": (
        {"instances": [1]},
        PAIR,
        'instances: m takes several inputs, name them: "a", "b"',
    ),
    "bare column for two inputs": (
        {"inputs": [1]},
        PAIR,
        'inputs: m takes several inputs, name them: "a", "b"',
    ),
    "row without an input": (
        {"instances": [{"a": [1, 2], "b": 1}, {"a": [1, 2]}]},
        PAIR,
        'instances[1]: must name exactly the inputs "a", "b", got ["a"]',
    ),
    "row with an unknown input": (
        {"instances": [{"y": 1}]},
        SCALAR,
        'must name exactly the inputs "x", got ["y"]',
    ),
    "unnamed row among named": (
        {"instances": [{"x": 1}, 2]},
        SCALAR,
        "instances[1] must be an object keyed by input",
    ),
    "column without an input": ({"inputs": {"a": [[1, 2]]}}, PAIR, "inputs: must name exactly the inputs"),
    "wrong row shape": (
        {"instances": [[1, 2, 3]]},
        IMAGE,
        "instances: data has 3 values, shape [1, 1, 2, 2] needs 4",
    ),
    "ragged rows": ({"instances": [[1, 2], [3]]}, model(TensorSpec("x", "FP32", (-1, 2))), "data is ragged"),
    "wrong rank": ({"instances": [[1, 2]]}, VARIABLE, "expected shape [-1, -1, 2], got nesting [1, 2]"),
    "string in numbers": ({"instances": ["a"]}, SCALAR, 'INT64 data must be integers, element 0 is "a"'),
    "base64 for numbers": ({"instances": [{"b64": "AA=="}]}, SCALAR, "INT64 data must be integers"),
    "bad base64": ({"instances": [{"b64": "@"}]}, JPEG, 'b64 is not valid base64: "@"'),
    "base64 of another type": (
        {"instances": [{"b64": 3}]},
        JPEG,
        'BYTES data must be strings or {"b64": string}',
    ),
    "number for bytes": ({"instances": [3]}, JPEG, 'BYTES data must be strings or {"b64": string}, got 3'),
    "FP16": ({"instances": [1]}, model(TensorSpec("x", "FP16", (-1,))), "FP16 has no JSON form"),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_a_bad_request_is_refused(rule: str) -> None:
    document, metadata, message = REFUSED[rule]
    with pytest.raises(BadRequest, match=re.escape(message)):
        decoded(document, metadata)


def rendered(*tensors: NamedTensor, columns: bool) -> Any:
    return json.loads(encode_predict_response(InferResponse("m", tensors), columns=columns))


Y = NamedTensor("y", "FP32", np.array([[0.5, 1], [2, 3]], dtype="f4"))
N = NamedTensor("n", "INT64", np.array([7, 8]))


def test_one_output_is_given_bare() -> None:
    assert rendered(Y, columns=False) == {"predictions": [[0.5, 1], [2, 3]]}
    assert rendered(Y, columns=True) == {"outputs": [[0.5, 1], [2, 3]]}


def test_several_outputs_are_named() -> None:
    assert rendered(Y, N, columns=False) == {"predictions": [{"y": [0.5, 1], "n": 7}, {"y": [2, 3], "n": 8}]}
    assert rendered(Y, N, columns=True) == {"outputs": {"y": [[0.5, 1], [2, 3]], "n": [7, 8]}}


def test_outputs_named_bytes_are_base64_and_others_text() -> None:
    values = np.array(["é".encode(), b"b"], dtype=object)
    text, binary = NamedTensor("t", "BYTES", values), NamedTensor("t_bytes", "BYTES", values)
    assert rendered(text, columns=False) == {"predictions": ["é", "b"]}
    assert rendered(binary, columns=False) == {"predictions": [{"b64": "w6k="}, {"b64": "Yg=="}]}


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(ServingError, match='outputs "y": holds NaN or Infinity'):
        rendered(NamedTensor("y", "FP32", np.array([np.nan], "f4")), columns=False)
    with pytest.raises(BadRequest, match='outputs "y": FP16 has no JSON form'):
        rendered(NamedTensor("y", "FP16", np.array([1], "f2")), columns=True)
