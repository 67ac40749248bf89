"""A pipeline over scripted replicas, for scenarios in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from coding.output_domain import OutputDomain
from coding.scheme import SchemeParams
from serving.batch import Stages
from serving.config import GroupingSettings, LocalReplicas
from serving.dispatch import Dispatcher
from serving.errors import ReplicaRefused
from serving.grouping import GroupFormer
from serving.hedging import Hedging
from serving.metrics import PrometheusObserver
from serving.pipeline import Pipeline
from serving.replicas import ReplicaSet
from serving.transport.scripted import ScriptedTransport, Step
from serving.types import Answer, InferRequest, InferResponse, ModelMetadata, NamedTensor, TensorSpec

WIDTH = 3
METADATA = ModelMetadata(
    name="double",
    versions=("1",),
    platform="test",
    inputs=(TensorSpec("input", "FP32", (-1, WIDTH)),),
    outputs=(TensorSpec("output", "FP32", (-1, WIDTH)),),
)


def double(request: InferRequest) -> InferResponse:
    """The model: twice its input."""
    return InferResponse("double", (NamedTensor("output", "FP32", request.inputs[0].data * 2),))


def spoilt(request: InferRequest) -> InferResponse:
    """A broken replica's answer."""
    return InferResponse(
        "double", (NamedTensor("output", "FP32", request.inputs[0].data * np.float32("nan")),)
    )


def misshapen(request: InferRequest) -> InferResponse:
    """An answer that lost a row."""
    return InferResponse("double", (NamedTensor("output", "FP32", request.inputs[0].data[1:]),))


def after(delay_s: float) -> Step:
    return Step(double, delay_s)


NEVER = Step(double, math.inf)
REFUSES = Step(ReplicaRefused("replica answered 500: out of memory"))


@dataclass
class Stack:
    """A running pipeline and what it stands on."""

    pipeline: Pipeline
    former: GroupFormer
    replicas: ReplicaSet
    transports: list[ScriptedTransport]
    metrics: PrometheusObserver

    async def ask(
        self, values: Sequence[float], *, timeout_s: float = 1.0, raw: Sequence[bool] = ()
    ) -> Outcome:
        """One request of a row per value, and the loop's time that it took."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        rows = [np.full(WIDTH, value, np.float32) for value in values]
        answers: list[Answer] = []
        error: Exception | None = None
        try:
            answers = await self.pipeline.answer(rows, started + timeout_s, raw=raw)
        except Exception as caught:
            error = caught
        return Outcome(answers, error, loop.time() - started)

    def outcomes(self) -> list[list[str]]:
        return [[call.outcome for call in transport.calls] for transport in self.transports]

    def metric(self, line_start: str) -> float:
        lines = self.metrics.render().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(line_start))


@dataclass
class Outcome:
    answers: list[Answer]
    error: Exception | None
    seconds: float
    values: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.values = [float(answer.output[0]) for answer in self.answers]


@asynccontextmanager
async def stack(
    params: SchemeParams,
    scripts: Sequence[Sequence[Step]],
    *,
    grouping: GroupingSettings | None = None,
    replicas: LocalReplicas | None = None,
    grace_s: float = 0.0,
    hedging: Hedging | None = None,
    objective_s: float | None = None,
    default: float | None = None,
) -> AsyncIterator[Stack]:
    """A pipeline over one scripted replica per script, all of them up."""
    loop = asyncio.get_running_loop()
    names = tuple(f"replica-{number}" for number in range(len(scripts)))
    metrics = PrometheusObserver(names)
    replica_set = ReplicaSet(names, replicas or LocalReplicas(count=len(scripts)), loop.time, metrics)
    transports = [ScriptedTransport(script, METADATA) for script in scripts]
    former = GroupFormer(params.k, grouping or GroupingSettings())
    dispatcher = Dispatcher(replica_set, grace_s, loop.time, hedging)
    stages = Stages(replica_set, dispatcher, OutputDomain.AS_IS, METADATA, metrics, 0.02, objective_s)
    answer = None if default is None else np.full(WIDTH, default, np.float32)
    pipeline = Pipeline(params, former, stages, answer)
    for number, transport in enumerate(transports):
        replica_set.attach(number, transport)
    running = [asyncio.create_task(replica_set.run()), asyncio.create_task(pipeline.run())]
    await replica_set.until_serving(len(scripts))
    try:
        yield Stack(pipeline, former, replica_set, transports, metrics)
    finally:
        for task in reversed(running):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert pipeline.pending == 0
        assert former.admitted == (0, 0)
        assert all(transport.pending == 0 for transport in transports)
        assert len(asyncio.all_tasks()) == 1
