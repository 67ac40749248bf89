"""What clients of other servers send and expect back, byte for byte where it matters."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import orjson
import pytest

from serving.errors import BadReplicaAnswer, BadRequest, ServingError
from serving.protocol import (
    HEADER_LENGTH,
    decode_infer_request,
    decode_infer_response,
    encode_infer_request,
    encode_infer_response,
)
from serving.types import (
    InferRequest,
    InferResponse,
    ModelMetadata,
    NamedTensor,
    OutputRequest,
    TensorSpec,
)


def decoded_data(shape: list[int], data: Any, datatype: str = "FP32") -> np.ndarray:
    document = {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]}
    return decode_infer_request(json.dumps(document).encode()).inputs[0].data


@pytest.mark.parametrize(
    "data",
    [[1, 2, 3, 4, 5, 6], [[1, 2, 3, 4, 5, 6]], [[[1, 2], [3, 4], [5, 6]]]],
    ids=["flat", "flat rows", "nested"],
)
def test_data_may_be_flat_or_nested(data: Any) -> None:
    assert decoded_data([1, 3, 2], data).tolist() == [[[1, 2], [3, 4], [5, 6]]]


@pytest.mark.parametrize(("shape", "data"), [([0], []), ([0, 3], []), ([2, 0], [[], []]), ([2, 0], [])])
def test_a_tensor_may_have_no_elements(shape: list[int], data: Any) -> None:
    assert decoded_data(shape, data).shape == tuple(shape)


def test_json_may_hold_the_tokens_that_clients_write() -> None:
    values = decoded_data([1, 3], [float("nan"), float("inf"), float("-inf")])
    np.testing.assert_array_equal(values, np.array([[np.nan, np.inf, -np.inf]], dtype="f4"))


@pytest.mark.parametrize(
    ("datatype", "low", "high"),
    [("UINT64", 0, 2**64 - 1), ("INT64", -(2**63), 2**63 - 1), ("INT8", -128, 127)],
)
def test_integers_are_exact_to_their_limits(datatype: str, low: int, high: int) -> None:
    assert decoded_data([2], [low, high], datatype).tolist() == [low, high]


def test_the_largest_fp32_is_in_range() -> None:
    assert decoded_data([1], [3.4028234663852886e38]).item() == np.finfo("f4").max


def test_extra_keys_and_nulls_are_tolerated() -> None:
    document = {
        "model_name": "mymodel",
        "id": None,
        "parameters": {"content_type": None, "priority": 3},
        "outputs": None,
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1], "data": [1], "extra": {}, "parameters": {"a": []}}
        ],
    }
    request = decode_infer_request(json.dumps(document).encode())
    assert (request.id, request.outputs, dict(request.parameters)) == (None, (), {"priority": 3})


def test_timeout_is_left_in_the_parameters_and_binary_data_output_is_not() -> None:
    document = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}],
        "parameters": {"timeout": 250_000, "binary_data_output": True},
    }
    request = decode_infer_request(json.dumps(document).encode())
    assert dict(request.parameters) == {"timeout": 250_000}
    assert request.binary_output


def test_a_mixed_request_in_wire_order() -> None:
    document = {
        "inputs": [
            {"name": "a", "shape": [2, 2], "datatype": "UINT32", "parameters": {"binary_data_size": 16}},
            {"name": "j", "shape": [1], "datatype": "INT8", "data": [-5]},
            {"name": "b", "shape": [3], "datatype": "BOOL", "parameters": {"binary_data_size": 3}},
            {"name": "s", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 11}},
        ],
        "outputs": [{"name": "out", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(document).encode()
    tail = struct.pack("<4I", 1, 2, 3, 4) + b"\x01\x00\x01" + b"\x03\x00\x00\x00abc\x00\x00\x00\x00"
    request = decode_infer_request(text + tail, len(text))
    values = {tensor.name: tensor.data.tolist() for tensor in request.inputs}
    assert values == {"a": [[1, 2], [3, 4]], "j": [-5], "b": [True, False, True], "s": [b"abc", b""]}
    assert request.outputs == (OutputRequest("out", binary=True),)


def test_bf16_is_widened_and_rounded_to_nearest_even() -> None:
    raw = struct.pack("<4H", 0x3F80, 0xC040, 0x7F80, 0x0001)
    text = json.dumps(
        {"inputs": [{"name": "x", "datatype": "BF16", "shape": [4], "parameters": {"binary_data_size": 8}}]}
    ).encode()
    data = decode_infer_request(text + raw, len(text)).inputs[0].data
    assert data.dtype == np.float32
    assert data.tolist() == [1.0, -3.0, float("inf"), 2.0**-133]
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800001], dtype=np.uint32)
    sent = encode_infer_request(InferRequest((NamedTensor("x", "BF16", bits.view("f4")),))).body[-10:]
    assert struct.unpack("<5H", sent) == (0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7FC0)


def reply(*tensors: NamedTensor, **fields: Any) -> InferResponse:
    return InferResponse("m", tensors, **fields)


def test_a_json_reply_is_what_v2_says() -> None:
    values = np.array([[0.1, 2.0], [3.0, 4.0]], dtype="f4")
    response = reply(
        NamedTensor("y", "FP32", values),
        NamedTensor("s", "BYTES", np.array([["é".encode()], [b"b"]], dtype=object)),
        model_version="1",
        parameters={"obtained": "decoded", "degraded": False},
    )
    encoded = encode_infer_response(response, InferRequest(inputs=(), id="42"))
    assert encoded.headers == {"Content-Type": "application/json"}
    assert json.loads(encoded.body) == {
        "model_name": "m",
        "model_version": "1",
        "id": "42",
        "parameters": {"obtained": "decoded", "degraded": False},
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [0.1, 2.0, 3.0, 4.0]},
            {"name": "s", "datatype": "BYTES", "shape": [2, 1], "data": ["é", "b"]},
        ],
    }


def test_a_reply_has_no_nulls() -> None:
    encoded = encode_infer_response(
        reply(NamedTensor("y", "BOOL", np.array([True]))), InferRequest(inputs=())
    )
    assert json.loads(encoded.body).keys() == {"model_name", "outputs"}


def test_a_binary_reply_is_what_v2_says() -> None:
    values = np.arange(3, dtype="<i2")
    response = reply(
        NamedTensor("y", "INT16", values), NamedTensor("s", "BYTES", np.array([b"ab"], dtype=object))
    )
    encoded = encode_infer_response(response, InferRequest(inputs=(), binary_output=True))
    length = int(encoded.headers[HEADER_LENGTH])
    assert encoded.headers["Content-Type"] == "application/octet-stream"
    assert encoded.body[length:] == values.tobytes() + b"\x02\x00\x00\x00ab"
    assert json.loads(encoded.body[:length])["outputs"] == [
        {"name": "y", "datatype": "INT16", "shape": [3], "parameters": {"binary_data_size": 6}},
        {"name": "s", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
    ]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_json_reply_refuses_what_json_cannot_say(value: float) -> None:
    response = reply(NamedTensor("y", "FP32", np.array([[0.0, value]], dtype="f4")))
    with pytest.raises(
        ServingError, match=r'outputs\[0\] "y": holds NaN or Infinity.*binary data can'
    ) as caught:
        encode_infer_response(response, InferRequest(inputs=()))
    assert caught.value.status == 500
    encoded = encode_infer_response(response, InferRequest(inputs=(), binary_output=True))
    data = decode_infer_response(encoded.body, int(encoded.headers[HEADER_LENGTH])).outputs[0].data
    np.testing.assert_array_equal(data, response.outputs[0].data)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (NamedTensor("y", "FP16", np.zeros((1, 1), "f2")), "FP16 has no JSON form; ask for binary data"),
        (NamedTensor("y", "BYTES", np.array([b"\xff"], dtype=object)), "not UTF-8; ask for binary data"),
    ],
)
def test_a_client_that_asks_for_json_where_there_is_none_is_told(tensor: NamedTensor, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        encode_infer_response(reply(tensor), InferRequest(inputs=()))


def test_a_reply_without_a_requested_output_is_our_failure() -> None:
    request = InferRequest(inputs=(), outputs=(OutputRequest("z"),))
    with pytest.raises(ServingError, match='the model gave no output "z"'):
        encode_infer_response(reply(NamedTensor("y", "FP32", np.zeros((1, 1), "f4"))), request)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"oops",
        b"[]",
        b'{"outputs": 3}',
        b'{"outputs": [], "model_name": 3}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2]}]}',
        b'{"outputs": [{"name": "y", "datatype": "INT8", "shape": [2], "parameters": {"binary_data_size": 2}}]}',
    ],
)
def test_a_malformed_reply_is_a_bad_replica_answer(body: bytes) -> None:
    with pytest.raises(BadReplicaAnswer, match="the reply is malformed") as caught:
        decode_infer_response(body)
    assert isinstance(caught.value.__cause__, BadRequest)


def model(*inputs: TensorSpec) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "p", inputs, ())


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((-1, 1, 2, 2), (1, 1, 2, 2)), ((-1, -1), (1, 4)), ((-1, 2, -1), (1, 2, 2))],
)
def test_a_body_without_json_is_one_row(shape: tuple[int, ...], rows: tuple[int, ...]) -> None:
    values = np.arange(4, dtype="<f4")
    request = decode_infer_request(values.tobytes(), 0, model(TensorSpec("x", "FP32", shape)))
    assert request.inputs[0].data.shape == rows
    assert request.inputs[0].data.ravel().tolist() == values.tolist()
    assert request.binary_output


def test_a_body_without_json_may_be_one_bytes_element() -> None:
    request = decode_infer_request(b"\xff\xd8jpeg", 0, model(TensorSpec("x", "BYTES", (-1, 1))))
    assert request.inputs[0].data.tolist() == [[b"\xff\xd8jpeg"]]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "needs a model of exactly 1 input, this one has 0"),
        (model(TensorSpec("a", "FP32", (-1, 1)), TensorSpec("b", "FP32", (-1, 1))), "this one has 2"),
        (model(TensorSpec("a", "FP32", (-1, -1, -1))), "at most 1 variable dimension per row"),
        (model(TensorSpec("a", "FP32", (-1, 3))), "has 16 bytes, shape \\[1, 3\\] of FP32 needs 12"),
        (model(TensorSpec("a", "FP32", (-1, 3, -1))), "has 16 bytes, shape \\[1, 3, 1\\] of FP32 needs 12"),
        (model(TensorSpec("a", "FP32", (-1, 0, -1))), "has 16 bytes, shape \\[1, 0, 4\\] of FP32 needs 0"),
        (model(TensorSpec("a", "BYTES", (-1, 2))), "carries 1 element, shape is \\[-1, 2\\]"),
    ],
)
def test_a_body_without_json_must_fit_the_model(metadata: ModelMetadata | None, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        decode_infer_request(bytes(16), 0, metadata)


def test_a_request_to_a_replica_is_readable_by_any_v2_server() -> None:
    request = InferRequest((NamedTensor("x", "FP32", np.zeros((1, 2), "f4")),), outputs=(OutputRequest("y"),))
    encoded = encode_infer_request(request)
    length = int(encoded.headers[HEADER_LENGTH])
    assert length % 8 == 0
    assert orjson.loads(encoded.body[:length]) == {
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "y"}],
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}],
    }
