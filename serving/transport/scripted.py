"""A replica that follows a script: the fake for tests of whatever sits above a transport.

It keeps to the same contract as the real ones and runs on the event loop's time, real or virtual.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from serving.errors import ReplicaUnreachable, TransportError
from serving.transport.answers import check_answer
from serving.types import InferRequest, InferResponse, ModelMetadata

Model: TypeAlias = Callable[[InferRequest], InferResponse]
Outcome: TypeAlias = Literal["pending", "answered", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one call.

    Attributes:
        delay_s: seconds until the result; `math.inf` is a call that is never answered.
        result: an error to raise, an answer to give, or a function from the request to the answer.
    """

    result: TransportError | InferResponse | Model
    delay_s: float = 0.0


@dataclass(slots=True)
class ScriptedCall:
    """One call that was made.

    Attributes:
        request: what was asked.
        started: the loop's time when it began.
        ended: the loop's time when it ended; None while it is pending.
        outcome: how it ended.
    """

    request: InferRequest
    started: float
    ended: float | None = None
    outcome: Outcome = field(default="pending")


class ScriptedTransport:
    """Follows a script, one step a call; the last step repeats for ever.

    Args:
        steps: at least one step.
        metadata: the model's metadata; an error stands for a replica that does not give it.
        ready: what `ready` says; may be changed at any time.

    Attributes:
        calls: every call to `infer` so far, in the order in which they began.
    """

    def __init__(
        self, steps: Iterable[Step], metadata: ModelMetadata | TransportError, *, ready: bool = True
    ) -> None:
        self._steps = tuple(steps)
        if not self._steps:
            raise ValueError("steps must hold at least one step, got none")
        self._metadata = metadata
        self._closed = False
        self._pending: set[asyncio.Future[None]] = set()
        self.is_ready = ready
        self.calls: list[ScriptedCall] = []

    @property
    def pending(self) -> int:
        """Calls under way."""
        return len(self._pending)

    async def infer(self, request: InferRequest) -> InferResponse:
        """Go through the next step.

        Raises:
            TransportError: the script says so, or the transport is closed.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        step = self._steps[min(len(self.calls), len(self._steps) - 1)]
        call = ScriptedCall(request, started=loop.time())
        self.calls.append(call)
        try:
            await self._wait(step.delay_s)
            response = _play(step, request)
            if not isinstance(self._metadata, TransportError):
                check_answer(request, response, self._metadata.outputs)
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        except TransportError:
            call.outcome = "failed"
            raise
        else:
            call.outcome = "answered"
            return response
        finally:
            call.ended = loop.time()

    async def metadata(self) -> ModelMetadata:
        """The metadata that the script was given.

        Raises:
            TransportError: it was given an error, or the transport is closed.
        """
        self._check_open()
        if isinstance(self._metadata, TransportError):
            raise self._metadata
        return self._metadata

    async def ready(self) -> bool:
        """Whatever `is_ready` holds; False once closed."""
        return self.is_ready and not self._closed

    async def aclose(self) -> None:
        """End; calls that are under way fail. Idempotent."""
        self._closed = True
        for call in self._pending:
            if not call.done():
                call.set_exception(_closed())

    async def _wait(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        call: asyncio.Future[None] = loop.create_future()
        timer = None if math.isinf(delay_s) else loop.call_later(delay_s, _finish, call)
        self._pending.add(call)
        try:
            await call
        finally:
            self._pending.discard(call)
            if timer is not None:
                timer.cancel()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _play(step: Step, request: InferRequest) -> InferResponse:
    if isinstance(step.result, TransportError):
        # A fresh one each time: an exception remembers where it was raised.
        raise type(step.result)(*step.result.args)
    if isinstance(step.result, InferResponse):
        return step.result
    return step.result(request)


def _finish(call: asyncio.Future[None]) -> None:
    if not call.done():
        call.set_result(None)


def _closed() -> ReplicaUnreachable:
    return ReplicaUnreachable("the scripted transport is closed")
