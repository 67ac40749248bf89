"""Model metadata as V2 writes it, both ways."""

from __future__ import annotations

from typing import Any

import orjson

from serving.errors import BadReplicaAnswer, BadRequest
from serving.protocol.datatypes import datatype_named
from serving.protocol.json_text import Buffer, list_at, named_entry, optional_string, parse_object, shown
from serving.types import ModelMetadata, TensorSpec


def encode_model_metadata(metadata: ModelMetadata) -> bytes:
    """The body of the reply to `GET /v2/models/{name}`."""
    document: dict[str, object] = {"name": metadata.name}
    if metadata.versions:
        document["versions"] = metadata.versions
    document["platform"] = metadata.platform
    document["inputs"] = [_spec_entry(spec) for spec in metadata.inputs]
    document["outputs"] = [_spec_entry(spec) for spec in metadata.outputs]
    return orjson.dumps(document)


def _spec_entry(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def decode_model_metadata(body: Buffer) -> ModelMetadata:
    """Parse the body of such a reply, as a client.

    Raises:
        BadReplicaAnswer: it breaks a rule; raised from the cause.
    """
    try:
        document = parse_object(body)
        return ModelMetadata(
            name=optional_string(document, "name") or "",
            versions=tuple(_version(value) for value in list_at(document, "versions")),
            platform=optional_string(document, "platform") or "",
            inputs=_read_specs(document, "inputs"),
            outputs=_read_specs(document, "outputs"),
        )
    except BadRequest as error:
        raise BadReplicaAnswer(f"the model metadata is malformed: {error}") from error


def _version(value: object) -> str:
    if not isinstance(value, str):
        raise BadRequest(f'"versions" must hold strings, got {shown(value)}')
    return value


def _read_specs(document: dict[str, Any], key: str) -> tuple[TensorSpec, ...]:
    return tuple(_read_spec(entry, f"{key}[{index}]") for index, entry in enumerate(list_at(document, key)))


def _read_spec(entry: object, position: str) -> TensorSpec:
    fields, name = named_entry(entry, position)
    datatype = datatype_named(fields.get("datatype"), position)
    shape = fields.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int and size >= -1 for size in shape):
        raise BadRequest(f"{position}: shape must be a list of integers from -1 up, got {shown(shape)}")
    return TensorSpec(name, datatype.name, tuple(shape))
