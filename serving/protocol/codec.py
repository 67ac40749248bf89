"""V2 inference requests and replies, bytes to values and back; pure functions, both sides of the wire.

A body is a JSON object, or a JSON object followed by raw tensors (the binary tensor extension), in which case
a header gives the length of the JSON part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from serving.errors import BadReplicaAnswer, BadRequest, ServingError
from serving.protocol.json_text import (
    Buffer,
    list_at,
    named_entry,
    object_at,
    optional_string,
    parse_object,
    shown,
)
from serving.protocol.raw_body import decode_raw_body
from serving.protocol.tensors import (
    HEADER_LENGTH,
    Tail,
    TensorHead,
    WrittenTensor,
    label,
    read_heads,
    read_tensors,
    refuse_duplicates,
    write_tensor,
)
from serving.types import (
    NO_PARAMETERS,
    InferRequest,
    InferResponse,
    ModelMetadata,
    NamedTensor,
    OutputRequest,
    Parameter,
)

_ALIGNMENT: Final = 8
_MAX_DIGITS: Final = 19
_LONGEST_REMEMBERED: Final = 1024
_BINARY_TYPE: Final = "application/octet-stream"
_JSON_TYPE: Final = "application/json"


class EncodedBody(NamedTuple):
    """A body and the headers that belong to it; Content-Length is left to the HTTP library."""

    body: bytes
    headers: dict[str, str]


def parse_header_length(value: str | None, header: str = HEADER_LENGTH) -> int | None:
    """The number of bytes that a header gives; None where the header is absent.

    Raises:
        BadRequest: it is not a non-negative integer.
    """
    if value is None:
        return None
    digits = value.strip()
    # int() alone would read "+5", "1_000" and digits of other scripts.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise BadRequest(f"{header} must be a non-negative integer, got {shown(value)}")
    return int(digits)


def decode_infer_request(
    body: Buffer, header_length: int | None = None, metadata: ModelMetadata | None = None
) -> InferRequest:
    """Parse a request body.

    Args:
        body: the whole body, decompressed. Binary tensors of the result are read-only views of it.
        header_length: bytes of its JSON part, from the header; None where the header is absent; 0 where the
            body is nothing but the single input's raw bytes.
        metadata: of the addressed model; needed for such a raw body, unused otherwise.

    Raises:
        BadRequest: anything about it breaks a rule; the message names the field, the rule and the value.
    """
    if header_length == 0:
        return decode_raw_body(body, metadata)
    document, tail = _split(body, header_length)
    parameters = _read_parameters(document)
    heads = read_heads(document, "inputs")
    if not heads:
        raise BadRequest('"inputs" must be a non-empty list of tensors')
    inputs = read_tensors(heads, tail)
    binary_output = parameters.pop("binary_data_output", False)
    if not isinstance(binary_output, bool):
        raise BadRequest(f"parameters.binary_data_output must be true or false, got {shown(binary_output)}")
    return InferRequest(
        inputs=inputs,
        outputs=_read_output_requests(document),
        id=optional_string(document, "id"),
        parameters=MappingProxyType(parameters) if parameters else NO_PARAMETERS,
        binary_output=binary_output,
    )


def _split(body: Buffer, header_length: int | None) -> tuple[dict[str, Any], Tail | None]:
    if header_length is None:
        return _parse_whole(body), None
    text, tail = _cut(body, header_length)
    return parse_object(text), tail


def _cut(body: Buffer, header_length: int) -> tuple[memoryview, Tail]:
    if not 0 <= header_length <= len(body):
        raise BadRequest(f"{HEADER_LENGTH} is {header_length}, but the body has {len(body)} bytes")
    view = memoryview(body)
    return view[:header_length], Tail(view[header_length:])


def _parse_whole(body: Buffer) -> dict[str, Any]:
    try:
        return parse_object(body)
    except BadRequest as error:
        # Raw tensors after the JSON make it invalid; say what is really missing.
        if b'"binary_data_size"' in bytes(body):
            raise BadRequest(f"{error}; binary tensors need the {HEADER_LENGTH} header") from error
        raise


def _read_parameters(document: dict[str, Any]) -> dict[str, Parameter]:
    given = object_at(document, "parameters")
    parameters = {name: value for name, value in given.items() if value is not None}
    for name, value in parameters.items():
        if not isinstance(value, str | int | float):
            rule = "must be a string, a number or a boolean"
            raise BadRequest(f"parameters.{name[:60]} {rule}, got {shown(value)}")
    timeout = parameters.get("timeout", 0)
    if type(timeout) is not int or timeout < 0:
        raise BadRequest(f"parameters.timeout must be a non-negative integer (us), got {shown(timeout)}")
    return parameters


def _read_output_requests(document: dict[str, Any]) -> tuple[OutputRequest, ...]:
    outputs = tuple(
        _read_output_request(entry, index) for index, entry in enumerate(list_at(document, "outputs"))
    )
    refuse_duplicates((output.name for output in outputs), "outputs")
    return outputs


def _read_output_request(entry: object, index: int) -> OutputRequest:
    fields, name = named_entry(entry, f"outputs[{index}]")
    where = label("outputs", index, name)
    parameters = object_at(fields, "parameters", f"{where}: ")
    for unsupported in ("classification", "shared_memory_region"):
        if unsupported in parameters:
            raise BadRequest(f"{where}: parameters.{unsupported} is not supported")
    binary = parameters.get("binary_data")
    if binary is not None and not isinstance(binary, bool):
        raise BadRequest(f"{where}: binary_data must be true or false, got {shown(binary)}")
    return OutputRequest(name, binary)


def encode_infer_response(response: InferResponse, request: InferRequest) -> EncodedBody:
    """Render a reply: the outputs that the request asks for, each in the form it asks for.

    Raises:
        BadRequest: an output is asked for as JSON, which its datatype or bytes have no form for.
        ServingError: the reply lacks an output, or one that goes as JSON is not finite.
    """
    written = [
        write_tensor(tensor, label("outputs", index, tensor.name), binary=binary)
        for index, (tensor, binary) in enumerate(_selected(response, request))
    ]
    document: dict[str, object] = {"model_name": response.model_name}
    if response.model_version is not None:
        document["model_version"] = response.model_version
    if request.id is not None:
        document["id"] = request.id
    if response.parameters:
        document["parameters"] = dict(response.parameters)
    return _assemble(document, "outputs", written)


def _selected(response: InferResponse, request: InferRequest) -> list[tuple[NamedTensor, bool]]:
    if not request.outputs:
        return [(tensor, request.binary_output) for tensor in response.outputs]
    by_name = {tensor.name: tensor for tensor in response.outputs}
    selected = []
    for wanted in request.outputs:
        tensor = by_name.get(wanted.name)
        if tensor is None:
            raise ServingError(f'the model gave no output "{wanted.name[:60]}"')
        selected.append((tensor, request.binary_output if wanted.binary is None else wanted.binary))
    return selected


def encode_infer_request(request: InferRequest, binary: bool = True) -> EncodedBody:
    """Render a request, as a client.

    Args:
        request: what to send.
        binary: send the inputs as raw bytes and ask for outputs in the same form; else all is JSON, but
            for outputs where `request` itself asks for binary.

    Raises:
        BadRequest: to go as JSON, but its datatype or bytes have no form for it.
        ServingError: to go as JSON, but it is not finite.
    """
    written = [
        write_tensor(tensor, label("inputs", index, tensor.name), binary=binary)
        for index, tensor in enumerate(request.inputs)
    ]
    document: dict[str, object] = {}
    if request.id is not None:
        document["id"] = request.id
    parameters = dict(request.parameters)
    if binary or request.binary_output:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    if request.outputs:
        document["outputs"] = [_output_entry(output) for output in request.outputs]
    return _assemble(document, "inputs", written)


def _output_entry(output: OutputRequest) -> dict[str, object]:
    if output.binary is None:
        return {"name": output.name}
    return {"name": output.name, "parameters": {"binary_data": output.binary}}


def _assemble(document: dict[str, object], key: str, written: list[WrittenTensor]) -> EncodedBody:
    document[key] = [tensor.entry for tensor in written]
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    chunks = [tensor.raw for tensor in written if tensor.raw is not None]
    if not chunks:
        return EncodedBody(text, {"Content-Type": _JSON_TYPE})
    # Blanks after the JSON let the reader view the first tensor where it lies; unaligned, it would be copied.
    text += b" " * (-len(text) % _ALIGNMENT)
    headers = {"Content-Type": _BINARY_TYPE, HEADER_LENGTH: str(len(text))}
    return EncodedBody(b"".join((text, *chunks)), headers)


def decode_infer_response(body: Buffer, header_length: int | None = None) -> InferResponse:
    """Parse a reply body, as a client.

    Args:
        body: the whole body. Binary tensors of the result are read-only views of it.
        header_length: bytes of its JSON part, from the header; None where the header is absent.

    Raises:
        BadReplicaAnswer: anything about it breaks a rule; raised from the cause.
    """
    try:
        if header_length is None:
            response, heads, tail = *_read_reply(_parse_whole(body)), None
        else:
            text, tail = _cut(body, header_length)
            response, heads = _read_reply_text(bytes(text))
        return InferResponse(
            model_name=response.model_name,
            outputs=read_tensors(heads, tail),
            model_version=response.model_version,
            id=response.id,
            parameters=response.parameters,
        )
    except BadRequest as error:
        raise BadReplicaAnswer(f"the reply is malformed: {error}") from error


def _read_reply_text(text: bytes) -> tuple[InferResponse, tuple[TensorHead, ...]]:
    """The JSON part of a reply with binary tensors: short, and the same from call to call."""
    if len(text) > _LONGEST_REMEMBERED:
        return _read_reply(parse_object(text))
    return _remembered_reply(text)


@lru_cache(maxsize=256)
def _remembered_reply(text: bytes) -> tuple[InferResponse, tuple[TensorHead, ...]]:
    return _read_reply(parse_object(text))


def _read_reply(document: dict[str, Any]) -> tuple[InferResponse, tuple[TensorHead, ...]]:
    """A reply without its outputs, and their heads."""
    heads = read_heads(document, "outputs")
    response = InferResponse(
        model_name=optional_string(document, "model_name") or "",
        outputs=(),
        model_version=optional_string(document, "model_version"),
        id=optional_string(document, "id"),
        parameters=_reply_parameters(document),
    )
    return response, heads


def _reply_parameters(document: dict[str, Any]) -> Mapping[str, Parameter]:
    parameters = object_at(document, "parameters")
    return MappingProxyType(parameters) if parameters else NO_PARAMETERS
