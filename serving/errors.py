"""Every error the server raises on purpose; each class carries its HTTP status.

ServingError                      500
|-- BadRequest                    400  the message names field, rule and value
|   |-- BodyTooLarge              413
|   `-- UnsupportedEncoding       415
|-- NotFound                      404  no such model, version or route
|-- AnswerNotFinite               422  what the model answers to this row is no number
|-- Unavailable                   503  try again later; may carry Retry-After
|   |-- NotReady                       too few replicas have answered yet
|   |-- QueueFull                      admission limit reached
|   |-- Draining                       the server is shutting down
|   `-- TooFewReplicas                 too many of the group's replicas failed
|-- DeadlineExceeded              504  the request's deadline passed before an answer was possible
|-- ConfigError                        a bad configuration, at start
`-- TransportError                502  one call to one replica failed
    |-- ReplicaUnreachable             refused, reset or no such host
    |-- ReplicaTimeout                 no answer in time
    |-- ReplicaRefused                 the replica answered with an error status
    `-- BadReplicaAnswer               an answer of the wrong shape, type or encoding
        `-- NotFiniteAnswer            or one that is not finite
"""

from __future__ import annotations

from typing import ClassVar


class ServingError(Exception):
    """Base of the tree; an unexpected failure inside the server."""

    status: ClassVar[int] = 500

    @property
    def headers(self) -> dict[str, str]:
        """Response headers that belong to this error."""
        return {}


class BadRequest(ServingError):
    """The client's request breaks a rule."""

    status = 400


class BodyTooLarge(BadRequest):
    """The body is over the limit; found before it was buffered."""

    status = 413


class UnsupportedEncoding(BadRequest):
    """A content encoding that this server does not speak."""

    status = 415


class NotFound(ServingError):
    """No such model, version or route."""

    status = 404


class AnswerNotFinite(ServingError):
    """Every replica's answer to this row overflowed or is no number; asking again will not help."""

    status = 422


class Unavailable(ServingError):
    """The server cannot take this request now; the same request may succeed later."""

    status = 503

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After`, in whole seconds and at least 1, where a wait makes sense."""
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after_s)))}


class NotReady(Unavailable):
    """Too few replicas have answered a warm-up yet."""


class QueueFull(Unavailable):
    """The admission limit is reached."""


class Draining(Unavailable):
    """The server is shutting down."""


class TooFewReplicas(Unavailable):
    """So many of a group's replicas failed that its answer cannot be decoded."""


class DeadlineExceeded(ServingError):
    """The request's deadline passed before an answer was possible."""

    status = 504


class ConfigError(ServingError):
    """The configuration breaks a rule; raised at start, with one readable message."""


class TransportError(ServingError):
    """One call to one replica failed. A group survives as many of these as its code tolerates."""

    status = 502


class ReplicaUnreachable(TransportError):
    """The connection was refused or reset, or the host does not exist."""


class ReplicaTimeout(TransportError):
    """The replica did not answer in time."""


class ReplicaRefused(TransportError):
    """The replica answered with an error status."""


class BadReplicaAnswer(TransportError):
    """The replica's answer has the wrong shape, type or encoding."""


class NotFiniteAnswer(BadReplicaAnswer):
    """The replica's answer is not finite; it would spread over all answers of the group."""
