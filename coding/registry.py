"""Which schemes there are: a new one is its own file and one line in each of the two lists below."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from coding.berrut import BerrutParams
from coding.copies import HedgedParams, NoneParams, ReplicationParams
from coding.lagrange import LagrangeParams
from coding.layered import LayeredParams
from coding.letcc import LetccParams

AnySchemeParams: TypeAlias = (
    NoneParams
    | ReplicationParams
    | HedgedParams
    | BerrutParams
    | LetccParams
    | LagrangeParams
    | LayeredParams
)
"""The parameters of any scheme; `kind` tells them apart."""

PARAMS_BY_KIND: Mapping[str, type[AnySchemeParams]] = MappingProxyType(
    {
        "none": NoneParams,
        "replication": ReplicationParams,
        "hedged": HedgedParams,
        "berrut": BerrutParams,
        "letcc": LetccParams,
        "lagrange": LagrangeParams,
        "layered": LayeredParams,
    }
)
"""`scheme.kind` of the configuration to the class of its parameters."""
