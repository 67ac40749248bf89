"""When a hedge is sent, and whether: pure state, told of every call.

The delay follows a percentile of how long calls have taken lately, so that about the slowest few are hedged whatever
the model and the load are. A budget bounds what that may cost: when every replica is slow, every call is late, and
hedging them all would double the load just then.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from math import ceil

from serving.types import CallOutcome

TIMED_CALLS = 1000
"""The percentile is one of so many calls, the latest."""
CALLS_BEFORE_TRACKING = 50
"""As long as fewer have been timed, the delay is the configured one."""
LATE_ROWS_AT_ONCE = 10.0
"""The most that the budget saves up, in rows; also what it starts with."""
JUDGED_CALLS = 100
"""The error rate is that of so many calls, the latest."""
CALLS_BEFORE_JUDGING = 20
HIGHEST_ERROR_RATE = 0.2
"""Above this share of failed calls nothing is hedged: more calls are not what failing replicas need."""


class Hedging:
    """What is known of recent calls, and what is left of the budget.

    Source: Dean and Barroso, "The Tail at Scale", 2013 (hedged requests after the 95th percentile, 5 % extra load).

    Args:
        delay_s: the delay until enough calls have been timed, and for good where `percentile` is None.
        percentile: of the times of recent calls, above 0 and below 100.
        budget: rows that may be sent a second time, as a share of all rows sent.
    """

    def __init__(self, delay_s: float, percentile: float | None, budget: float) -> None:
        self._start_s = delay_s
        self._share = None if percentile is None else percentile / 100
        self._budget = budget
        self._saved = LATE_ROWS_AT_ONCE
        self._recent: deque[float] = deque()
        self._ascending: list[float] = []
        self._outcomes: deque[bool] = deque(maxlen=JUDGED_CALLS)

    @property
    def delay_s(self) -> float:
        """How long a call may take before it is hedged, seconds."""
        count = len(self._ascending)
        if self._share is None or count < CALLS_BEFORE_TRACKING:
            return self._start_s
        return self._ascending[ceil(self._share * count) - 1]

    @property
    def failing(self) -> bool:
        """Whether too many of the latest calls failed."""
        calls = len(self._outcomes)
        return calls >= CALLS_BEFORE_JUDGING and calls - sum(self._outcomes) > HIGHEST_ERROR_RATE * calls

    def on_sent(self, rows: int) -> None:
        """A call that is no hedge goes out: it earns its share of the budget."""
        self._saved = min(LATE_ROWS_AT_ONCE, self._saved + self._budget * rows)

    def on_ended(self, outcome: CallOutcome, seconds: float) -> None:
        """A call that is no hedge ended.

        One that was cancelled before it was late says nothing: its caller left. One that was cancelled later took at
        least so long, and counts; without those the percentile would be one of the quick calls only.
        """
        if outcome != "cancelled":
            self._outcomes.append(outcome == "answered")
        if outcome == "answered" or (outcome == "cancelled" and seconds >= self.delay_s):
            self._time(seconds)

    def allow(self, rows: int) -> bool:
        """Whether a hedge of so many rows may be sent; it is paid for by this. The last one may overdraw."""
        if self.failing or self._saved <= 0.0:
            return False
        self._saved -= rows
        return True

    def _time(self, seconds: float) -> None:
        self._recent.append(seconds)
        insort(self._ascending, seconds)
        if len(self._recent) > TIMED_CALLS:
            self._ascending.remove(self._recent.popleft())
