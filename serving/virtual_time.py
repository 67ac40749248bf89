"""An event loop whose clock jumps to the next timer, so that simulated minutes pass in seconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: where the loop would sleep, its clock moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Pretend that the time has passed.

        Raises:
            RuntimeError: no timer is set and nothing is ready, so that nothing would ever happen again.
        """
        if timeout is None:
            raise RuntimeError("the simulation waits for something that cannot happen")
        self.now += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs tasks, timers and futures as ever, in virtual time; there is no I/O in it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now


def run_in_virtual_time(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine on such a loop, and end what it leaves behind."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
