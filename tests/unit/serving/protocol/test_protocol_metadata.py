"""Model metadata and the datatype table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_strategies import NAMES

from serving.errors import BadReplicaAnswer, BadRequest, ServingError
from serving.protocol import decode_model_metadata, encode_model_metadata
from serving.protocol.datatypes import DATATYPES, datatype_named, datatype_of
from serving.types import ModelMetadata, TensorSpec

SPECS = st.builds(
    TensorSpec, NAMES, st.sampled_from(list(DATATYPES)), st.lists(st.integers(-1, 9), max_size=4).map(tuple)
)
SPEC_TUPLES = st.lists(SPECS, max_size=3).map(tuple)


@given(st.builds(ModelMetadata, NAMES, st.lists(NAMES).map(tuple), st.text(), SPEC_TUPLES, SPEC_TUPLES))
def test_metadata_survives_the_wire(metadata: ModelMetadata) -> None:
    assert decode_model_metadata(encode_model_metadata(metadata)) == metadata


def test_metadata_is_what_v2_says() -> None:
    metadata = ModelMetadata(
        "lenet5",
        ("1",),
        "pytorch",
        (TensorSpec("input", "FP32", (-1, 1, 28, 28)),),
        (TensorSpec("y", "FP32", (-1, 10)),),
    )
    assert json.loads(encode_model_metadata(metadata)) == {
        "name": "lenet5",
        "versions": ["1"],
        "platform": "pytorch",
        "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 1, 28, 28]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 10]}],
    }


def test_optional_fields_may_be_absent() -> None:
    assert decode_model_metadata(b'{"name": "m"}') == ModelMetadata("m", (), "", (), ())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"name": 1}', '"name" must be a string, got 1'),
        (b'{"versions": [1]}', '"versions" must hold strings, got 1'),
        (b'{"inputs": [{"name": "x"}]}', r"inputs\[0\]: unknown datatype"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32"}]}', r"inputs\[0\]: shape must be a list"),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2]}]}',
            r"integers from -1 up, got \[-2\]",
        ),
    ],
)
def test_malformed_metadata_is_a_bad_replica_answer(body: bytes, message: str) -> None:
    with pytest.raises(BadReplicaAnswer, match=message):
        decode_model_metadata(body)


@pytest.mark.parametrize("name", [name for name in DATATYPES if name not in ("BYTES", "BF16")])
def test_item_sizes_are_those_of_the_arrays(name: str) -> None:
    datatype = DATATYPES[name]
    assert datatype.item_bytes == datatype.dtype.itemsize
    assert datatype_of(np.zeros(1, datatype.dtype).dtype) == name


def test_the_table_is_the_protocols() -> None:
    sizes = {name: datatype.item_bytes for name, datatype in DATATYPES.items()}
    integers = {f"{sign}INT{bits}": bits // 8 for sign in ("", "U") for bits in (8, 16, 32, 64)}
    assert sizes == {**integers, "BOOL": 1, "FP16": 2, "FP32": 4, "FP64": 8, "BF16": 2, "BYTES": 0}


def test_unknown_types_are_refused() -> None:
    with pytest.raises(BadRequest, match='here: unknown datatype "fp32"; known: BOOL'):
        datatype_named("fp32", "here")
    with pytest.raises(ServingError, match="no V2 datatype carries numpy's complex128"):
        datatype_of(np.dtype(np.complex128))
