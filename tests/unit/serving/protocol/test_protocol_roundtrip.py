"""What one side encodes, the other side decodes to the same value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_strategies import JSON_DATATYPES, arrays, assert_same_tensors, requests, responses

from serving.protocol import (
    HEADER_LENGTH,
    EncodedBody,
    decode_infer_request,
    decode_infer_response,
    encode_infer_request,
    encode_infer_response,
    parse_header_length,
)
from serving.protocol.datatypes import DATATYPES
from serving.types import InferRequest, InferResponse, NamedTensor, OutputRequest


def header_length(encoded: EncodedBody) -> int | None:
    return parse_header_length(encoded.headers.get(HEADER_LENGTH))


@given(st.data(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_request_survives_the_wire(data: st.DataObject, binary: bool) -> None:
    request = data.draw(requests(binary=binary))
    encoded = encode_infer_request(request, binary=binary)
    decoded = decode_infer_request(encoded.body, header_length(encoded))
    assert_same_tensors(decoded.inputs, request.inputs)
    assert dict(decoded.parameters) == dict(request.parameters)
    assert decoded.outputs == request.outputs
    assert (decoded.id, decoded.binary_output) == (request.id, request.binary_output)


@given(st.data(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_reply_survives_the_wire(data: st.DataObject, binary: bool) -> None:
    response = data.draw(responses(json=not binary))
    request = InferRequest(inputs=(), id=response.id, binary_output=binary)
    encoded = encode_infer_response(response, request)
    decoded = decode_infer_response(encoded.body, header_length(encoded))
    assert_same_tensors(decoded.outputs, response.outputs)
    assert dict(decoded.parameters) == dict(response.parameters)
    assert (decoded.model_name, decoded.model_version, decoded.id) == (
        response.model_name,
        response.model_version,
        response.id,
    )


@pytest.mark.parametrize("datatype", list(DATATYPES))
@given(data=st.data())
@settings(deadline=None, max_examples=10)
def test_every_datatype_survives_in_binary(datatype: str, data: st.DataObject) -> None:
    request = InferRequest((NamedTensor("x", datatype, data.draw(arrays(datatype, json=False))),))
    encoded = encode_infer_request(request, binary=True)
    assert_same_tensors(decode_infer_request(encoded.body, header_length(encoded)).inputs, request.inputs)


@pytest.mark.parametrize("datatype", JSON_DATATYPES)
@given(data=st.data())
@settings(deadline=None, max_examples=10)
def test_every_datatype_with_a_json_form_survives_in_json(datatype: str, data: st.DataObject) -> None:
    request = InferRequest((NamedTensor("x", datatype, data.draw(arrays(datatype, json=True))),))
    encoded = encode_infer_request(request, binary=False)
    assert header_length(encoded) is None
    assert_same_tensors(decode_infer_request(encoded.body).inputs, request.inputs)


@given(
    responses(json=True),
    st.lists(st.sampled_from([None, True, False]), min_size=3, max_size=3),
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_each_output_goes_in_the_form_asked_for(
    response: InferResponse, forms: list[bool | None], default: bool
) -> None:
    wanted = tuple(
        OutputRequest(tensor.name, form) for tensor, form in zip(response.outputs, forms, strict=False)
    )
    request = InferRequest(inputs=(), outputs=wanted, binary_output=default)
    encoded = encode_infer_response(response, request)
    any_binary = any(default if output.binary is None else output.binary for output in wanted)
    assert (HEADER_LENGTH in encoded.headers) == any_binary
    assert_same_tensors(decode_infer_response(encoded.body, header_length(encoded)).outputs, response.outputs)


def test_outputs_come_in_the_order_asked_for_and_no_others() -> None:
    tensors = tuple(
        NamedTensor(name, "FP32", np.full((1, 1), index, "f4")) for index, name in enumerate("abc")
    )
    request = InferRequest(inputs=(), outputs=(OutputRequest("c"), OutputRequest("a")))
    encoded = encode_infer_response(InferResponse("m", tensors), request)
    outputs = decode_infer_response(encoded.body).outputs
    assert [(output.name, output.data.item()) for output in outputs] == [("c", 2.0), ("a", 0.0)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bodies_may_be_any_buffer(kind: type) -> None:
    request = InferRequest((NamedTensor("x", "FP32", np.arange(6, dtype="f4").reshape(2, 3)),))
    encoded = encode_infer_request(request)
    decoded = decode_infer_request(kind(encoded.body), header_length(encoded))
    assert_same_tensors(decoded.inputs, request.inputs)


def test_our_own_bodies_are_viewed_where_they_lie() -> None:
    request = InferRequest((NamedTensor("x", "FP32", np.ones((64, 64), "f4")),), id="odd length")
    for identifier in ("", "1", "12", "123", "1234567"):
        encoded = encode_infer_request(replace(request, id=identifier))
        array = decode_infer_request(encoded.body, header_length(encoded)).inputs[0].data
        assert np.shares_memory(array, np.frombuffer(encoded.body, dtype=np.uint8))


def test_a_body_of_another_client_is_read_at_any_alignment() -> None:
    request = InferRequest((NamedTensor("x", "FP64", np.arange(5.0)),))
    encoded = encode_infer_request(request)
    length = header_length(encoded)
    assert length is not None
    for blanks in range(8):
        body = encoded.body[:length] + b" " * blanks + encoded.body[length:]
        assert_same_tensors(decode_infer_request(body, length + blanks).inputs, request.inputs)
