"""The coded frontend as an inference service: tensors to rows, rows to answers, answers to tensors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding.scheme import fewest_arrivals
from serving.config.schema import Settings
from serving.errors import BadRequest, ConfigError, NotReady, ServingError
from serving.observe import Observer
from serving.pipeline import Pipeline
from serving.protocol.datatypes import DATATYPES
from serving.protocol.provenance import provenance_parameters
from serving.replicas import ReplicaSet
from serving.types import Answer, InferRequest, InferResponse, ModelMetadata, NamedTensor

MICROSECONDS = 1_000_000
FLOATS = ("FP16", "BF16", "FP32", "FP64")


class CodedService:
    """Answers V2 requests through the pipeline; not ready until the pipeline has been handed over.

    Attributes:
        draining: set when the server is about to stop: it is no longer ready, and still answers.
    """

    def __init__(self, settings: Settings, replicas: ReplicaSet, observer: Observer) -> None:
        self._settings = settings
        self._replicas = replicas
        self._observer = observer
        self.draining = False
        self._metadata: ModelMetadata | None = None
        self._pipeline: Pipeline | None = None
        self._fewest = fewest_arrivals(settings.scheme.build(settings.scheme.k), at_deadline=True)

    def open(self, metadata: ModelMetadata, pipeline: Pipeline) -> None:
        """The replicas have answered a warm-up: serve from now on."""
        self._metadata = metadata
        self._pipeline = pipeline

    def close(self) -> None:
        """Refuse new requests; those in hand are answered."""
        if self._pipeline is not None:
            self._pipeline.stop_accepting()

    @property
    def pending(self) -> int:
        """Rows whose callers wait."""
        return self._pipeline.pending if self._pipeline is not None else 0

    def metadata(self) -> ModelMetadata:
        """The replicas' metadata under the served name.

        Raises:
            NotReady: no replica has told it yet.
        """
        if self._metadata is None:
            raise self._not_ready()
        return self._metadata

    def ready(self) -> bool:
        """Whether enough replicas serve for an answer, if a degraded one."""
        pipeline = self._pipeline
        can_answer = pipeline is not None and pipeline.accepting and self._replicas.healthy >= self._fewest
        return can_answer and not self.draining

    async def infer(self, request: InferRequest) -> InferResponse:
        """Answer one request, which the edge has checked against the metadata, through coded replicas."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = "cancelled"
        try:
            response = await self._infer(request, started)
            outcome = "ok"
        except ServingError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._observer.request_done(outcome, loop.time() - started)
        return response

    async def _infer(self, request: InferRequest, started: float) -> InferResponse:
        metadata = self.metadata()
        pipeline = self._pipeline
        if pipeline is None:
            raise self._not_ready()
        rows = request.inputs[0].data
        raw = self._non_finite(request.inputs[0])
        answers = await pipeline.answer(list(rows), self._deadline(request, started), raw=raw)
        return self._respond(metadata, request, answers)

    def _not_ready(self) -> NotReady:
        up, all_of_them = self._replicas.healthy, len(self._replicas)
        return NotReady(
            f"still starting: {up} of {all_of_them} replicas are up; try again soon", retry_after_s=1.0
        )

    def _deadline(self, request: InferRequest, started: float) -> float:
        timeout_us = request.parameters.get("timeout", 0)
        if isinstance(timeout_us, bool) or not isinstance(timeout_us, int) or timeout_us < 0:
            raise BadRequest(f"parameters.timeout must be microseconds, an integer >= 0, got {timeout_us!r}")
        return started + (timeout_us / MICROSECONDS if timeout_us else self._settings.deadline_ms / 1000)

    def _non_finite(self, tensor: NamedTensor) -> Sequence[bool]:
        """Which rows must not be coded, since a NaN would spread over their whole group.

        Raises:
            BadRequest: the configuration refuses such rows.
        """
        if not np.issubdtype(tensor.data.dtype, np.floating):
            return ()
        finite = np.isfinite(tensor.data.reshape(len(tensor.data), -1)).all(axis=1)
        if finite.all():
            return ()
        if self._settings.grouping.non_finite_rows == "refuse":
            row = int(np.argmin(finite))
            flat = tensor.data[row].ravel()
            where = int(np.argmin(np.isfinite(flat)))
            raise BadRequest(
                f'input "{tensor.name}": values must be finite, got {flat[where]} in row {row} at element {where} '
                "(grouping.non_finite_rows: uncoded would answer such rows by themselves)"
            )
        return [not bool(row) for row in finite]

    def _respond(
        self, metadata: ModelMetadata, request: InferRequest, answers: Sequence[Answer]
    ) -> InferResponse:
        output = metadata.outputs[0]
        data: NDArray[np.generic] = np.stack([answer.output for answer in answers])
        tensor = NamedTensor(
            output.name, output.datatype, data.astype(DATATYPES[output.datatype].dtype, copy=False)
        )
        return InferResponse(
            model_name=metadata.name,
            model_version=metadata.versions[0] if metadata.versions else None,
            id=request.id,
            outputs=(tensor,),
            parameters=provenance_parameters([answer.provenance for answer in answers]),
        )


def check_servable(metadata: ModelMetadata, settings: Settings) -> None:
    """Whether this model can be served under this configuration.

    Raises:
        ConfigError: says what the model has, what the scheme needs and what to change.
    """
    model = f"model {metadata.name!r}"
    if len(metadata.inputs) != 1 or len(metadata.outputs) != 1:
        raise ConfigError(
            f"{model} has {len(metadata.inputs)} inputs and {len(metadata.outputs)} outputs; "
            "models with exactly one of each can be served"
        )
    model_input, model_output = metadata.inputs[0], metadata.outputs[0]
    if not model_input.shape or min(model_input.item_shape, default=1) < 0:
        raise ConfigError(
            f"{model}: input {model_input.name!r} has shape {list(model_input.shape)}; rows of one group must agree "
            "in shape, so only the first (batch) dimension may be -1"
        )
    scheme = settings.scheme
    coded = len(scheme.build(scheme.k).tasks[0].serves) > 1
    for does, tensor in (("takes", model_input), ("answers", model_output)):
        if coded and tensor.datatype not in FLOATS:
            raise ConfigError(
                f"scheme.kind {scheme.kind} blends rows and needs floating-point tensors, but {model} {does} "
                f"{tensor.datatype}; use none, replication or hedged"
            )
    classes = model_output.item_shape[-1] if model_output.item_shape else 1
    if scheme.output_domain != "as_is" and (model_output.datatype not in FLOATS or classes in (0, 1)):
        raise ConfigError(
            f"scheme.output_domain {scheme.output_domain} needs floating-point scores of at least 2 classes, but "
            f"{model} answers {model_output.datatype} {list(model_output.shape)}; set scheme.output_domain: as_is"
        )
    default_output(metadata, settings)


def default_output(metadata: ModelMetadata, settings: Settings) -> NDArray[Any] | None:
    """The configured answer in the shape and datatype of one row of the model's output; None where there is none.

    Raises:
        ConfigError: it does not fit.
    """
    values, output = settings.default_answer, metadata.outputs[0]
    if values is None:
        return None
    shape = output.item_shape
    if min(shape, default=1) < 0 or math.prod(shape) != len(values):
        raise ConfigError(
            f"default_answer must have one value for each of a row's outputs, shape {list(shape)} of model "
            f"{metadata.name!r}; got {len(values)}"
        )
    with np.errstate(over="ignore"):
        answer: NDArray[Any] = np.array(values).reshape(shape).astype(DATATYPES[output.datatype].dtype)
    if np.issubdtype(answer.dtype, np.floating) and not np.isfinite(answer).all():
        raise ConfigError(f"default_answer must be finite as {output.datatype}; got {list(values)}")
    return answer
