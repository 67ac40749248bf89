"""Tensors as JSON: nested or flat lists in row-major order, to arrays and back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.errors import BadRequest, ServingError
from serving.protocol.datatypes import Datatype
from serving.protocol.json_text import shown

_ALLOWED: dict[str, frozenset[type]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "float": frozenset({int, float}),
    "bytes": frozenset({str}),
}
_WANTED = {"bool": "true or false", "int": "integers", "float": "numbers", "bytes": "strings"}


def array_from_json(data: object, datatype: Datatype, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    """The array that a JSON `data` field means.

    Args:
        data: the parsed field: nested as the shape says, or with trailing dimensions (up to all) left flat.
        datatype: of the tensor.
        shape: of the tensor, already validated.
        where: the tensor's position and name, for messages.

    Raises:
        BadRequest: wrong count, ragged nesting, elements of another type, or out of the datatype's range.
    """
    if not datatype.in_json:
        raise BadRequest(f"{where}: {datatype.name} has no JSON form; send it as binary data")
    items = flatten(data, shape, where)
    return array_of_items(items, datatype, where).reshape(shape)


def flatten(data: object, shape: tuple[int, ...], where: str) -> list[Any]:
    """The elements of `data` in row-major order, as many as the shape needs.

    Raises:
        BadRequest: not a list, ragged, nested otherwise than the shape says, or of the wrong count.
    """
    if not isinstance(data, list):
        raise BadRequest(f"{where}: data must be a list, got {shown(data)}")
    lists, items, depth = [data], data, 0
    while items and type(items[0]) is list:
        _check_level(items, lists, shape, depth, where)
        lists, items, depth = items, list(chain.from_iterable(items)), depth + 1
    if len(set(map(len, lists))) > 1:
        raise BadRequest(f"{where}: data is ragged: lists of {_lengths(lists)} values at level {depth}")
    if len(items) != prod(shape):
        raise BadRequest(f"{where}: data has {len(items)} values, shape {list(shape)} needs {prod(shape)}")
    return items


def _check_level(items: list[Any], lists: list[Any], shape: tuple[int, ...], depth: int, where: str) -> None:
    if set(map(type, items)) != {list}:
        raise BadRequest(f"{where}: data mixes lists and values at level {depth + 1}")
    lengths = set(map(len, lists))
    if len(lengths) > 1:
        raise BadRequest(f"{where}: data is ragged: lists of {_lengths(lists)} lists at level {depth}")
    if depth + 1 >= len(shape) or lengths != {shape[depth]}:
        nesting = f"lists of {_lengths(lists)} lists at level {depth}"
        raise BadRequest(f"{where}: data is nested otherwise than shape {list(shape)} says: {nesting}")


def _lengths(lists: list[Any]) -> str:
    lengths = sorted(set(map(len, lists)))
    return " and ".join(map(str, lengths[:3])) + (" ..." if len(lengths) > 3 else "")


def array_of_items(items: list[Any], datatype: Datatype, where: str) -> NDArray[Any]:
    """A flat array of parsed JSON values.

    Raises:
        BadRequest: a value is of another type, or out of the datatype's range.
    """
    # numpy would read "12" as 12, true as 1 and 1.5 as 1.
    if not _ALLOWED[datatype.kind].issuperset(map(type, items)):
        raise _wrong_type(items, datatype, where)
    if datatype.kind == "bytes":
        return bytes_array([utf8(item, where) for item in items])
    if datatype.kind == "float":
        return _float_array(items, datatype, where)
    try:
        return np.array(items, dtype=datatype.dtype)
    except OverflowError as error:
        raise _out_of_range(items, datatype, where) from error


def bytes_array(items: list[bytes]) -> NDArray[Any]:
    """A flat array of BYTES elements."""
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array


def utf8(text: str, where: str) -> bytes:
    """A JSON string as a BYTES element.

    Raises:
        BadRequest: it holds half of a surrogate pair, which JSON can escape and UTF-8 cannot carry.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(f"{where}: data holds a string that is not valid Unicode: {shown(text)}") from error


def _float_array(items: list[Any], datatype: Datatype, where: str) -> NDArray[Any]:
    try:
        wide = np.array(items, dtype=np.float64)
    except OverflowError as error:
        raise _out_of_range(items, datatype, where) from error
    with np.errstate(over="ignore"):
        array = wide.astype(datatype.dtype, copy=False)
    if not np.array_equal(np.isfinite(array), np.isfinite(wide)):
        raise _out_of_range(items, datatype, where)
    return array


def _wrong_type(items: list[Any], datatype: Datatype, where: str) -> BadRequest:
    allowed = _ALLOWED[datatype.kind]
    index, value = next((index, item) for index, item in enumerate(items) if type(item) not in allowed)
    wanted = _WANTED[datatype.kind]
    return BadRequest(f"{where}: {datatype.name} data must be {wanted}, element {index} is {shown(value)}")


def _out_of_range(items: list[Any], datatype: Datatype, where: str) -> BadRequest:
    lowest, highest = _range_of(datatype)
    # Python compares an integer of any size with a float exactly; NaN and the infinities are in range.
    index, value = next(
        (index, item)
        for index, item in enumerate(items)
        if (item < lowest or item > highest) and item not in (inf, -inf)
    )
    bounds = f"{lowest} to {highest}"
    return BadRequest(f"{where}: element {index} is {shown(value)}, outside {datatype.name} ({bounds})")


def _range_of(datatype: Datatype) -> tuple[float, float]:
    if datatype.kind == "int":
        integers = np.iinfo(datatype.dtype)
        return int(integers.min), int(integers.max)
    floats = np.finfo(datatype.dtype)
    return float(floats.min), float(floats.max)


def json_form(array: NDArray[Any], datatype: Datatype, where: str) -> NDArray[Any] | list[Any]:
    """What `orjson` writes as a tensor's data: a numeric array as it is, BYTES as strings in its nesting.

    Raises:
        BadRequest: the datatype, or these bytes, have no JSON form.
        ServingError: a value is not finite; JSON has no token for it.
    """
    if not datatype.in_json:
        raise BadRequest(f"{where}: {datatype.name} has no JSON form; ask for binary data")
    if datatype.kind == "bytes":
        return map_elements(array, lambda element: _text(element, where))
    if datatype.kind == "float" and not np.isfinite(array).all():
        raise ServingError(f"{where}: holds NaN or Infinity, which JSON cannot carry; binary data can")
    return array


def map_elements(array: NDArray[Any], convert: Callable[[bytes], object]) -> list[Any]:
    """The nested list of an array of at least 1 dimension, with every BYTES element converted."""
    converted = np.empty(array.size, dtype=np.object_)
    converted[:] = [convert(element) for element in array.ravel()]
    nested: list[Any] = converted.reshape(array.shape).tolist()
    return nested


def _text(element: bytes, where: str) -> str:
    try:
        return element.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{where}: holds bytes that are not UTF-8; ask for binary data") from error
