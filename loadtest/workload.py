"""What each request carries: seeded rows of a labelled data set, encoded before the clock starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.errors import TargetError
from models.datasets import EvaluationSlice
from serving.protocol.codec import encode_infer_request
from serving.types import InferRequest, NamedTensor, TensorSpec

_STREAM = 2
"""Keeps the choice of rows apart from the schedule's random numbers under the same seed."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """One request, ready to be sent.

    Attributes:
        labels: shape (rows,), the right class of each row.
        body: the encoded V2 request.
        headers: the HTTP headers that belong to it.
    """

    labels: NDArray[np.int64]
    body: bytes
    headers: Mapping[str, str]

    @property
    def rows(self) -> int:
        """Number of rows in the request."""
        return int(self.labels.size)


def draw_rows(available: int, *, requests: int, rows_per_request: int, seed: int) -> NDArray[np.int64]:
    """Choose the rows of every request.

    The rows are dealt from shuffled decks of the whole data set: each is used as often as any other, give or
    take one, and none twice in a request that straddles no two decks.

    Args:
        available: number of rows to choose from.
        requests: number of requests.
        rows_per_request: rows in each.
        seed: the same seed gives the same rows.

    Returns:
        Shape (requests, rows_per_request), indices below `available`.
    """
    generator = np.random.default_rng([seed, _STREAM])
    wanted = requests * rows_per_request
    decks = [generator.permutation(available) for _ in range(-(-wanted // available))]
    return np.concatenate(decks)[:wanted].reshape(requests, rows_per_request).astype(np.int64)


def check_input(spec: TensorSpec, images: NDArray[np.float32]) -> None:
    """Check that the images fit the model's input.

    Raises:
        TargetError: datatype or shape differ.
    """
    fits = len(spec.shape) == images.ndim and all(
        wanted in (-1, size) for wanted, size in zip(spec.item_shape, images.shape[1:], strict=True)
    )
    if spec.datatype != "FP32" or not fits:
        raise TargetError(
            f"input {spec.name!r} must be FP32 and take rows of shape {list(images.shape[1:])},"
            f" got {spec.datatype} with shape {list(spec.shape)}"
        )


def prepare_requests(
    input_name: str, digits: EvaluationSlice, rows: Iterable[NDArray[np.int64]]
) -> list[PreparedRequest]:
    """Encode every request of a workload.

    Args:
        input_name: the model's name for its input.
        digits: the labelled rows to choose from.
        rows: which rows each request carries, one array per request.
    """
    return [_prepare(input_name, digits.images[chosen], digits.labels[chosen]) for chosen in rows]


def _prepare(input_name: str, images: NDArray[np.float32], labels: NDArray[np.int64]) -> PreparedRequest:
    tensor = NamedTensor(input_name, "FP32", images)
    body, headers = encode_infer_request(InferRequest(inputs=(tensor,)), binary=True)
    return PreparedRequest(labels, body, headers)
