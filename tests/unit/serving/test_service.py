"""The coded frontend as a service: deadlines, rows that are not finite, what can be served at all."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from scenario import METADATA, NEVER, WIDTH, Stack, after, stack

from coding.copies import NoneParams, ReplicationParams
from coding.letcc import LetccParams
from coding.scheme import fewest_arrivals
from serving.config import GroupingSettings, Settings
from serving.errors import BadRequest, ConfigError, DeadlineExceeded, NotReady
from serving.service import CodedService, check_servable
from serving.types import InferRequest, NamedTensor, TensorSpec

LETCC = LetccParams(k=4, n=7, wait_for=5, floor=3, output_domain="as_is", lambda_dec=0.0)


def service_over(running: Stack, **settings: object) -> CodedService:
    service = CodedService(Settings(scheme=LETCC, **settings), running.replicas, running.metrics)
    service.open(METADATA, running.pipeline)
    return service


def request(values: list[float], **parameters: object) -> InferRequest:
    rows = np.repeat(np.array(values, np.float32)[:, np.newaxis], WIDTH, axis=1)
    return InferRequest((NamedTensor("input", "FP32", rows),), id="7", parameters=parameters)


@pytest.mark.looptime
async def test_a_request_becomes_rows_and_its_answers_a_tensor_with_provenance() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        response = await service_over(running).infer(request([5, 5, 5, 5]))
        assert (response.model_name, response.model_version, response.id) == ("double", "1", "7")
        (output,) = response.outputs
        assert (output.name, output.datatype, output.data.shape) == ("output", "FP32", (4, WIDTH))
        np.testing.assert_allclose(output.data, 10, atol=1e-4)
        assert response.parameters["obtained"] == "decoded"
        assert response.parameters["replicas_used"] == 5
        assert running.metric('unstraggle_requests_total{outcome="ok"}') == 1


@pytest.mark.looptime
async def test_the_timeout_parameter_is_the_deadline_in_microseconds() -> None:
    async with stack(LETCC, [[NEVER]] * 7) as running:
        service = service_over(running, deadline_ms=1000)
        loop = asyncio.get_running_loop()
        for parameters, seconds in [({"timeout": 200_000}, 0.18), ({}, 0.98), ({"timeout": 0}, 0.98)]:
            started = loop.time()
            with pytest.raises(DeadlineExceeded):
                await service.infer(request([1, 2, 3, 4], **parameters))
            assert loop.time() - started == pytest.approx(seconds)
        assert running.metric('unstraggle_requests_total{outcome="DeadlineExceeded"}') == 3


@pytest.mark.looptime
@pytest.mark.parametrize("value", [-1, 1.5, "soon", True])
async def test_a_bad_timeout_is_refused(value: object) -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        with pytest.raises(BadRequest, match="timeout must be microseconds"):
            await service_over(running).infer(request([1], timeout=value))


@pytest.mark.looptime
async def test_rows_that_are_not_finite_are_refused_by_name_or_answered_by_themselves() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        with pytest.raises(
            BadRequest, match=r'input "input": values must be finite, got inf in row 1 at element 0'
        ):
            await service_over(running).infer(request([1, np.inf, 3]))
        lenient = service_over(running, grouping=GroupingSettings(non_finite_rows="uncoded"))
        response = await lenient.infer(request([4, np.inf, 4, 4, 4]))
        assert np.isinf(response.outputs[0].data[1]).all()
        np.testing.assert_allclose(response.outputs[0].data[[0, 2, 3, 4]], 8, atol=1e-4)


@pytest.mark.looptime
async def test_it_is_ready_once_opened_and_not_while_draining_or_short_of_replicas() -> None:
    async with stack(LETCC, [[after(0.01)]] * 7) as running:
        closed = CodedService(Settings(scheme=LETCC), running.replicas, running.metrics)
        assert not closed.ready()
        with pytest.raises(NotReady):
            closed.metadata()
        with pytest.raises(NotReady):
            await closed.infer(request([1]))
        service = service_over(running)
        assert service.ready()
        for number in range(4):
            running.replicas.detach(number, "killed")
        assert service.ready()
        running.replicas.detach(4, "killed")
        assert not service.ready()


def test_fewest_arrivals_is_the_floor_of_a_code_and_one_of_copies() -> None:
    assert fewest_arrivals(LETCC.build(4), at_deadline=True) == 3
    assert fewest_arrivals(ReplicationParams(copies=3).build(1), at_deadline=True) == 1


TWO_CLASSES = replace(METADATA, outputs=(TensorSpec("output", "FP32", (-1, 2)),))


@pytest.mark.parametrize(
    ("metadata", "scheme", "fragment"),
    [
        (replace(METADATA, inputs=METADATA.inputs * 2), LETCC, "has 2 inputs and 1 outputs"),
        (replace(METADATA, inputs=(TensorSpec("x", "FP32", (-1, 3, -1)),)), LETCC, r"\[-1, 3, -1\]"),
        (replace(METADATA, inputs=(TensorSpec("x", "INT64", (-1, 3)),)), LETCC, "takes INT64; use none"),
        (
            replace(METADATA, outputs=(TensorSpec("y", "INT64", (-1,)),)),
            replace(LETCC, output_domain="as_is"),
            "answers INT64; use none",
        ),
        (
            replace(METADATA, outputs=(TensorSpec("y", "INT64", (-1, 3)),)),
            NoneParams(),
            "set scheme.output_domain: as_is",
        ),
        (replace(METADATA, outputs=(TensorSpec("y", "FP32", (-1,)),)), NoneParams(), "at least 2 classes"),
    ],
)
def test_what_cannot_be_served_is_refused_at_start(metadata, scheme, fragment: str) -> None:
    with pytest.raises(ConfigError, match=fragment):
        check_servable(metadata, Settings(scheme=scheme))


def test_integers_are_served_by_copies_as_they_are() -> None:
    integers = replace(
        METADATA,
        inputs=(TensorSpec("x", "INT64", (-1, 3)),),
        outputs=(TensorSpec("y", "INT64", (-1,)),),
    )
    check_servable(integers, Settings(scheme=ReplicationParams(output_domain="as_is")))
    check_servable(TWO_CLASSES, Settings())
