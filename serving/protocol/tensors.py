"""One entry of `inputs` or `outputs`, and the raw bytes that may follow the JSON, to a tensor and back."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from serving.errors import BadRequest
from serving.protocol.binary_tensors import array_from_binary, binary_form
from serving.protocol.datatypes import DATATYPES, Datatype, datatype_named
from serving.protocol.json_tensors import array_from_json, json_form
from serving.protocol.json_text import Buffer, list_at, named_entry, object_at, shown
from serving.types import NamedTensor

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
"""The header that says how many bytes of a body are JSON; raw tensors follow them."""

_MAX_DIMENSIONS: Final = 32
_MAX_ELEMENTS: Final = 2**48


class Tail:
    """The raw bytes after the JSON part, handed out from the front."""

    __slots__ = ("_offset", "_view")

    def __init__(self, raw: Buffer) -> None:
        self._view = memoryview(raw)
        self._offset = 0

    def take(self, count: int, where: str) -> memoryview:
        """The next `count` bytes.

        Raises:
            BadRequest: fewer are left.
        """
        left = len(self._view) - self._offset
        if count > left:
            raise BadRequest(f"{where}: binary_data_size is {count}, but {left} bytes of the body are left")
        self._offset += count
        return self._view[self._offset - count : self._offset]

    def finish(self) -> None:
        """Check that nothing is left over.

        Raises:
            BadRequest: something is.
        """
        left = len(self._view) - self._offset
        if left:
            raise BadRequest(f"the body has {left} bytes after the last tensor that its JSON part announces")


class TensorHead(NamedTuple):
    """What the JSON part says of one tensor.

    Attributes:
        name: the tensor's name.
        datatype: its datatype.
        shape: its shape, without negative dimensions.
        binary_size: how many of the bytes after the JSON part are its; None where it carries `data`.
        data: its elements as parsed JSON; None where they are raw bytes.
        where: its position and name, for messages.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    binary_size: int | None
    data: object
    where: str


def read_heads(document: dict[str, Any], key: str) -> tuple[TensorHead, ...]:
    """What the JSON part says of the tensors listed under a key.

    Args:
        document: the JSON part.
        key: "inputs" or "outputs".

    Raises:
        BadRequest: an entry breaks a rule; the message names the entry, the rule and the value.
    """
    heads = tuple(_read_head(entry, f"{key}[{index}]") for index, entry in enumerate(list_at(document, key)))
    refuse_duplicates((head.name for head in heads), key)
    return heads


def read_tensors(heads: Iterable[TensorHead], tail: Tail | None) -> tuple[NamedTensor, ...]:
    """The tensors that these heads announce.

    Args:
        heads: in the order of the JSON part.
        tail: the bytes after the JSON part; None where the body is JSON alone.

    Raises:
        BadRequest: the elements do not fit a head; the message names the tensor, the rule and the value.
    """
    tensors = tuple(NamedTensor(head.name, head.datatype.name, _read_array(head, tail)) for head in heads)
    if tail is not None:
        tail.finish()
    return tensors


def refuse_duplicates(names: Iterable[str], key: str) -> None:
    """Check that names are distinct.

    Raises:
        BadRequest: one occurs twice.
    """
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise BadRequest(f"{label(key, index, name)}: the name occurs twice")
        seen.add(name)


def label(key: str, index: int, name: str) -> str:
    """How messages name an entry: `inputs[0] "image"`."""
    return _with_name(f"{key}[{index}]", name)


def _with_name(position: str, name: str) -> str:
    return f'{position} "{name[:60]}"'


def _read_head(entry: object, position: str) -> TensorHead:
    fields, name = named_entry(entry, position)
    where = _with_name(position, name)
    return TensorHead(
        name,
        datatype_named(fields.get("datatype"), where),
        _read_shape(fields.get("shape"), where),
        _read_binary_size(fields, where),
        fields.get("data"),
        where,
    )


def _read_array(head: TensorHead, tail: Tail | None) -> NDArray[Any]:
    size = head.binary_size
    if size is None:
        return array_from_json(head.data, head.datatype, head.shape, head.where)
    if tail is None:
        raise BadRequest(
            f"{head.where}: binary_data_size is given, but the {HEADER_LENGTH} header is missing"
        )
    return array_from_binary(tail.take(size, head.where), head.datatype, head.shape, head.where)


def _read_shape(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise BadRequest(f'{where}: "shape" must be a list of integers, got {shown(value)}')
    if len(value) > _MAX_DIMENSIONS:
        raise BadRequest(f"{where}: shape has {len(value)} dimensions, at most {_MAX_DIMENSIONS} are allowed")
    for dimension in value:
        # bool is an int to Python, not to the protocol.
        if type(dimension) is not int or dimension < 0:
            raise BadRequest(f"{where}: shape {shown(value)} must hold non-negative integers")
    # Zeros are left out: numpy refuses a zero-size array whose other dimensions overflow.
    if prod(filter(None, value)) > _MAX_ELEMENTS:
        raise BadRequest(f"{where}: shape {shown(value)} is larger than any body can be")
    return tuple(value)


def _read_binary_size(fields: dict[str, Any], where: str) -> int | None:
    """How many raw bytes the entry announces; None where it carries its data as JSON."""
    parameters = object_at(fields, "parameters", f"{where}: ")
    if "shared_memory_region" in parameters:
        raise BadRequest(f"{where}: shared memory is not supported; send the data in the body")
    size = parameters.get("binary_data_size")
    if size is None:
        if fields.get("data") is None:
            raise BadRequest(f'{where}: has neither "data" nor parameters.binary_data_size')
        return None
    if type(size) is not int or size < 0:
        raise BadRequest(f"{where}: binary_data_size must be a non-negative integer, got {shown(size)}")
    if fields.get("data") is not None:
        raise BadRequest(f'{where}: has both "data" and parameters.binary_data_size')
    return size


class WrittenTensor(NamedTuple):
    """A tensor ready to send: its entry, and its raw bytes where it goes in binary."""

    entry: dict[str, object]
    raw: bytes | memoryview | None


def write_tensor(tensor: NamedTensor, where: str, *, binary: bool) -> WrittenTensor:
    """Render one tensor.

    Raises:
        BadRequest: asked for as JSON, which its datatype or bytes have no form for.
        ServingError: asked for as JSON, and it is not finite.
    """
    datatype = DATATYPES[tensor.datatype]
    entry: dict[str, object] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": tensor.data.shape,
    }
    if binary:
        raw = binary_form(tensor.data, datatype)
        entry["parameters"] = {"binary_data_size": len(raw)}
        return WrittenTensor(entry, raw)
    entry["data"] = json_form(tensor.data.ravel(), datatype, where)
    return WrittenTensor(entry, None)
