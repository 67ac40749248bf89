"""Requests without any JSON: the body is the single input's bytes, for one row (header value 0)."""

from __future__ import annotations

from math import prod

from serving.errors import BadRequest
from serving.protocol.binary_tensors import array_from_binary
from serving.protocol.datatypes import datatype_named
from serving.protocol.json_tensors import bytes_array
from serving.protocol.json_text import Buffer
from serving.types import InferRequest, ModelMetadata, NamedTensor, TensorSpec


def decode_raw_body(body: Buffer, metadata: ModelMetadata | None) -> InferRequest:
    """Parse such a body; all outputs are answered in binary.

    Args:
        body: the input's bytes. For a BYTES input it is the one element itself, without a length before it.
        metadata: of the addressed model, which gives the input's name, datatype and shape.

    Raises:
        BadRequest: the model has several inputs or more than one variable dimension, or the bytes do not fit.
    """
    if metadata is None or len(metadata.inputs) != 1:
        count = 0 if metadata is None else len(metadata.inputs)
        raise BadRequest(f"a body without a JSON part needs a model of exactly 1 input, this one has {count}")
    spec = metadata.inputs[0]
    where = f'inputs[0] "{spec.name}"'
    if spec.datatype == "BYTES":
        array = bytes_array([bytes(body)]).reshape(_row_of_bytes(spec, where))
    else:
        datatype = datatype_named(spec.datatype, where)
        shape = _row_shape(spec, len(body) // datatype.item_bytes, where)
        array = array_from_binary(memoryview(body), datatype, shape, where)
    return InferRequest(inputs=(NamedTensor(spec.name, spec.datatype, array),), binary_output=True)


def _row_of_bytes(spec: TensorSpec, where: str) -> tuple[int, ...]:
    if any(dimension not in (1, -1) for dimension in spec.shape):
        raise BadRequest(
            f"{where}: a body without a JSON part carries 1 element, shape is {list(spec.shape)}"
        )
    return (1,) * len(spec.shape)


def _row_shape(spec: TensorSpec, elements: int, where: str) -> tuple[int, ...]:
    """The shape of one row, its variable dimension (at most one) filled in from the number of elements."""
    row = (1, *spec.item_shape)
    variable = row.count(-1)
    if variable > 1:
        rule = "a body without a JSON part needs at most 1 variable dimension per row"
        raise BadRequest(f"{where}: {rule}, shape is {list(spec.shape)}")
    if not variable:
        return row
    known = max(1, prod(dimension for dimension in row if dimension != -1))
    return tuple(elements // known if dimension == -1 else dimension for dimension in row)
