"""Models of timm and torchvision. Either library is imported when a source asks for it, and not before."""

from __future__ import annotations

import difflib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import nn

from models.errors import BadSource, WeightsUnavailable
from models.normalise import NormalisedModel
from models.sources import Source

PROBE_TIMEOUT_S = 4.0
"""Longest wait for a hub to show that it is there; its own client would retry for most of a minute."""

Reachable = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of a hub, behind its own normalisation.

    Attributes:
        module: takes images with pixels in [0, 1], float32.
        input_shape: the shape of one input row.
        classes: the class labels, or empty where the hub does not know them.
    """

    module: nn.Module
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]


def reachable(url: str) -> bool:
    """Whether the server of an address answers at all, with any status, within `PROBE_TIMEOUT_S`."""
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S).close()  # noqa: S310
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def load_timm(source: Source, probe: Reachable = reachable) -> HubModel:
    """Build a timm model.

    Args:
        source: a parsed `timm:NAME` source.
        probe: tells whether an address answers.

    Raises:
        BadSource: timm is not installed or knows no such model.
        WeightsUnavailable: pretrained weights were asked for and are neither cached nor reachable.
    """
    try:
        import timm
        from huggingface_hub import constants
    except ImportError as error:
        raise BadSource(f"{source.text}: timm must be installed (the worker extra)") from error
    config = timm.get_pretrained_cfg(source.target) if timm.is_model(source.target) else None
    if config is None:
        raise BadSource(_unknown(source, timm.list_models()))
    if not source.pretrained:
        model = timm.create_model(source.target, pretrained=False)
    elif probe(constants.ENDPOINT):
        model = _pretrained(source, lambda: timm.create_model(source.target, pretrained=True))
    else:
        silent = f"{urlsplit(constants.ENDPOINT).hostname} does not answer"
        with _hub_offline():
            model = _pretrained(source, lambda: timm.create_model(source.target, pretrained=True), silent)
    return HubModel(
        module=NormalisedModel(model, config.mean, config.std),
        input_shape=tuple(config.input_size),
        classes=tuple(config.label_names or ()),
    )


@contextmanager
def _hub_offline() -> Iterator[None]:
    """Let the hub's client use its cache only, without a connection and its retries."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def load_torchvision(source: Source, probe: Reachable = reachable) -> HubModel:
    """Build a torchvision image classifier behind the normalisation of its default weights.

    Args:
        source: a parsed `torchvision:NAME` source.
        probe: tells whether an address answers.

    Raises:
        BadSource: torchvision is not installed, knows no such model, or it is not an image classifier.
        WeightsUnavailable: pretrained weights were asked for and are neither cached nor reachable.
    """
    try:
        from torchvision import models
    except ImportError as error:
        raise BadSource(f"{source.text}: torchvision must be installed (the worker extra)") from error
    if source.target not in models.list_models():
        raise BadSource(_unknown(source, models.list_models()))
    weights = models.get_model_weights(source.target).DEFAULT
    preprocessing = weights.transforms()
    crop = list(getattr(preprocessing, "crop_size", []))
    if len(crop) != 1:
        raise BadSource(f"{source.text}: a torchvision model must be an image classifier; this one is not")
    if source.pretrained:
        _check_cached_or_reachable(source, weights.url, probe)
        model = _pretrained(source, lambda: models.get_model(source.target, weights=weights))
    else:
        model = models.get_model(source.target, weights=None)
    return HubModel(
        module=NormalisedModel(model, preprocessing.mean, preprocessing.std),
        input_shape=(len(preprocessing.mean), crop[0], crop[0]),
        classes=tuple(weights.meta["categories"]),
    )


def _check_cached_or_reachable(source: Source, url: str, probe: Reachable) -> None:
    cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name
    if not cached.is_file() and not probe(url):
        raise WeightsUnavailable(_unavailable(source, f"{urlsplit(url).hostname} does not answer"))


def _pretrained(source: Source, build: Callable[[], nn.Module], reason: str | None = None) -> nn.Module:
    """Call a hub's builder; whatever it raises on the way to the weights becomes one readable error."""
    try:
        return build()
    except Exception as error:
        raise WeightsUnavailable(_unavailable(source, reason or str(error))) from error


def _unavailable(source: Source, reason: str) -> str:
    return (
        f"{source.text}: pretrained weights must be cached on this machine or reachable, but {reason}. Load the model "
        f"once where there is a connection and bring the cache along, or serve untrained weights with "
        f"{source.kind}:{source.target}?pretrained=false"
    )


def _unknown(source: Source, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(source.target, list(names), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{source.text}: {source.kind} knows no model {source.target!r}{hint}"
