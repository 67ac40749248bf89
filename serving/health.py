"""Health of one replica, learnt from real traffic: a pure state machine with the time passed in.

    starting --probe answers--> healthy      (down: its process is gone; starting again follows)
    healthy --silent for too long, or failing--> suspect --probe fails--> ejected --probe answers--> healthy
                                                    `------probe answers------------------------------^

A straggler's call is usually cancelled before it answers, so one missing answer says nothing. What counts is how
long ago it was that a replica was asked something and has answered nothing since: its *silence*. Only a probe on a
connection of its own turns a suspicion into an ejection.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

State: TypeAlias = Literal["starting", "healthy", "suspect", "ejected", "down"]

FAILURES_BEFORE_SUSPICION = 3
"""Errors in a row. One or two are a hiccup, and the code absorbs them."""


class Health:
    """State of one replica."""

    def __init__(self, hang_after_s: float) -> None:
        self._hang_after_s = hang_after_s
        self._state: State = "starting"
        self._in_hand = 0
        self._unanswered_since: float | None = None
        self._failures = 0

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    @property
    def serving(self) -> bool:
        """Whether new calls may be sent to it."""
        return self._state in ("healthy", "suspect")

    def silence_s(self, now: float) -> float:
        """Seconds since it was asked something, if it has answered nothing since."""
        return 0.0 if self._unanswered_since is None else now - self._unanswered_since

    def on_starting(self) -> None:
        """There is a way to reach it, and nothing is known about it yet."""
        self._state = "starting"

    def on_up(self) -> None:
        """It answered a warm-up or a probe."""
        self._state = "healthy"
        self._unanswered_since = None
        self._failures = 0

    def on_down(self) -> None:
        """Its process is gone."""
        self._state = "down"

    def on_sent(self, now: float) -> None:
        """A call goes out."""
        self._in_hand += 1
        if self._unanswered_since is None:
            self._unanswered_since = now

    def on_answered(self, now: float) -> None:
        """A call was answered well."""
        self._in_hand -= 1
        self._unanswered_since = now if self._in_hand else None
        self._failures = 0
        if self._state == "suspect":
            self._state = "healthy"

    def on_cancelled(self, now: float) -> None:
        """A call was withdrawn before it answered."""
        self._in_hand -= 1
        self.review(now)

    def on_failed(self, now: float) -> None:
        """A call failed."""
        self._in_hand -= 1
        self._failures += 1
        self.review(now)

    def review(self, now: float) -> None:
        """Suspect it if it has been silent too long or keeps failing."""
        if self._state != "healthy":
            return
        if self._failures >= FAILURES_BEFORE_SUSPICION or self.silence_s(now) >= self._hang_after_s:
            self._state = "suspect"

    def on_probe_failed(self, *, may_eject: bool) -> None:
        """A probe failed; eject it unless too many are ejected already."""
        if self._state == "suspect" and may_eject:
            self._state = "ejected"
