"""The V2 datatypes and the arrays that hold them.

Two of them have no numpy dtype of the same layout. BF16 is widened to float32 on the way in and rounded (to
nearest, ties to even) on the way out, so a BF16 tensor's array is float32. BYTES elements have any length; a
BYTES tensor's array has object dtype and holds `bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from serving.errors import BadRequest, ServingError
from serving.protocol.json_text import shown

Kind = Literal["bool", "int", "float", "bytes"]


@dataclass(frozen=True, slots=True)
class Datatype:
    """One V2 datatype.

    Attributes:
        name: as written on the wire, such as "FP32".
        dtype: of the array that holds such a tensor; little-endian, as on the wire.
        item_bytes: bytes of one element on the wire; 0 for BYTES, whose elements carry their own length.
        kind: what its elements are.
        in_json: whether the protocol gives its elements a JSON form.
    """

    name: str
    dtype: np.dtype[Any]
    item_bytes: int
    kind: Kind
    in_json: bool = True


def _table() -> dict[str, Datatype]:
    integers = [f"{sign}INT{bits}" for sign in ("U", "") for bits in (8, 16, 32, 64)]
    rows = [
        Datatype("BOOL", np.dtype(np.bool_), 1, "bool"),
        *(_plain(name, np.dtype(name.lower()), "int") for name in integers),
        _plain("FP16", np.dtype(np.float16), "float", in_json=False),
        _plain("FP32", np.dtype(np.float32), "float"),
        _plain("FP64", np.dtype(np.float64), "float"),
        Datatype("BF16", np.dtype("<f4"), 2, "float", in_json=False),
        Datatype("BYTES", np.dtype(np.object_), 0, "bytes"),
    ]
    return {row.name: row for row in rows}


def _plain(name: str, dtype: np.dtype[Any], kind: Kind, *, in_json: bool = True) -> Datatype:
    return Datatype(name, dtype.newbyteorder("<"), dtype.itemsize, kind, in_json)


DATATYPES: Final[Mapping[str, Datatype]] = MappingProxyType(_table())
"""Every V2 datatype by name."""

_NAMES: Final[Mapping[np.dtype[Any], str]] = MappingProxyType(
    {datatype.dtype: name for name, datatype in DATATYPES.items() if name != "BF16"}
)


def datatype_named(name: object, where: str) -> Datatype:
    """The datatype of that name.

    Args:
        name: the value found on the wire, of any type.
        where: what it was found on, for the message.

    Raises:
        BadRequest: there is no such datatype.
    """
    datatype = DATATYPES.get(name) if isinstance(name, str) else None
    if datatype is None:
        raise BadRequest(f"{where}: unknown datatype {shown(name)}; known: {', '.join(DATATYPES)}")
    return datatype


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The name of the V2 datatype that carries arrays of this dtype; never "BF16", which numpy does not know.

    Raises:
        ServingError: no V2 datatype carries it.
    """
    name = _NAMES.get(dtype.newbyteorder("<"))
    if name is None:
        raise ServingError(f"no V2 datatype carries numpy's {dtype}")
    return name
