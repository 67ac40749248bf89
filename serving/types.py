"""The value types that travel through the server: frozen, one per arrow of the architecture's flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import NDArray

Parameter: TypeAlias = str | int | float | bool
"""A V2 parameter value."""
NO_PARAMETERS: Mapping[str, Parameter] = MappingProxyType({})

CallOutcome: TypeAlias = Literal["answered", "failed", "cancelled"]
"""How an upstream call ended."""

Obtained: TypeAlias = Literal["direct", "replicated", "hedged", "decoded", "default"]
"""How an answer came about: from its own replica, from the first of several copies, decoded, or configured."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, V2 datatype and shape of a model input or output; -1 marks a variable dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def item_shape(self) -> tuple[int, ...]:
        """The shape of one row: everything after the batch dimension."""
        return self.shape[1:]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What `GET /v2/models/{name}` says."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """One tensor of a request or reply.

    Attributes:
        name: the tensor's name.
        datatype: its V2 datatype, such as "FP32".
        data: a C-contiguous array of exactly the tensor's shape (object dtype, of bytes, for "BYTES").
    """

    name: str
    datatype: str
    data: NDArray[Any]


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """One entry of a request's `outputs`; `binary` is None where the request does not say."""

    name: str
    binary: bool | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A parsed V2 inference request.

    Attributes:
        inputs: the input tensors, in the order of the request.
        outputs: the outputs asked for; empty means all of them.
        id: echoed unchanged when given.
        parameters: the request's parameters, none of which cross to another request.
        binary_output: the request-level default: answer in binary.
    """

    inputs: tuple[NamedTensor, ...]
    outputs: tuple[OutputRequest, ...] = ()
    id: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: NO_PARAMETERS)
    binary_output: bool = False


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A V2 inference reply before it is rendered, or after it was parsed."""

    model_name: str
    outputs: tuple[NamedTensor, ...]
    model_version: str | None = None
    id: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: NO_PARAMETERS)


class InferenceService(Protocol):
    """What the HTTP edge needs from whatever answers: the coded frontend, or one model in a worker."""

    def metadata(self) -> ModelMetadata:
        """The served model's metadata.

        Raises:
            NotReady: not known yet.
        """

    def ready(self) -> bool:
        """Whether inference would be answered now."""

    async def infer(self, request: InferRequest) -> InferResponse:
        """Answer one request.

        Cancelling the call withdraws the request and harms no other.

        Raises:
            ServingError: any member of the tree; the edge renders it.
        """


@dataclass(frozen=True, slots=True)
class Provenance:
    """How one row's answer was obtained.

    Attributes:
        obtained: own replica, first copy, hedge, decoded, or the configured default.
        replicas_used: number of replicas whose answers went into it.
        missing: names of the replicas that were asked and had not answered.
        wrong: names of the replicas whose answers were found wrong and left out.
        degraded: answered at the deadline, or after failures, from fewer arrivals than the scheme wants.
        error_estimate: estimated distance from the uncoded model's output (see `coding.scheme.Decoded`).
    """

    obtained: Obtained
    replicas_used: int
    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    degraded: bool = False
    error_estimate: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One row on its way in; compared by identity.

    Attributes:
        row: the row, in the item shape and the datatype of the model's input.
        deadline: the loop's time by which its caller must have an answer.
        raw: not fit for coding (it holds a non-finite value); it is answered by the model itself.
    """

    row: NDArray[Any]
    deadline: float
    raw: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One row on its way out: the output in the item shape of the model's output."""

    output: NDArray[Any]
    provenance: Provenance
