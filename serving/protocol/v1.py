"""The V1 predict protocol of TensorFlow Serving and KServe: JSON only, in row or in column format.

Row format: `instances` is a list with one entry per row, a bare value for a model of one input, an object
keyed by input name otherwise; the reply has `predictions`. Column format: `inputs` is one tensor, or an
object of tensors keyed by input name; the reply has `outputs`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, TypeGuard

import orjson
from numpy.typing import NDArray

from serving.errors import BadRequest
from serving.protocol.datatypes import DATATYPES, datatype_named
from serving.protocol.json_tensors import array_from_json, bytes_array, flatten, json_form, map_elements, utf8
from serving.protocol.json_text import Buffer, parse_object, shown
from serving.types import InferRequest, InferResponse, ModelMetadata, NamedTensor, TensorSpec


@dataclass(frozen=True, slots=True)
class PredictRequest:
    """A parsed V1 request.

    Attributes:
        infer: the same request in V2's terms.
        columns: it came in column format, and its reply goes in column format.
    """

    infer: InferRequest
    columns: bool


def decode_predict_request(body: Buffer, metadata: ModelMetadata) -> PredictRequest:
    """Parse a V1 predict body.

    Args:
        body: the whole body, decompressed.
        metadata: of the addressed model: V1 bodies name neither datatypes nor, mostly, inputs.

    Raises:
        BadRequest: anything about it breaks a rule; the message names the field, the rule and the value.
    """
    document = parse_object(body)
    columns = "inputs" in document
    if columns == ("instances" in document):
        raise BadRequest(f'exactly one of "instances" and "inputs" is needed, got {_both_or_none(columns)}')
    tensors = (
        _from_columns(document["inputs"], metadata)
        if columns
        else _from_rows(document["instances"], metadata)
    )
    return PredictRequest(InferRequest(inputs=tensors), columns)


def _both_or_none(both: bool) -> str:
    return "both" if both else "neither"


def _from_columns(value: object, metadata: ModelMetadata) -> tuple[NamedTensor, ...]:
    if _is_named(value):
        _check_names(value, metadata, "inputs")
        return tuple(_tensor(value[spec.name], spec, f'inputs "{spec.name}"') for spec in metadata.inputs)
    return (_tensor(value, _only_input(metadata, "inputs"), "inputs"),)


def _from_rows(rows: object, metadata: ModelMetadata) -> tuple[NamedTensor, ...]:
    if not isinstance(rows, list):
        raise BadRequest(f"instances must be a list with one entry per row, got {shown(rows)}")
    if not any(map(_is_named, rows)):
        return (_tensor(rows, _only_input(metadata, "instances"), "instances"),)
    for index, row in enumerate(rows):
        if not _is_named(row):
            raise BadRequest(f"instances[{index}] must be an object keyed by input name, got {shown(row)}")
        _check_names(row, metadata, f"instances[{index}]")
    return tuple(
        _tensor([row[spec.name] for row in rows], spec, f'instances "{spec.name}"')
        for spec in metadata.inputs
    )


def _is_named(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object keyed by input name, not the {"b64": ...} of a single value."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _only_input(metadata: ModelMetadata, where: str) -> TensorSpec:
    if len(metadata.inputs) != 1:
        names = ", ".join(f'"{spec.name}"' for spec in metadata.inputs)
        raise BadRequest(f"{where}: {metadata.name} takes several inputs, name them: {names}")
    return metadata.inputs[0]


def _check_names(entry: dict[str, Any], metadata: ModelMetadata, where: str) -> None:
    wanted = {spec.name for spec in metadata.inputs}
    if entry.keys() != wanted:
        names = ", ".join(f'"{name}"' for name in sorted(wanted))
        raise BadRequest(f"{where}: must name exactly the inputs {names}, got {shown(sorted(entry))}")


def _tensor(value: object, spec: TensorSpec, where: str) -> NamedTensor:
    shape = _shape(value, spec, where)
    if spec.datatype == "BYTES":
        items = [_element(item, where) for item in flatten(value, shape, where)]
        array = bytes_array(items).reshape(shape)
    else:
        array = array_from_json(value, datatype_named(spec.datatype, where), shape, where)
    return NamedTensor(spec.name, spec.datatype, array)


def _shape(value: object, spec: TensorSpec, where: str) -> tuple[int, ...]:
    """The model's shape with its variable dimensions taken from the nesting of the value."""
    nesting = []
    level = value
    while isinstance(level, list):
        nesting.append(len(level))
        level = level[0] if level else None
    if not nesting:
        raise BadRequest(f"{where}: must be a list with one entry per row, got {shown(value)}")
    if -1 not in spec.item_shape:
        return (nesting[0], *spec.item_shape)
    if len(nesting) != len(spec.shape):
        raise BadRequest(f"{where}: expected shape {list(spec.shape)}, got nesting {nesting}")
    return tuple(nesting)


def _element(item: object, where: str) -> bytes:
    if isinstance(item, str):
        return utf8(item, where)
    if isinstance(item, dict) and isinstance(encoded := item.get("b64"), str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRequest(f"{where}: b64 is not valid base64: {shown(encoded)}") from error
    raise BadRequest(f'{where}: BYTES data must be strings or {{"b64": string}}, got {shown(item)}')


def encode_predict_response(response: InferResponse, *, columns: bool) -> bytes:
    """Render a V1 reply in the format of its request.

    Raises:
        BadRequest: an output's datatype or bytes have no JSON form.
        ServingError: an output is not finite.
    """
    values = {tensor.name: _json_value(tensor) for tensor in response.outputs}
    single = len(values) == 1
    if columns:
        document = {"outputs": next(iter(values.values())) if single else values}
    elif single:
        document = {"predictions": next(iter(values.values()))}
    else:
        rows = zip(*values.values(), strict=True)
        document = {"predictions": [dict(zip(values, row, strict=True)) for row in rows]}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _json_value(tensor: NamedTensor) -> NDArray[Any] | list[Any]:
    # TensorFlow Serving's rule: only outputs named so are binary, all others are text.
    if tensor.datatype == "BYTES" and tensor.name.endswith("_bytes"):
        return map_elements(tensor.data, lambda element: {"b64": base64.b64encode(element).decode("ascii")})
    return json_form(tensor.data, DATATYPES[tensor.datatype], f'outputs "{tensor.name}"')
