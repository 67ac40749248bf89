"""Every rule that a request body can break, and the words in which it is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from serving.errors import BadRequest
from serving.protocol import decode_infer_request, parse_header_length

MISSING = object()


def tensor(**changes: Any) -> dict[str, Any]:
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0], **changes}
    return {key: value for key, value in entry.items() if value is not MISSING}


def binary(size: Any, **changes: Any) -> dict[str, Any]:
    return tensor(data=MISSING, parameters={"binary_data_size": size}, **changes)


def refusal(document: Any, tail: bytes | None = None) -> str:
    text = json.dumps(document).encode()
    with pytest.raises(BadRequest) as caught:
        decode_infer_request(text + (tail or b""), None if tail is None else len(text))
    return str(caught.value)


TENSOR_RULES = {
    "no name": (tensor(name=MISSING), 'inputs[0]: "name" must be a non-empty string, got null'),
    "empty name": (tensor(name=""), 'inputs[0]: "name" must be a non-empty string'),
    "name of another type": (tensor(name=3), 'inputs[0]: "name" must be a non-empty string, got 3'),
    "not an object": (7, "inputs[0] must be an object, got 7"),
    "no datatype": (tensor(datatype=MISSING), 'inputs[0] "x": unknown datatype null'),
    "unknown datatype": (tensor(datatype="FP31"), 'unknown datatype "FP31"; known: BOOL, UINT8'),
    "unhashable datatype": (tensor(datatype=["FP32"]), "unknown datatype"),
    "no shape": (tensor(shape=MISSING), '"shape" must be a list of integers, got null'),
    "shape of another type": (tensor(shape="2"), '"shape" must be a list of integers, got "2"'),
    "negative dimension": (tensor(shape=[-1, 2]), "shape [-1, 2] must hold non-negative integers"),
    "fractional dimension": (tensor(shape=[1.5]), "shape [1.5] must hold non-negative integers"),
    "boolean dimension": (tensor(shape=[True, 2]), "shape [true, 2] must hold non-negative integers"),
    "too many dimensions": (tensor(shape=[1] * 33), "shape has 33 dimensions, at most 32"),
    "huge shape": (tensor(shape=[2**62, 2**62, 2]), "is larger than any body can be"),
    "huge shape without elements": (tensor(shape=[0, 2**62, 2**62]), "is larger than any body can be"),
    "too few values": (
        tensor(name="input", shape=[1, 1, 28, 28], data=[0.0] * 783),
        'inputs[0] "input": data has 783 values, shape [1, 1, 28, 28] needs 784',
    ),
    "too many values": (tensor(data=[1, 2, 3]), "data has 3 values, shape [1, 2] needs 2"),
    "values for an empty shape": (tensor(shape=[0, 2]), "data has 2 values, shape [0, 2] needs 0"),
    "ragged": (
        tensor(shape=[2, 2], data=[[1], [2, 3, 4]]),
        "data is ragged: lists of 1 and 3 values at level 1",
    ),
    "ragged above": (
        tensor(shape=[2, 2, 1], data=[[[1]], [[2], [3], [4]]]),
        "ragged: lists of 1 and 3 lists",
    ),
    "other nesting": (
        tensor(shape=[2, 3], data=[[1, 2], [3, 4], [5, 6]]),
        "data is nested otherwise than shape [2, 3] says: lists of 3 lists at level 0",
    ),
    "nested too deeply": (tensor(shape=[2], data=[[1, 2]]), "data is nested otherwise than shape [2] says"),
    "value among lists": (tensor(shape=[2, 1], data=[[1], 2]), "data mixes lists and values at level 1"),
    "list among values": (tensor(shape=[2], data=[1, [2]]), "FP32 data must be numbers, element 1 is [2]"),
    "data of another type": (tensor(data=5), "data must be a list, got 5"),
    "string in numbers": (tensor(data=["1", 2]), 'FP32 data must be numbers, element 0 is "1"'),
    "null in numbers": (tensor(data=[1, None]), "FP32 data must be numbers, element 1 is null"),
    "object in numbers": (tensor(data=[1, {}]), "element 1 is {}"),
    "boolean in numbers": (tensor(data=[1, True]), "FP32 data must be numbers, element 1 is true"),
    "boolean in integers": (
        tensor(datatype="INT32", data=[1, False]),
        "INT32 data must be integers, element 1 is false",
    ),
    "fraction in integers": (
        tensor(datatype="INT64", data=[1, 2.0]),
        "INT64 data must be integers, element 1 is 2.0",
    ),
    "integer in booleans": (
        tensor(datatype="BOOL", data=[True, 1]),
        "BOOL data must be true or false, element 1 is 1",
    ),
    "number in strings": (
        tensor(datatype="BYTES", data=["a", 1]),
        "BYTES data must be strings, element 1 is 1",
    ),
    "overflow": (tensor(datatype="UINT8", data=[1, 300]), "element 1 is 300, outside UINT8 (0 to 255)"),
    "underflow": (tensor(datatype="UINT64", data=[1, -1]), "element 1 is -1, outside UINT64 (0 to 1844674"),
    "overflow of 64 bits": (
        tensor(datatype="INT64", data=[0, 2**63]),
        "element 1 is 9223372036854775808, outside",
    ),
    "overflow of FP32": (tensor(data=[1, 1e39]), "element 1 is 1e+39, outside FP32 (-3.4028"),
    "FP16 as JSON": (tensor(datatype="FP16"), "FP16 has no JSON form; send it as binary data"),
    "BF16 as JSON": (tensor(datatype="BF16"), "BF16 has no JSON form; send it as binary data"),
    "no data": (tensor(data=MISSING), 'has neither "data" nor parameters.binary_data_size'),
    "shared memory": (
        tensor(data=MISSING, parameters={"shared_memory_region": "r"}),
        "shared memory is not supported",
    ),
    "parameters of another type": (
        tensor(parameters=[]),
        'inputs[0] "x": "parameters" must be an object, got []',
    ),
    "binary without the header": (
        binary(8),
        "binary_data_size is given, but the Inference-Header-Content-Length header is missing",
    ),
}


@pytest.mark.parametrize("rule", TENSOR_RULES)
def test_a_bad_tensor_is_refused(rule: str) -> None:
    entry, message = TENSOR_RULES[rule]
    assert message in refusal({"inputs": [entry]})


BINARY_RULES = {
    "data twice": (
        {**binary(8), "data": [1, 2]},
        bytes(8),
        'has both "data" and parameters.binary',
    ),
    "size of another type": (
        binary("8"),
        bytes(8),
        'binary_data_size must be a non-negative integer, got "8"',
    ),
    "boolean size": (binary(True), bytes(8), "binary_data_size must be a non-negative integer, got true"),
    "negative size": (binary(-8), bytes(8), "binary_data_size must be a non-negative integer, got -8"),
    "bytes missing": (binary(8), bytes(7), "binary_data_size is 8, but 7 bytes of the body are left"),
    "bytes left over": (binary(8), bytes(11), "the body has 3 bytes after the last tensor"),
    "bytes left over after JSON data": (tensor(), bytes(1), "the body has 1 bytes after the last tensor"),
    "wrong byte count": (binary(12), bytes(12), "binary data has 12 bytes, shape [1, 2] of FP32 needs 8"),
    "bytes for an empty shape": (binary(4, shape=[0]), bytes(4), "has 4 bytes, shape [0] of FP32 needs 0"),
    "not a boolean": (
        binary(2, datatype="BOOL"),
        b"\x01\x02",
        "BOOL binary data must be bytes of 0 or 1, got 2",
    ),
    "BYTES length cut short": (
        binary(3, datatype="BYTES"),
        b"\x01\x00\x00",
        "BYTES element 0 is cut short: needs its 4-byte length, 3 bytes are left",
    ),
    "BYTES element cut short": (
        binary(10, datatype="BYTES"),
        b"\x01\x00\x00\x00a\x09\x00\x00\x00b",
        "BYTES element 1 is cut short: needs 9 bytes, 1 bytes are left",
    ),
    "too few BYTES elements": (
        binary(5, datatype="BYTES"),
        b"\x01\x00\x00\x00a",
        "binary data has 1 BYTES elements, the shape needs 2",
    ),
}


@pytest.mark.parametrize("rule", BINARY_RULES)
def test_bad_binary_data_is_refused(rule: str) -> None:
    entry, tail, message = BINARY_RULES[rule]
    assert message in refusal({"inputs": [entry]}, tail)


REQUEST_RULES = {
    "no inputs": ({}, '"inputs" must be a non-empty list'),
    "empty inputs": ({"inputs": []}, '"inputs" must be a non-empty list'),
    "inputs of another type": ({"inputs": {}}, '"inputs" must be a list, got {}'),
    "duplicated input": ({"inputs": [tensor(), tensor()]}, 'inputs[1] "x": the name occurs twice'),
    "id of another type": ({"inputs": [tensor()], "id": 5}, '"id" must be a string, got 5'),
    "parameters of another type": ({"inputs": [tensor()], "parameters": 1}, '"parameters" must be an object'),
    "nested parameter": (
        {"inputs": [tensor()], "parameters": {"a": [1]}},
        "parameters.a must be a string, a number or a boolean, got [1]",
    ),
    "negative timeout": (
        {"inputs": [tensor()], "parameters": {"timeout": -1}},
        "parameters.timeout must be a non-negative integer (us), got -1",
    ),
    "fractional timeout": (
        {"inputs": [tensor()], "parameters": {"timeout": 1.5}},
        "parameters.timeout must be",
    ),
    "boolean timeout": (
        {"inputs": [tensor()], "parameters": {"timeout": True}},
        "parameters.timeout must be",
    ),
    "binary_data_output of another type": (
        {"inputs": [tensor()], "parameters": {"binary_data_output": "yes"}},
        'parameters.binary_data_output must be true or false, got "yes"',
    ),
    "outputs of another type": (
        {"inputs": [tensor()], "outputs": "y"},
        '"outputs" must be a list, got "y"',
    ),
    "output without a name": ({"inputs": [tensor()], "outputs": [{}]}, 'outputs[0]: "name" must be'),
    "duplicated output": (
        {"inputs": [tensor()], "outputs": [{"name": "y"}, {"name": "y"}]},
        'outputs[1] "y": the name occurs twice',
    ),
    "binary_data of another type": (
        {"inputs": [tensor()], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
        'outputs[0] "y": binary_data must be true or false, got 1',
    ),
    "classification": (
        {"inputs": [tensor()], "outputs": [{"name": "y", "parameters": {"classification": 3}}]},
        'outputs[0] "y": parameters.classification is not supported',
    ),
}


@pytest.mark.parametrize("rule", REQUEST_RULES)
def test_a_bad_request_is_refused(rule: str) -> None:
    document, message = REQUEST_RULES[rule]
    assert message in refusal(document)


BODY_RULES = {
    "empty": (b"", "the body is not valid JSON"),
    "not JSON": (b"{", "the body is not valid JSON"),
    "not UTF-8": (b'{"inputs": "\xff"}', "the body is not valid JSON"),
    "not UTF-8, with a token": (b'{"inputs": [NaN, "\xff"]}', "the body is not valid JSON"),
    "token in the wrong place": (b'{"inputs": NaNNaN}', "the body is not valid JSON"),
    "an array": (b"[1]", "the body must be a JSON object, got [1]"),
    "a token": (b"NaN", "the body must be a JSON object, got nan"),
    "deeply nested": (b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "the body is not valid JSON"),
    "deeply nested, with a token": (b"[NaN" + b"," * 1 + b"[" * 100_000, "nested too deeply"),
    "half a surrogate pair": (b'{"inputs": [NaN, "\\ud800"]}', "inputs[0] must be an object"),
    "raw bytes without the header": (
        b'{"inputs": [{"name": "x", "parameters": {"binary_data_size": 4}}]}\x00\x00\x80\x3f',
        "binary tensors need the Inference-Header-Content-Length header",
    ),
}


@pytest.mark.parametrize("rule", BODY_RULES)
def test_a_bad_body_is_refused(rule: str) -> None:
    body, message = BODY_RULES[rule]
    with pytest.raises(BadRequest, match=re.escape(message)):
        decode_infer_request(body)


def test_half_a_surrogate_pair_is_refused_in_data() -> None:
    entry = b'{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["\\ud800"]}'
    ignored = b'"ignored": NaN'
    with pytest.raises(BadRequest, match="a string that is not valid Unicode"):
        decode_infer_request(b'{"inputs": [' + entry + b"], " + ignored + b"}")


@pytest.mark.parametrize("length", [-1, 11])
def test_a_header_length_outside_the_body_is_refused(length: int) -> None:
    message = f"Inference-Header-Content-Length is {length}, but the body has 10 bytes"
    with pytest.raises(BadRequest, match=message):
        decode_infer_request(b'{"a":1}   ', length)


@pytest.mark.parametrize("value", ["", "-1", "+1", "1.0", "1_0", "0x10", "ten", "1 2", "٣", "9" * 30])
def test_a_header_that_is_no_count_is_refused(value: str) -> None:
    with pytest.raises(
        BadRequest, match="Inference-Header-Content-Length must be a non-negative integer, got"
    ):
        parse_header_length(value)


def test_a_header_that_is_a_count_is_read() -> None:
    assert [parse_header_length(value) for value in (None, "0", " 17 ")] == [None, 0, 17]


def test_a_message_stays_short_however_large_the_value() -> None:
    document = {"inputs": [tensor(name="n" * 10_000, data=["s" * 10_000, *range(10_000)], shape=[10_001])]}
    assert len(refusal(document)) < 300
    assert len(refusal({"inputs": ["s" * 10_000]})) < 300
    assert len(refusal({"inputs": [tensor(datatype="d" * 10_000)]})) < 300
    assert len(refusal({"inputs": [tensor(shape=[-1] * 32)]})) < 300
