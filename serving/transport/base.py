"""The port between the dispatcher and a replica."""

from __future__ import annotations

from typing import Protocol

from serving.types import InferRequest, InferResponse, ModelMetadata


class Transport(Protocol):
    """One replica, however it is reached.

    Contract, checked by `tests/contract`: every method may be cancelled at any await and then leaks no
    connection, task or buffer; every failure is a `TransportError`, raised from its cause; methods may be called
    concurrently; after `aclose` (which may be called twice) every call raises `ReplicaUnreachable`.
    """

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run the model on the request's rows. The answer has been checked (`serving.transport.answers`).

        Raises:
            TransportError: the replica did not give a well-formed answer.
        """

    async def metadata(self) -> ModelMetadata:
        """The model's metadata as this replica reports it.

        Raises:
            TransportError: the replica did not give a well-formed answer.
        """

    async def ready(self) -> bool:
        """Probe the replica on a connection of its own, never queued behind inference. Never raises."""

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
