"""Shipped weights that were fine-tuned for a code: which there are. Free of torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from models.datasets import SHIPPED
from models.errors import BadSource
from models.sources import Source

_NAME = re.compile(r"(letcc|berrut)-(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class AdaptedCode:
    """The code that weights were fine-tuned for.

    Attributes:
        kind: letcc or berrut.
        k: K.
        n: N.
        wait_for: how many of the N replicas answered in training, at random.
    """

    kind: str
    k: int
    n: int
    wait_for: int

    @property
    def name(self) -> str:
        """As in `builtin:NAME?adapted=...` and in the file's name, such as letcc-8-12-10."""
        return f"{self.kind}-{self.k}-{self.n}-{self.wait_for}"


def adapted_path(model: str, code: AdaptedCode) -> Path:
    """Where the weights of a built-in model for a code are, in the package."""
    return SHIPPED / f"{model}.{code.name}.safetensors"


def adapted_codes(model: str) -> tuple[AdaptedCode, ...]:
    """The codes that a built-in model has weights for, ascending."""
    files = SHIPPED.glob(f"{model}.*.safetensors")
    matches = (
        _NAME.fullmatch(file.name.removeprefix(f"{model}.").removesuffix(".safetensors")) for file in files
    )
    return tuple(
        sorted(
            AdaptedCode(found[1], int(found[2]), int(found[3]), int(found[4])) for found in matches if found
        )
    )


def adapted_weights(source: Source, model: str) -> Path:
    """The weights that a builtin source's `adapted` option names.

    Raises:
        BadSource: there are none for that code.
    """
    for code in adapted_codes(model):
        if code.name == source.adapted:
            return adapted_path(model, code)
    known = ", ".join(code.name for code in adapted_codes(model)) or "none"
    raise BadSource(
        f"{source.text}: adapted must be a code that {model} has weights for: {known}; got {source.adapted!r}. "
        "`unstraggle adapt` makes weights for other codes, to be loaded with weights=FILE."
    )
