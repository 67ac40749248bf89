"""One record per request: the raw material that every figure is computed from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

import orjson


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back for one request.

    Attributes:
        status: the HTTP status; None when there was no reply.
        error: why the request counts as failed; None when every row was answered.
        correct: rows whose largest output is at their label.
        obtained: how the answer came about, as the reply says it ("direct", "decoded", ...).
        degraded: the reply says that it was made from fewer replicas than the scheme wants.
        replicas_used: number of replicas behind the answer, as the reply says it.
        replicas_missing: the replicas that had been asked and had not answered, as the reply says it.
        error_estimate: the server's own estimate of the answer's error.
    """

    status: int | None = None
    error: str | None = None
    correct: int = 0
    obtained: str | None = None
    degraded: bool = False
    replicas_used: int | None = None
    replicas_missing: str | None = None
    error_estimate: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are in seconds from the start of the schedule.

    Attributes:
        index: position in the schedule.
        intended_s: when the schedule wanted it sent.
        sent_s: when its sending began; None when it never did.
        done_s: when its outcome was known.
        rows: rows asked for.
        outcome: what came back.
    """

    index: int
    intended_s: float
    sent_s: float | None
    done_s: float
    rows: int
    outcome: Outcome

    @property
    def failed(self) -> bool:
        """No usable answer: an error, a timeout, or never sent."""
        return self.outcome.error is not None

    @property
    def latency_s(self) -> float:
        """From the intended send time to the answer; infinite when it failed.

        A request that had to wait for its turn in the client has waited all the same; counting from the
        actual send would leave those waits out ("coordinated omission").
        """
        return math.inf if self.failed else self.done_s - self.intended_s

    @property
    def service_s(self) -> float:
        """From the actual send to the answer; infinite when it failed."""
        return math.inf if self.failed or self.sent_s is None else self.done_s - self.sent_s

    @property
    def lag_s(self) -> float | None:
        """How late the sender was; None when it never sent."""
        return None if self.sent_s is None else self.sent_s - self.intended_s


def write_records(stream: IO[bytes], scheme: str, records: Iterable[Record]) -> None:
    """Append the records to `stream` as JSON Lines, each with the scheme's label in front."""
    for record in records:
        stream.write(orjson.dumps(_as_json(scheme, record), option=orjson.OPT_APPEND_NEWLINE))


def _as_json(scheme: str, record: Record) -> dict[str, object]:
    outcome = record.outcome
    return {
        "scheme": scheme,
        "index": record.index,
        "intended_s": record.intended_s,
        "sent_s": record.sent_s,
        "done_s": record.done_s,
        "latency_ms": finite_ms(record.latency_s),
        "service_ms": finite_ms(record.service_s),
        "rows": record.rows,
        "correct": outcome.correct,
        "status": outcome.status,
        "error": outcome.error,
        "obtained": outcome.obtained,
        "degraded": outcome.degraded,
        "replicas_used": outcome.replicas_used,
        "replicas_missing": outcome.replicas_missing,
        "error_estimate": outcome.error_estimate,
    }


def finite_ms(seconds: float) -> float | None:
    """Seconds as milliseconds, to the microsecond; None for infinity, which JSON cannot say."""
    return round(seconds * 1000.0, 3) if math.isfinite(seconds) else None
