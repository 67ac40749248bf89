"""Health of one replica, learnt from real traffic: a pure state machine with the time passed in.

    starting --probe answers--> healthy      (down: its process is gone; starting again follows)
    healthy --silent for too long, or failing--> suspect --probe fails--> ejected --probe answers--> healthy
       |                                            `------probe answers------------------------------^
       `--wrong again and again--> ejected --after its term, a probe answers--> healthy, on probation

A straggler's call is usually cancelled before it answers, so one missing answer says nothing. What counts is how
long ago it was that a replica was asked something and has answered nothing since: its *silence*. Only a probe on a
connection of its own turns a suspicion into an ejection.

A replica that answers wrongly answers probes as well as any other, so probes say nothing here. It is ejected for what
was found in real groups, for a term that no probe shortens, and comes back on probation: one more wrong arrival among
the next few ejects it again, for twice as long.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

State: TypeAlias = Literal["starting", "healthy", "suspect", "ejected", "down"]

FAILURES_BEFORE_SUSPICION = 3
"""Errors in a row. One or two are a hiccup, and the code absorbs them."""
CHECKED_ARRIVALS = 10
"""How many of a replica's last arrivals count, among those that were looked at for being wrong; its probation, too."""
LONGEST_TERM = 64
"""The longest ejection for wrong arrivals, in first ones."""


class Health:
    """State of one replica.

    Args:
        hang_after_s: a silence of this many seconds makes it suspect.
        wrong_before_ejection: as many wrong arrivals of the last `CHECKED_ARRIVALS` eject it.
        wrong_ejection_s: the first such ejection lasts as many seconds.
    """

    def __init__(
        self, hang_after_s: float, wrong_before_ejection: int = 3, wrong_ejection_s: float = 30.0
    ) -> None:
        self._hang_after_s = hang_after_s
        self._wrong_before_ejection = wrong_before_ejection
        self._wrong_ejection_s = wrong_ejection_s
        self._checked: deque[bool] = deque(maxlen=CHECKED_ARRIVALS)
        self._held_until = 0.0
        self._term = 1
        self._probation = 0
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

    @property
    def on_probation(self) -> bool:
        """Whether it was ejected for wrong arrivals and has not yet shown that it can do without."""
        return self._probation > 0

    def is_held(self, now: float) -> bool:
        """Whether it is ejected for wrong arrivals, so that no probe may bring it back yet."""
        return self._state == "ejected" and now < self._held_until

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
        """Its process is gone; another one has a record of its own."""
        self._state = "down"
        self._forget_arrivals()

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

    def on_checked(self, now: float, *, wrong: bool, may_eject: bool) -> None:
        """One of its arrivals was looked at; eject it for too many wrong ones, unless too many are ejected already."""
        if not self.serving:
            return  # it was asked before it was ejected
        self._checked.append(wrong)
        tolerated = 1 if self.on_probation else self._wrong_before_ejection
        if sum(self._checked) >= tolerated:
            if may_eject:
                self._eject_for_wrong_arrivals(now)
        elif self._probation > 0:
            self._probation -= 1
            if self._probation == 0:
                self._term = 1

    def _eject_for_wrong_arrivals(self, now: float) -> None:
        self._state = "ejected"
        self._held_until = now + self._term * self._wrong_ejection_s
        self._term = min(2 * self._term, LONGEST_TERM)
        self._probation = CHECKED_ARRIVALS
        self._checked.clear()

    def _forget_arrivals(self) -> None:
        self._checked.clear()
        self._held_until = 0.0
        self._term = 1
        self._probation = 0
