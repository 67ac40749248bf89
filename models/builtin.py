"""The models that ship with the package: what they are, what they are trained on and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from torch import nn

from models.datasets import SHIPPED, DatasetName
from models.lenet5 import LeNet5
from models.linear import LinearClassifier
from models.recipe import Recipe

if TYPE_CHECKING:
    from models.repvgg import RepVgg


def _as_it_is(module: nn.Module) -> nn.Module:
    return module.eval()


def _repvgg() -> RepVgg:
    from models.repvgg import (
        RepVgg,
    )  # timm takes a second to import, and workers of other models do without it

    return RepVgg()


def _vit() -> nn.Module:
    from models.vit import SmallViT

    return SmallViT()


@dataclass(frozen=True, slots=True)
class Builtin:
    """One shipped model.

    Attributes:
        name: as in `builtin:NAME` and `unstraggle train NAME`.
        dataset: what it is trained on.
        make: a new network in the form in which it is served, to load the weights into.
        recipe: how it was trained.
        make_trainable: a new network in the form in which it is trained.
        deploy: from the trained form to the served one.
        library: what `make` imports, where that takes seconds.
    """

    name: str
    dataset: DatasetName
    make: Callable[[], nn.Module]
    recipe: Recipe
    make_trainable: Callable[[], nn.Module]
    deploy: Callable[[nn.Module], nn.Module] = _as_it_is
    library: str | None = None

    @property
    def weights(self) -> Path:
        """The safetensors file; the log lies beside it."""
        return SHIPPED / f"{self.name}.safetensors"


LENET5 = Builtin(
    name="lenet5-mnist",
    dataset="mnist",
    make=LeNet5,
    make_trainable=LeNet5,
    # A compromise. Decoding wants a network whose logits change smoothly from one digit to another: mixup and an
    # unusually strong weight decay give it that. Turning or scaling the digits, and longer training, take it away,
    # for a little more accuracy on plain digits.
    recipe=Recipe(epochs=20, learning_rate=3e-3, weight_decay=0.25, shift_pixels=1.5, mixup_share=0.2),
)

LINEAR = Builtin(
    name="linear-mnist",
    dataset="mnist",
    make=LinearClassifier,
    make_trainable=LinearClassifier,
    recipe=Recipe(epochs=10, learning_rate=1e-3, weight_decay=0.01),
)

REPVGG = Builtin(
    name="repvgg-cifar10",
    dataset="cifar10",
    make=lambda: _repvgg().merged(),
    library="timm",
    make_trainable=_repvgg,
    deploy=lambda module: cast("RepVgg", module).merged(),
    recipe=Recipe(
        epochs=14,
        batch_rows=125,
        learning_rate=4e-3,
        weight_decay=0.1,
        crop_pixels=3,
        flip=True,
        mixup_share=0.3,
    ),
)

VIT = Builtin(
    name="vit-cifar10",
    dataset="cifar10",
    make=_vit,
    library="timm",
    make_trainable=_vit,
    recipe=Recipe(
        epochs=10,
        batch_rows=125,
        learning_rate=2e-3,
        weight_decay=0.1,
        crop_pixels=3,
        flip=True,
        mixup_share=0.3,
        teacher="repvgg-cifar10",
        teacher_share=0.7,
    ),
)

BUILTINS: Mapping[str, Builtin] = MappingProxyType(
    {model.name: model for model in (LENET5, LINEAR, REPVGG, VIT)}
)
"""Every shipped model by name."""
