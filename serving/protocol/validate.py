"""A well-formed request against the model it is meant for."""

from __future__ import annotations

from collections.abc import Sequence

from serving.errors import BadRequest
from serving.protocol.json_text import shown
from serving.protocol.tensors import label
from serving.types import InferRequest, ModelMetadata, NamedTensor, OutputRequest, TensorSpec


def check_against(metadata: ModelMetadata, request: InferRequest) -> None:
    """Check a request's inputs and outputs against the model's.

    Afterwards every input of the model is there once, in its datatype and shape, all with the same number of
    rows, which is at least 1.

    Raises:
        BadRequest: naming the field, the rule and the value.
    """
    specs = {spec.name: spec for spec in metadata.inputs}
    for index, tensor in enumerate(request.inputs):
        where = label("inputs", index, tensor.name)
        spec = specs.pop(tensor.name, None)
        if spec is None:
            raise BadRequest(
                f"{where}: not an input of {metadata.name}, which takes {_names(metadata.inputs)}"
            )
        _check_tensor(tensor, spec, where)
    if specs:
        raise BadRequest(f"the request lacks {_names(list(specs.values()))}: {_counts(metadata, request)}")
    _check_rows(request.inputs)
    _check_outputs(metadata, request.outputs)


def _names(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f'"{spec.name}"' for spec in specs)


def _counts(metadata: ModelMetadata, request: InferRequest) -> str:
    return f"{metadata.name} takes {len(metadata.inputs)} inputs, got {len(request.inputs)}"


def _check_tensor(tensor: NamedTensor, spec: TensorSpec, where: str) -> None:
    if tensor.datatype != spec.datatype:
        raise BadRequest(f"{where}: expected datatype {spec.datatype}, got {tensor.datatype}")
    shape = tensor.data.shape
    fits = len(shape) == len(spec.shape) and all(
        wanted in (-1, size) for wanted, size in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise BadRequest(f"{where}: expected shape {list(spec.shape)}, got {shown(list(shape))}")


def _check_rows(inputs: Sequence[NamedTensor]) -> None:
    first_rows = _rows(inputs[0])
    for index, tensor in enumerate(inputs):
        where = label("inputs", index, tensor.name)
        rows = _rows(tensor)
        if rows < 1:
            raise BadRequest(f"{where}: has 0 rows, at least 1 is needed")
        if rows != first_rows:
            raise BadRequest(f'{where}: has {rows} rows, but "{inputs[0].name}" has {first_rows}')


def _rows(tensor: NamedTensor) -> int:
    return tensor.data.shape[0] if tensor.data.ndim else 1


def _check_outputs(metadata: ModelMetadata, outputs: Sequence[OutputRequest]) -> None:
    known = {spec.name for spec in metadata.outputs}
    for index, output in enumerate(outputs):
        if output.name not in known:
            where = label("outputs", index, output.name)
            gives = _names(metadata.outputs)
            raise BadRequest(f"{where}: not an output of {metadata.name}, which gives {gives}")
