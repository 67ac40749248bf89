"""The order of the stages: group, encode, dispatch, collect, decode. Nothing else knows it.

A caller hands over the rows of one request and waits. Rows become groups, and groups that are due together become
batches, each of which runs as one task of the pipeline's own task group. Whatever happens there, every caller's
future is resolved.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from numpy.typing import NDArray

from coding.scheme import SchemeParams, fewest_arrivals
from serving.batch import Batch, Stages
from serving.errors import DeadlineExceeded, Draining, ServingError, TooFewReplicas
from serving.grouping import Group, GroupFormer
from serving.types import Answer, Provenance, Query

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Pending:
    """One request: its answers so far, in order, and the future that its caller awaits."""

    future: asyncio.Future[list[Answer]]
    answers: list[Answer | None]
    left: int


class Pipeline:
    """Answers rows through coded replicas. Made inside a running event loop.

    Args:
        params: the scheme's parameters; a group of any size gets its own scheme from them.
        former: forms the groups.
        stages: what a batch needs to run.
        default: the output that a row gets which cannot be answered, in the item shape of the model's output; None
            gives it its error.
    """

    def __init__(
        self,
        params: SchemeParams,
        former: GroupFormer,
        stages: Stages,
        default: NDArray[Any] | None = None,
    ) -> None:
        self._default = default
        self._params = params
        self._former = former
        self._stages = stages
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._waiting: dict[Query, tuple[_Pending, int]] = {}
        self._batches: dict[Query, Batch] = {}
        self._accepting = True
        self.enough = fewest_arrivals(params.build(params.k))
        stages.replicas.on_change(self._on_replicas_changed)

    @property
    def accepting(self) -> bool:
        """Whether new rows are accepted."""
        return self._accepting

    @property
    def pending(self) -> int:
        """Rows that have no answer yet."""
        return len(self._waiting)

    async def answer(
        self, rows: Sequence[NDArray[Any]], deadline: float, *, raw: Sequence[bool] = ()
    ) -> list[Answer]:
        """Answer the rows of one request, in order.

        Args:
            rows: each in the item shape and datatype of the model's input.
            deadline: the loop's time by which the answers must be there.
            raw: which rows must not be coded; none by default.

        Raises:
            QueueFull: the admission limit is reached; nothing was queued.
            Draining: the server is shutting down.
            TooFewReplicas: too many replicas failed for one of the rows.
            DeadlineExceeded: the deadline passed first.
        """
        if not self._accepting:
            raise Draining("the server is shutting down")
        flags = raw or [False] * len(rows)
        queries = [Query(row, deadline, flag) for row, flag in zip(rows, flags, strict=True)]
        self._former.add(queries, self._loop.time())
        # One future for all rows: one for each, gathered, takes a turn of the loop more for every one of them.
        pending = _Pending(self._loop.create_future(), [None] * len(queries), len(queries))
        self._waiting.update((query, (pending, index)) for index, query in enumerate(queries))
        self._wake.set()
        try:
            await asyncio.wait({pending.future}, timeout=max(0.0, deadline - self._loop.time()))
            if not pending.future.done():
                late = DeadlineExceeded("the deadline passed before enough replicas had answered")
                for query in queries:
                    self._resolve(query, late)
            return pending.future.result()
        finally:
            self._leave(queries)

    def stop_accepting(self) -> None:
        """Refuse new rows; those already accepted are answered."""
        self._accepting = False

    async def run(self) -> None:
        """Form and run batches until cancelled; then fail whatever still waits."""
        try:
            async with asyncio.TaskGroup() as running:
                while True:
                    await self._until_due()
                    for batch in self._form():
                        running.create_task(self._run(batch))
        finally:
            self._accepting = False
            for query in list(self._waiting):
                self._resolve(query, Draining("the server shut down before this request was answered"))

    def _on_replicas_changed(self) -> None:
        if self._former.waiting:
            self._wake.set()

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            due_at = self._former.due_at()
            can_send = due_at is not None and self._has_capacity()
            if due_at is not None and can_send and due_at <= self._loop.time():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_at if can_send else None):
                    await self._wake.wait()
            await self._let_others_join()

    async def _let_others_join(self) -> None:
        """A turn of the loop, and more as long as rows come in: requests that arrive together share their calls."""
        waiting = -1
        while self._former.waiting > waiting:
            waiting = self._former.waiting
            await asyncio.sleep(0)

    def _has_capacity(self) -> bool:
        """Whether a group sent now finds enough replicas, or can only be failed at once."""
        serving = self._stages.replicas.serving
        return serving == 0 or self._stages.replicas.available >= min(self.enough, serving)

    def _form(self) -> list[Batch]:
        """One batch for each scheme among the groups that are due."""
        by_scheme: dict[tuple[int, bool], list[Group]] = {}
        for group in self._former.take(self._loop.time()):
            by_scheme.setdefault((group.rows, group.reason == "raw"), []).append(group)
            self._stages.observer.group_formed(group.rows, self._params.k, group.reason, group.waited_s)
        batches = []
        for (rows, _), groups in by_scheme.items():
            batch = Batch(groups, self._params.build(rows), self._stages, self._resolve)
            batches.append(batch)
            self._batches.update((query, batch) for group in groups for query in group.queries)
        return batches

    async def _run(self, batch: Batch) -> None:
        try:
            await batch.run()
        except Exception:
            # A defect of ours must not take other batches down with this one, nor leave a caller waiting.
            _log.exception("batch_broke")
            batch.fail(ServingError("the server failed to answer this request"))

    def _resolve(self, query: Query, result: Answer | ServingError) -> None:
        pending, index = self._waiting.pop(query, (None, 0))
        if pending is None or pending.future.done():
            return
        if self._default is not None and isinstance(result, DeadlineExceeded | TooFewReplicas):
            how = Provenance("default", replicas_used=0, degraded=True, error_estimate=math.nan)
            result = Answer(self._default, how)
        if isinstance(result, ServingError):
            pending.future.set_exception(result)
            return
        pending.answers[index] = result
        pending.left -= 1
        self._stages.observer.row_answered(result.provenance)
        if not pending.left:
            pending.future.set_result([answer for answer in pending.answers if answer is not None])

    def _leave(self, queries: Sequence[Query]) -> None:
        """Forget a request's rows, and withdraw those that nobody answered."""
        for query in queries:
            unanswered = self._waiting.pop(query, None) is not None
            batch = self._batches.pop(query, None)
            if batch is None:
                self._former.withdraw(query)
            elif unanswered:
                batch.withdraw(query)
            self._former.release(query)
