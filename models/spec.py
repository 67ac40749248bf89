"""What a model takes and gives, as value types; free of torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from models.errors import BadSource

INPUT_NAME = "input"
OUTPUT_NAME = "output"
FLOAT32 = "FP32"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a model.

    Attributes:
        name: its name on the wire.
        datatype: its V2 datatype, such as "FP32".
        shape: its shape with the batch first; -1 marks a dimension that varies.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def item_shape(self) -> tuple[int, ...]:
        """The shape of one row: everything after the batch dimension."""
        return self.shape[1:]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model's contract: one float tensor in, one float tensor out, rows along the first axis of both.

    Rows are what a client sends: for images, pixel values in [0, 1]. Whatever else a model needs (mean, scale)
    it does itself, so that clients need no secret preprocessing.

    Attributes:
        source: the model.source string that it was loaded from.
        platform: the V2 platform string, such as "pytorch".
        input: the input tensor, shape (-1, ...).
        output: the output tensor, shape (-1, ...).
        classes: one label per element of the last output axis, or empty where they are not known.

    Raises:
        BadSource: a tensor is not FP32, has a fixed batch, or has no batch at all; or the number of labels is
            not the number of outputs.
    """

    source: str
    platform: str
    input: TensorInfo
    output: TensorInfo
    classes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for tensor in (self.input, self.output):
            if tensor.datatype != FLOAT32:
                raise BadSource(
                    f"{self.source}: the datatype of {tensor.name!r} must be FP32, "
                    f"because codes add rows up; got {tensor.datatype!r}"
                )
            if tensor.shape[:1] != (-1,):
                raise BadSource(
                    f"{self.source}: the shape of {tensor.name!r} must begin with -1, the batch; "
                    f"got {list(tensor.shape)}"
                )
        width = self.output.shape[-1]
        if self.classes and len(self.classes) != width:
            raise BadSource(
                f"{self.source}: there must be one class label per output, {width}; got {len(self.classes)}"
            )


def float_spec(
    source: str,
    *,
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    platform: str = "pytorch",
    classes: tuple[str, ...] = (),
) -> ModelSpec:
    """The usual contract: `input` and `output`, both FP32.

    Args:
        source: the model.source string.
        input_shape: the shape of one input row, without the batch.
        output_shape: the shape of one output row, without the batch.
        platform: the V2 platform string.
        classes: labels of the outputs, where known.

    Raises:
        BadSource: the number of labels is not the number of outputs.
    """
    return ModelSpec(
        source=source,
        platform=platform,
        input=TensorInfo(INPUT_NAME, FLOAT32, (-1, *input_shape)),
        output=TensorInfo(OUTPUT_NAME, FLOAT32, (-1, *output_shape)),
        classes=classes,
    )
