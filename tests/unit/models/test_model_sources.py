"""Reading model.source strings, and the contract of a model."""

from __future__ import annotations

import pytest

from models.errors import BadSource
from models.sources import Source, parse_source
from models.spec import ModelSpec, TensorInfo, float_spec


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("builtin:lenet5-mnist", Source("builtin:lenet5-mnist", "builtin", "lenet5-mnist")),
        ("timm:resnet18.a1_in1k", Source("timm:resnet18.a1_in1k", "timm", "resnet18.a1_in1k")),
        ("timm:x?pretrained=false", Source("timm:x?pretrained=false", "timm", "x", pretrained=False)),
        ("python:a.b:make", Source("python:a.b:make", "python", "a.b:make")),
        (
            "torchscript:/tmp/x.pt?input_shape=3,224,224",
            Source(
                "torchscript:/tmp/x.pt?input_shape=3,224,224", "torchscript", "/tmp/x.pt", True, (3, 224, 224)
            ),
        ),
    ],
)
def test_sources_are_taken_apart(text, source):
    assert parse_source(text) == source


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lenet5", "must be builtin:NAME, timm:NAME, .* got 'lenet5'"),
        ("", "must be builtin:NAME"),
        ("keras:resnet50", "got 'keras:resnet50'"),
        ("timm:", "must name something after 'timm:'"),
        ("timm:?pretrained=false", "must name something"),
        ("timm:x?size=1", "options of a timm source are: pretrained, weights; got 'size'"),
        (
            "builtin:lenet5-mnist?input_shape=1",
            "options of a builtin source are: adapted, weights; got 'input_shape'",
        ),
        ("timm:x?pretrained", "must be option=value"),
        ("timm:x?pretrained=no", "pretrained must be true or false; got 'no'"),
        ("python:m:f?input_shape=3,-1", "input_shape must be positive whole numbers.*got '3,-1'"),
        ("python:m:f?input_shape=", "input_shape must be positive"),
        ("python:m:f?input_shape=3x3", "got '3x3'"),
    ],
)
def test_bad_sources_are_explained(text, reason):
    with pytest.raises(BadSource, match=reason):
        parse_source(text)


def test_a_float_spec_has_a_free_batch_and_known_names():
    spec = float_spec("builtin:x", input_shape=(1, 28, 28), output_shape=(10,))
    assert spec.input == TensorInfo("input", "FP32", (-1, 1, 28, 28))
    assert spec.output == TensorInfo("output", "FP32", (-1, 10))
    assert spec.input.item_shape == (1, 28, 28)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (TensorInfo("ids", "INT64", (-1, 5)), "datatype of 'ids' must be FP32.*'INT64'"),
        (TensorInfo("ids", "FP32", (4, 5)), r"'ids' must begin with -1.*\[4, 5\]"),
        (TensorInfo("ids", "FP32", ()), "must begin with -1"),
    ],
)
def test_a_contract_that_codes_cannot_serve_is_refused(tensor, reason):
    good = TensorInfo("x", "FP32", (-1, 5))
    with pytest.raises(BadSource, match=f"mine: .*{reason}"):
        ModelSpec("mine", "pytorch", tensor, good)
    with pytest.raises(BadSource, match=f"mine: .*{reason}"):
        ModelSpec("mine", "pytorch", good, tensor)


def test_there_is_one_label_per_output():
    with pytest.raises(BadSource, match="one class label per output, 10; got 2"):
        float_spec("mine", input_shape=(3,), output_shape=(10,), classes=("cat", "dog"))


def test_weights_and_adapted_name_files():
    assert parse_source("timm:x?weights=a/b.safetensors").weights == "a/b.safetensors"
    assert parse_source("builtin:x?adapted=letcc-8-9-8").adapted == "letcc-8-9-8"
    for text, reason in (
        ("builtin:x?weights=", "weights must not be empty"),
        ("builtin:x?weights=a&adapted=b", "must not both be given"),
        ("timm:x?adapted=a", "options of a timm source are: pretrained, weights; got 'adapted'"),
    ):
        with pytest.raises(BadSource, match=reason):
            parse_source(text)
