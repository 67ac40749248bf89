"""Whether a model is what the configuration takes it for, by its answers to random rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coding.lagrange import LagrangeParams
from coding.output_domain import OutputDomain
from serving.errors import ConfigError
from serving.protocol.datatypes import DATATYPES
from serving.transport.base import Transport
from serving.types import InferRequest, ModelMetadata, NamedTensor

TOLERANCE = 0.02
"""Share of the answers' spread by which decoded ones may be off: rounding stays below it, other models do not."""
_SEED = 0


def random_rows(metadata: ModelMetadata, count: int, kind: Literal["uniform", "normal"]) -> NDArray[Any]:
    """Rows for a model's input, the same each time: between 0 and 1, or normal; all 0 where it takes whole numbers.

    Args:
        metadata: the model's, with a fixed item shape of its input.
        count: how many.
        kind: which.
    """
    model_input = metadata.inputs[0]
    dtype, shape = DATATYPES[model_input.datatype].dtype, (count, *model_input.item_shape)
    if not np.issubdtype(dtype, np.floating):
        return np.zeros(shape, dtype)
    random = np.random.default_rng(_SEED)
    rows = random.random(shape) if kind == "uniform" else random.normal(size=shape)
    return rows.astype(dtype)


async def require_finite(metadata: ModelMetadata, replica: Transport) -> None:
    """Make sure that the model answers numbers, for with other answers no request could ever be served.

    Raises:
        ConfigError: its answer to a random row is not finite.
        TransportError: the replica does not answer.
    """
    outputs = await _ask(replica, metadata, random_rows(metadata, 1, "uniform"))
    if np.issubdtype(outputs.dtype, np.floating) and not np.isfinite(outputs).all():
        raise ConfigError(
            f"model {metadata.name!r} must answer finite numbers; its answer to random values between 0 and 1 is not "
            "finite: look at its weights"
        )


async def _ask(replica: Transport, metadata: ModelMetadata, rows: NDArray[Any]) -> NDArray[Any]:
    model_input = metadata.inputs[0]
    tensor = NamedTensor(model_input.name, model_input.datatype, np.ascontiguousarray(rows))
    return (await replica.infer(InferRequest(inputs=(tensor,), binary_output=True))).outputs[0].data


async def require_polynomial(params: LagrangeParams, metadata: ModelMetadata, replica: Transport) -> None:
    """Make sure that decoded answers are the model's own: ask a replica for two random groups, plain and coded.

    Args:
        params: the code.
        metadata: the model's, with a fixed item shape of its input.
        replica: whom to ask.

    Raises:
        ConfigError: the model is no polynomial of the stated degree.
        TransportError: the replica does not answer.
    """
    if params.k == 1:
        return
    groups = [random_rows(metadata, params.k, kind) for kind in ("uniform", "normal")]
    queries = np.stack(groups)
    scheme = params.build(params.k)
    payloads = scheme.encode(queries)
    # Coded answers first: with all the plain ones there would be nothing to decode.
    coded_first = sorted(scheme.tasks, key=lambda task: len(task.exact))
    arrivals = [task.index for task in coded_first[: params.wait_for]]
    rows = np.concatenate([queries, payloads[arrivals].swapaxes(0, 1)], axis=1)
    outputs = await _ask(replica, metadata, rows.reshape(-1, *rows.shape[2:]))
    domain = OutputDomain(params.output_domain)
    answers = domain.to_coding(outputs).reshape(2, params.k + len(arrivals), -1)
    own, coded = answers[:, : params.k], answers[:, params.k :]
    decoded = scheme.decode({task: coded[:, position] for position, task in enumerate(arrivals)})
    off = _largest_share(own, decoded.outputs.swapaxes(0, 1), centred=domain is not OutputDomain.AS_IS)
    if not off <= TOLERANCE:
        raise ConfigError(
            f"scheme.kind lagrange needs a model that is a polynomial of degree {params.degree} of its input "
            f"(scheme.degree); of {metadata.name!r} decoded answers to random inputs are off by {off:.2g} times "
            "their spread. Networks with activations are no polynomials: take letcc, replication or hedged for them"
        )


def _largest_share(own: NDArray[Any], decoded: NDArray[Any], *, centred: bool) -> float:
    """The largest difference, as a share of the spread of the model's own answers, shapes (g, K, values).

    Logits that differ by the same number in every class are the same answer.
    """
    if centred:
        own, decoded = (answers - answers.mean(axis=-1, keepdims=True) for answers in (own, decoded))
    spread = np.abs(own - own.mean(axis=1, keepdims=True)).max(axis=(1, 2))
    differences = np.abs(decoded - own).max(axis=(1, 2))
    return float((differences / np.maximum(spread, np.finfo(np.float32).tiny)).max())
