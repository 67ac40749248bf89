"""Forming groups: K rows, or those that came within the window, whichever is first.

Pure state with the time passed in. Rows that wait together are ordered by similarity before they are cut into
groups, because a curve through similar inputs is smoother and decodes better.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serving.config.schema import GroupingSettings
from serving.errors import BodyTooLarge, QueueFull
from serving.types import Query

FlushReason: TypeAlias = Literal["full", "window", "raw", "outlier"]
Ordering: TypeAlias = Callable[[NDArray[Any]], NDArray[np.intp]]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Up to K queries that are encoded together; query number k sits in slot k."""

    queries: tuple[Query, ...]
    reason: FlushReason
    waited_s: float

    @property
    def rows(self) -> int:
        """The number of queries."""
        return len(self.queries)


@dataclass(slots=True, eq=False)
class _Waiting:
    query: Query
    since: float


def keep_order(rows: NDArray[Any]) -> NDArray[np.intp]:
    """The order in which the rows came."""
    return np.arange(len(rows))


def outliers(rows: NDArray[Any], factor: float) -> NDArray[np.bool_]:
    """Which rows are of another size than most: their largest value is over `factor` times the median's, or under it.

    Args:
        rows: shape (k, ...), finite.
        factor: greater than 1.

    Returns:
        Shape (k,).
    """
    flat = rows.reshape(len(rows), -1)
    sizes = np.maximum(flat.max(axis=1), -flat.min(axis=1)).astype(np.float64)
    usual = _median(sizes)
    apart: NDArray[np.bool_] = (sizes > factor * usual) | (sizes * factor < usual)
    return apart


def _median(values: NDArray[np.float64]) -> float:
    """As `np.median`, which takes ten times as long for a few values."""
    ascending = np.sort(values)
    middle = len(values) // 2
    return float(ascending[middle] + ascending[~middle]) / 2.0


class GroupFormer:
    """Admits rows up to a limit and hands them out as groups."""

    def __init__(self, k: int, settings: GroupingSettings, ordering: Ordering = keep_order) -> None:
        self._k = k
        self._window_s = settings.window_ms / 1000
        self._outlier_factor = settings.outlier_factor
        self._max_groups = settings.max_groups_per_call
        self._max_rows = settings.max_queued_rows
        self._max_bytes = settings.max_queued_bytes
        self._ordering = ordering
        self._waiting: deque[_Waiting] = deque()
        self._raw: deque[_Waiting] = deque()
        self._admitted_rows = 0
        self._admitted_bytes = 0

    @property
    def waiting(self) -> int:
        """Rows that are not in a group yet."""
        return len(self._waiting) + len(self._raw)

    @property
    def admitted(self) -> tuple[int, int]:
        """Rows and bytes admitted and not released: waiting or being answered."""
        return self._admitted_rows, self._admitted_bytes

    def add(self, queries: Sequence[Query], now: float) -> None:
        """Admit the rows of one request, all or none.

        Raises:
            BodyTooLarge: the request is larger than the limits in rows or in bytes.
            QueueFull: it would pass them together with what is there.
        """
        size = sum(query.row.nbytes for query in queries)
        if len(queries) > self._max_rows or size > self._max_bytes:
            raise BodyTooLarge(
                f"a request may have {self._max_rows} rows (grouping.max_queued_rows) and {self._max_bytes} bytes "
                f"(grouping.max_queued_bytes), this one has {len(queries)} and {size}; send it in parts"
            )
        self._check("rows", self._admitted_rows, len(queries), self._max_rows)
        self._check("bytes", self._admitted_bytes, size, self._max_bytes)
        self._admitted_rows += len(queries)
        self._admitted_bytes += size
        for query in queries:
            (self._raw if query.raw else self._waiting).append(_Waiting(query, now))

    def release(self, query: Query) -> None:
        """A row was answered, failed or withdrawn: make room for another."""
        self._admitted_rows -= 1
        self._admitted_bytes -= query.row.nbytes

    def withdraw(self, query: Query) -> bool:
        """Take a row back that is in no group yet; false where it already is."""
        for queue in (self._waiting, self._raw):
            for entry in queue:
                if entry.query is query:
                    queue.remove(entry)
                    return True
        return False

    def due_at(self) -> float | None:
        """When the next group is due; in the past where one is due already, None where nothing waits."""
        if self._raw:
            return self._raw[0].since
        if not self._waiting:
            return None
        full = len(self._waiting) >= self._k
        return self._waiting[0].since + (0.0 if full else self._window_s)

    def take(self, now: float) -> list[Group]:
        """The groups that are due, up to the limit: full ones, and a partial one if its window is over."""
        groups = [Group((entry.query,), "raw", now - entry.since) for entry in self._raw]
        self._raw.clear()
        rows = min(len(self._waiting) // self._k, self._max_groups) * self._k
        if rows < len(self._waiting) < rows + self._k and now >= self._waiting[rows].since + self._window_s:
            rows = len(self._waiting)
        return groups + self._cut([self._waiting.popleft() for _ in range(rows)], now)

    def _cut(self, taken: list[_Waiting], now: float) -> list[Group]:
        alone: list[Group] = []
        if len(taken) > 1 and self._k > 1:
            rows = np.stack([entry.query.row for entry in taken])
            apart = outliers(rows, self._outlier_factor)
            if apart.any():
                alone = [
                    Group((taken[index].query,), "outlier", now - taken[index].since)
                    for index in np.flatnonzero(apart)
                ]
                kept = np.flatnonzero(~apart)
                taken, rows = [taken[index] for index in kept], rows[kept]
            taken = [taken[index] for index in self._ordering(rows)] if taken else []
        pieces = [taken[start : start + self._k] for start in range(0, len(taken), self._k)]
        return alone + [
            Group(
                tuple(entry.query for entry in piece),
                "full" if len(piece) == self._k else "window",
                now - min(entry.since for entry in piece),
            )
            for piece in pieces
        ]

    def _check(self, unit: str, have: int, more: int, limit: int) -> None:
        if have + more > limit:
            raise QueueFull(
                f"the queue is full: {have} {unit} are waiting or being answered, this request has {more}, "
                f"grouping.max_queued_{unit} is {limit}",
                retry_after_s=1.0,
            )
