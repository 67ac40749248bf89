"""What a replica's answer must be before it is believed: the right rows, in the right shape and datatype."""

from __future__ import annotations

from collections.abc import Sequence

from serving.errors import BadReplicaAnswer
from serving.types import InferRequest, InferResponse, NamedTensor, TensorSpec


def check_answer(request: InferRequest, response: InferResponse, outputs: Sequence[TensorSpec]) -> None:
    """Check an answer against its question and the model's metadata.

    Values are not looked at.

    Args:
        request: the question; every input has its rows along the first axis.
        response: the answer.
        outputs: the model's outputs by its metadata; empty where the server does not say.

    Raises:
        BadReplicaAnswer: an output is missing, unknown, or of the wrong datatype, shape or number of rows.
    """
    rows = request.inputs[0].data.shape[0]
    specs = {spec.name: spec for spec in outputs}
    wanted = {output.name for output in request.outputs} or specs.keys()
    missing = wanted - {tensor.name for tensor in response.outputs}
    if missing or not response.outputs:
        raise BadReplicaAnswer(f"the answer lacks output {min(missing, default='')!r}")
    for tensor in response.outputs:
        spec = specs.get(tensor.name)
        if specs and spec is None:
            raise BadReplicaAnswer(f"the model has no output {tensor.name!r}, but the answer does")
        _check_tensor(tensor, rows, spec)


def _check_tensor(tensor: NamedTensor, rows: int, spec: TensorSpec | None) -> None:
    shape = tensor.data.shape
    if shape[:1] != (rows,):
        raise BadReplicaAnswer(f"output {tensor.name!r} must have {rows} rows, got shape {list(shape)}")
    if spec is None:
        return
    if tensor.datatype != spec.datatype:
        raise BadReplicaAnswer(
            f"output {tensor.name!r} must have datatype {spec.datatype}, got {tensor.datatype}"
        )
    fits = len(shape) == len(spec.shape) and all(
        size in (-1, got) for size, got in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise BadReplicaAnswer(
            f"output {tensor.name!r} must have shape {list(spec.shape)}, got {list(shape)}"
        )
