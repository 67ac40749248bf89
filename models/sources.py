"""Reading `model.source` strings; free of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qsl, quote

from models.errors import BadSource

OPTIONS_BY_KIND: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "builtin": frozenset({"adapted", "weights"}),
        "timm": frozenset({"pretrained", "weights"}),
        "torchvision": frozenset({"pretrained", "weights"}),
        "torchscript": frozenset({"input_shape"}),
        "python": frozenset({"input_shape", "weights"}),
    }
)

_FORMS = "builtin:NAME, timm:NAME, torchvision:NAME, torchscript:PATH or python:module:factory"
_BOOLEANS = MappingProxyType({"true": True, "false": False})


@dataclass(frozen=True, slots=True)
class Source:
    """A model.source string, taken apart.

    Attributes:
        text: the string itself, for messages.
        kind: one of the keys of `OPTIONS_BY_KIND`.
        target: what stands between the first colon and the question mark.
        pretrained: whether weights of a hub are wanted (timm and torchvision).
        input_shape: the shape of one input row, where the source says (torchscript and python).
        weights: a safetensors file to load over the model's own weights, such as `unstraggle adapt` writes.
        adapted: the code for which shipped weights were fine-tuned, such as `letcc-8-12-10` (builtin).
    """

    text: str
    kind: str
    target: str
    pretrained: bool = True
    input_shape: tuple[int, ...] | None = None
    weights: str | None = None
    adapted: str | None = None

    @property
    def short_name(self) -> str:
        """The target as part of a file's name: `lenet5-mnist`, or `my_package-make_model`."""
        last = self.target.rpartition("/")[2].removesuffix(".pt")
        return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-") or self.kind


def files_of(text: str) -> dict[str, Path]:
    """The files that a `model.source` string names, by where: what nothing may be written over.

    Raises:
        BadSource: the string breaks a rule.
    """
    source = parse_source(text)
    files = {"model.source": Path(source.target)} if source.kind == "torchscript" else {}
    return files | ({"the weights of model.source": Path(source.weights)} if source.weights else {})


def with_weights(source: Source, weights: Path) -> str:
    """The `model.source` string that loads other weights, in the place of those that the source names itself."""
    model, _, query = source.text.partition("?")
    kept = [
        option for option in query.split("&") if option and not option.startswith(("adapted=", "weights="))
    ]
    return f"{model}?{'&'.join([*kept, f'weights={quote(str(weights))}'])}"


def parse_source(text: str) -> Source:
    """Take a `model.source` string apart: `KIND:TARGET`, then perhaps `?option=value&option=value`.

    Raises:
        BadSource: the string has no known kind, names nothing, or carries an option that its kind lacks.
    """
    kind, _, rest = text.partition(":")
    target, _, query = rest.partition("?")
    if kind not in OPTIONS_BY_KIND:
        raise BadSource(f"model.source must be {_FORMS}; got {text!r}")
    if not target:
        raise BadSource(f"model.source must name something after {kind + ':'!r}; got {text!r}")
    options = _options(text, kind, query)
    for name in ("weights", "adapted"):
        if options.get(name) == "":
            raise BadSource(f"{text}: {name} must not be empty")
    if {"weights", "adapted"} <= options.keys():
        raise BadSource(f"{text}: weights and adapted must not both be given: each names all of the weights")
    return Source(
        text=text,
        kind=kind,
        target=target,
        pretrained=_boolean(text, options.get("pretrained", "true")),
        input_shape=_shape(text, options["input_shape"]) if "input_shape" in options else None,
        weights=options.get("weights"),
        adapted=options.get("adapted"),
    )


def _options(text: str, kind: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise BadSource(f"{text}: options must be option=value, joined by '&'; got {query!r}") from error
    allowed = OPTIONS_BY_KIND[kind]
    for name, _ in pairs:
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise BadSource(f"{text}: the options of a {kind} source are: {known}; got {name!r}")
    return dict(pairs)


def _boolean(text: str, value: str) -> bool:
    if value not in _BOOLEANS:
        raise BadSource(f"{text}: pretrained must be true or false; got {value!r}")
    return _BOOLEANS[value]


def _shape(text: str, value: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in value.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise BadSource(
            f"{text}: input_shape must be positive whole numbers, without the batch, such as 3,224,224; "
            f"got {value!r}"
        )
    return shape
