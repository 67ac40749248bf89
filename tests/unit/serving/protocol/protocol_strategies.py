"""Random tensors, requests and replies of the V2 protocol, and the comparison that a round trip must pass."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving.protocol.datatypes import DATATYPES
from serving.types import InferRequest, InferResponse, NamedTensor, OutputRequest

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
PARAMETERS = st.dictionaries(
    NAMES.filter(lambda name: name not in ("binary_data_output", "timeout")),
    st.text(max_size=5)
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans(),
    max_size=3,
)
JSON_DATATYPES = [name for name, datatype in DATATYPES.items() if datatype.in_json]


def arrays(datatype: str, *, json: bool) -> st.SearchStrategy[np.ndarray]:
    if datatype == "BYTES":
        text = st.text(st.characters(codec="utf-8"), max_size=6).map(lambda value: value.encode())
        return SHAPES.flatmap(lambda shape: _object_arrays(shape, text if json else st.binary(max_size=6)))
    dtype = DATATYPES[datatype].dtype
    if dtype.kind != "f":
        return hnp.arrays(dtype, SHAPES)
    elements = hnp.from_dtype(dtype, allow_nan=not json, allow_infinity=not json)
    plain = hnp.arrays(dtype, SHAPES, elements=elements)
    return plain.map(_truncated_to_bf16) if datatype == "BF16" else plain


def _object_arrays(
    shape: tuple[int, ...], elements: st.SearchStrategy[bytes]
) -> st.SearchStrategy[np.ndarray]:
    count = int(np.prod(shape))

    def build(items: list[bytes]) -> np.ndarray:
        array = np.empty(count, dtype=object)
        array[:] = items
        return array.reshape(shape)

    return st.lists(elements, min_size=count, max_size=count).map(build)


def _truncated_to_bf16(array: np.ndarray) -> np.ndarray:
    finite = np.where(np.isnan(array), np.float32(1.5), array)
    return (
        (np.ascontiguousarray(finite, dtype="<f4").view(np.uint32) & 0xFFFF0000)
        .view("<f4")
        .reshape(array.shape)
    )


@st.composite
def tensors(draw: st.DrawFn, *, json: bool) -> tuple[NamedTensor, ...]:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    datatypes = [draw(st.sampled_from(JSON_DATATYPES if json else list(DATATYPES))) for _ in names]
    return tuple(
        NamedTensor(name, datatype, draw(arrays(datatype, json=json)))
        for name, datatype in zip(names, datatypes, strict=True)
    )


@st.composite
def requests(draw: st.DrawFn, *, binary: bool) -> InferRequest:
    outputs = st.builds(OutputRequest, NAMES, st.sampled_from([None, True, False]))
    return InferRequest(
        inputs=draw(tensors(json=not binary)),
        outputs=tuple(draw(st.lists(outputs, max_size=3, unique_by=lambda output: output.name))),
        id=draw(st.none() | st.text(max_size=8)),
        parameters=draw(PARAMETERS),
        binary_output=binary or draw(st.booleans()),
    )


@st.composite
def responses(draw: st.DrawFn, *, json: bool) -> InferResponse:
    return InferResponse(
        model_name=draw(NAMES),
        outputs=draw(tensors(json=json)),
        model_version=draw(st.none() | st.text(max_size=3)),
        id=draw(st.none() | st.text(max_size=8)),
        parameters=draw(PARAMETERS),
    )


def assert_same_tensors(found: tuple[NamedTensor, ...], wanted: tuple[NamedTensor, ...]) -> None:
    assert [(tensor.name, tensor.datatype) for tensor in found] == [
        (tensor.name, tensor.datatype) for tensor in wanted
    ]
    for one, other in zip(found, wanted, strict=True):
        assert one.data.dtype == other.data.dtype
        assert one.data.shape == other.data.shape
        assert one.data.flags.c_contiguous
        assert one.data.flags.aligned
        if one.data.dtype == object:
            assert one.data.tolist() == other.data.tolist()
        else:
            assert one.data.tobytes() == other.data.tobytes()
