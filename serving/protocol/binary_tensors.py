"""Tensors as raw bytes (the binary tensor extension): little-endian, row-major, no gaps."""

from __future__ import annotations

from math import prod
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from serving.errors import BadRequest
from serving.protocol.datatypes import Datatype
from serving.protocol.json_tensors import bytes_array

_LENGTH: Final = Struct("<I")
_QUIET_NAN_BIT: Final = np.uint32(0x0040)


def array_from_binary(
    raw: memoryview, datatype: Datatype, shape: tuple[int, ...], where: str
) -> NDArray[Any]:
    """The array that a tensor's raw bytes mean: a view of them, copied only where it would not be aligned.

    Args:
        raw: exactly the tensor's bytes.
        datatype: of the tensor.
        shape: of the tensor, already validated.
        where: the tensor's position and name, for messages.

    Raises:
        BadRequest: the bytes do not hold exactly the shape's elements.
    """
    if datatype.kind == "bytes":
        return bytes_array(_split_elements(raw, prod(shape), where)).reshape(shape)
    needed = prod(shape) * datatype.item_bytes
    if len(raw) != needed:
        needs = f"shape {list(shape)} of {datatype.name} needs {needed}"
        raise BadRequest(f"{where}: binary data has {len(raw)} bytes, {needs}")
    if datatype.name == "BF16":
        return _widen_bf16(np.frombuffer(raw, dtype="<u2")).reshape(shape)
    if datatype.kind == "bool":
        _check_booleans(raw, where)
    array = np.frombuffer(raw, dtype=datatype.dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _check_booleans(raw: memoryview, where: str) -> None:
    values = np.frombuffer(raw, dtype=np.uint8)
    if values.size and (largest := values.max()) > 1:
        raise BadRequest(f"{where}: BOOL binary data must be bytes of 0 or 1, got {largest}")


def _split_elements(raw: memoryview, count: int, where: str) -> list[bytes]:
    elements: list[bytes] = []
    offset = 0
    while offset < len(raw):
        start = offset + _LENGTH.size
        if start > len(raw):
            raise _truncated(where, len(elements), "its 4-byte length", len(raw) - offset)
        (length,) = _LENGTH.unpack_from(raw, offset)
        offset = start + length
        if offset > len(raw):
            raise _truncated(where, len(elements), f"{length} bytes", len(raw) - start)
        elements.append(bytes(raw[start:offset]))
    if len(elements) != count:
        raise BadRequest(f"{where}: binary data has {len(elements)} BYTES elements, the shape needs {count}")
    return elements


def _truncated(where: str, index: int, wanted: str, left: int) -> BadRequest:
    return BadRequest(f"{where}: BYTES element {index} is cut short: needs {wanted}, {left} bytes are left")


def binary_form(array: NDArray[Any], datatype: Datatype) -> bytes | memoryview:
    """A tensor's raw bytes: a view of the array where its layout is the wire's, a copy elsewhere."""
    if datatype.kind == "bytes":
        return b"".join(_LENGTH.pack(len(element)) + element for element in array.ravel())
    flat = array.ravel()
    if datatype.name == "BF16":
        return _narrow_bf16(flat).view(np.uint8).data
    return flat.astype(datatype.dtype, copy=False).view(np.uint8).data


def _widen_bf16(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _narrow_bf16(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = array.view(np.uint32)
    upper = bits >> 16
    # Round to nearest, ties to even. A NaN must not carry into infinity: it keeps its upper half, made quiet.
    rounded = (bits.astype(np.uint64) + 0x7FFF + (upper & 1)) >> 16
    return np.where(np.isnan(array), upper | _QUIET_NAN_BIT, rounded).astype("<u2")
