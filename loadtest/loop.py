"""An event loop whose timers keep to the microsecond."""

from __future__ import annotations

import asyncio
import select
import selectors


class _PreciseEpollSelector(selectors.EpollSelector):
    """epoll waits for whole milliseconds, rounded up twice on the way: a sender would be a millisecond late.

    An epoll object is a file itself, and `select` waits for it with microsecond timeouts.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def precise_loop() -> asyncio.AbstractEventLoop:
    """A new event loop for senders that keep a schedule."""
    return asyncio.SelectorEventLoop(_PreciseEpollSelector())
