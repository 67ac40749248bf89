"""What the server tells whoever watches it. The pipeline reports; metrics, logs and tests listen."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from serving.grouping import FlushReason
from serving.health import State
from serving.types import CallOutcome, Provenance

Stage: TypeAlias = Literal["encode", "decode"]


class Observer(Protocol):
    """Listener; every method is quick, never raises and never blocks."""

    def group_formed(self, rows: int, size: int, reason: FlushReason, waited_s: float) -> None:
        """A group of `rows` queries was formed where a full one has `size`."""

    def stage_done(self, stage: Stage, seconds: float) -> None:
        """A computation on the event loop ended."""

    def call_done(self, replica: str, outcome: CallOutcome, seconds: float) -> None:
        """An upstream call ended."""

    def task_skipped(self, replica: str) -> None:
        """A task was not sent: its replica is down, ejected or backlogged."""

    def row_answered(self, provenance: Provenance) -> None:
        """A row got its answer."""

    def request_done(self, outcome: str, seconds: float) -> None:
        """A request ended: "ok", or the class of its error."""

    def arrival_wrong(self, replica: str) -> None:
        """A replica's arrival was found wrong and left out."""

    def replica_state(self, replica: str, state: State) -> None:
        """A replica changed state."""
