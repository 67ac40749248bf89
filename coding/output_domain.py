"""In which domain a model's outputs are decoded, and in which the client gets them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import numpy as np

from coding.scheme import Array

OutputDomainName: TypeAlias = Literal["logits", "probabilities", "as_is"]
"""The names of the configuration (`scheme.output_domain`)."""

PROBABILITY_FLOOR = 1e-12
"""Probabilities below this count as this, for the logarithm of 0 is not finite. A higher floor costs accuracy,
since it flattens differences between logits; a lower one makes an outlier of every probability that a model
rounded to 0."""


class OutputDomain(StrEnum):
    """What the model's outputs are, hence what happens to them before and after decoding.

    Softmax makes a curve through outputs stepwise, and a decoded step overshoots; logits are smooth. So the
    decoding takes place among logits, or logarithms of probabilities, which differ from logits by a constant
    that the softmax afterwards removes. Both maps work on any array whose last axis is the classes, and on
    the outputs of every scheme alike, coded or not.
    """

    LOGITS = "logits"
    """The model answers logits: decode them as they are, then softmax."""
    PROBABILITIES = "probabilities"
    """The model answers probabilities: decode their logarithms, then softmax."""
    AS_IS = "as_is"
    """The model answers something else: touch nothing."""

    def to_coding(self, outputs: Array) -> Array:
        """Map model outputs to the domain in which they are decoded.

        Args:
            outputs: shape (..., classes).

        Returns:
            An array of the same shape and dtype; `outputs` itself where nothing is to be done.
        """
        if self is not OutputDomain.PROBABILITIES:
            return outputs
        floor = max(PROBABILITY_FLOOR, float(np.finfo(outputs.dtype).tiny))
        return np.log(np.maximum(outputs, outputs.dtype.type(floor)))

    def to_client(self, decoded: Array) -> Array:
        """Map decoded outputs to what the client gets.

        Args:
            decoded: shape (..., classes).

        Returns:
            An array of the same shape and dtype; `decoded` itself where nothing is to be done.
        """
        return decoded if self is OutputDomain.AS_IS else softmax(decoded)


def softmax(logits: Array) -> Array:
    """Softmax over the last axis; sums in float32 at least, and never overflows.

    Args:
        logits: shape (..., classes), finite.

    Returns:
        Probabilities in the shape and dtype of `logits`.
    """
    wide = logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)
    exponentials = np.exp(wide - wide.max(axis=-1, keepdims=True))
    exponentials /= exponentials.sum(axis=-1, keepdims=True)
    probabilities: Array = exponentials.astype(logits.dtype, copy=False)
    return probabilities
