"""Whatever bytes arrive, the parsers answer or refuse; they never break."""

from __future__ import annotations

import contextlib
import json

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.errors import BadReplicaAnswer, BadRequest
from serving.protocol import (
    HEADER_LENGTH,
    decode_infer_request,
    decode_infer_response,
    decode_model_metadata,
    decode_predict_request,
    encode_infer_request,
)
from serving.types import InferRequest, ModelMetadata, NamedTensor, OutputRequest, TensorSpec

METADATA = ModelMetadata(
    "m", ("1",), "p", (TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("y", "FP32", (-1, 2)),)
)


def _valid_body() -> tuple[bytes, int]:
    request = InferRequest(
        inputs=(
            NamedTensor("x", "FP32", np.ones((1, 2), "f4")),
            NamedTensor("s", "BYTES", np.array([b"ab", b""], dtype=object)),
            NamedTensor("b", "BOOL", np.array([True])),
        ),
        outputs=(OutputRequest("y", binary=True),),
        id="1",
        parameters={"timeout": 5},
    )
    encoded = encode_infer_request(request)
    return encoded.body, int(encoded.headers[HEADER_LENGTH])


BODY, LENGTH = _valid_body()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("FP32")
KEYS = st.sampled_from(
    [
        "name",
        "datatype",
        "shape",
        "data",
        "parameters",
        "binary_data_size",
        "inputs",
        "outputs",
        "instances",
        "b64",
    ]
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


def parse_everything(body: bytes, length: int | None) -> None:
    with contextlib.suppress(BadRequest):
        decode_infer_request(body, length, METADATA)
    with contextlib.suppress(BadReplicaAnswer):
        decode_infer_response(body, length)
    with contextlib.suppress(BadReplicaAnswer):
        decode_model_metadata(body)
    with contextlib.suppress(BadRequest):
        decode_predict_request(body, METADATA)


@given(st.binary(max_size=200), st.none() | st.integers(-3, 300))
@example(b'{"inputs":' + b"[" * 1500, None)
@example(b"9" * 5000 + b"NaN", None)
@settings(deadline=None, max_examples=80)
def test_random_bytes(body: bytes, length: int | None) -> None:
    parse_everything(body, length)


@given(
    st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), max_size=6), st.integers(-4, 4)
)
@settings(deadline=None, max_examples=120)
def test_a_valid_body_with_some_bytes_changed(changes: list[tuple[int, int]], shift: int) -> None:
    body = bytearray(BODY)
    for position, value in changes:
        body[position] = value
    parse_everything(bytes(body), LENGTH + shift)


@given(st.integers(0, len(BODY)), st.integers(0, len(BODY)))
@settings(deadline=None, max_examples=60)
def test_a_valid_body_cut_short(cut: int, length: int) -> None:
    parse_everything(BODY[:cut], length)


@given(DOCUMENTS)
@settings(deadline=None, max_examples=120)
def test_json_of_any_structure(document: object) -> None:
    parse_everything(json.dumps(document).encode(), None)
    for wrapped in (
        {"inputs": [document]},
        {"outputs": document, "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]},
        {"instances": document},
        {"inputs": [{"name": "x", "datatype": "INT8", "shape": [2], "data": document}]},
        {"inputs": [{"name": "x", "datatype": "BYTES", "shape": document, "data": [1]}]},
    ):
        parse_everything(json.dumps(wrapped).encode(), None)
