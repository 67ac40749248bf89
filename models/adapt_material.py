"""What a model is adapted with: rows to train on and rows to judge by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from models.augment import change
from models.builtin import BUILTINS, Builtin
from models.datasets import EvaluationSlice, evaluation_rows, load, load_slice
from models.errors import TrainingError
from models.output_kind import are_probabilities
from models.registry import load_model
from models.sample_inputs import SampleInputs, require_fit, sample_inputs
from models.sources import parse_source

CodeParams: TypeAlias = LetccParams | BerrutParams
"""The codes that a model can be adapted to."""

_ROWS_PER_QUERY = 10
"""One row of so many is held out."""
_MOST_HELD_OUT = 4000
_ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Material:
    """A model and its rows.

    Attributes:
        source: the model.source string.
        module: the model.
        inputs: shape (n, ...), float32, to train on; no labels.
        held_out: shape (m, ...), to stop by; not trained on.
        judged: labelled rows for the report. Where no labels are known, the model's own classes stand for them, on
            the held-out rows.
        augment: random changes to a batch of inputs.
    """

    source: str
    module: nn.Module
    inputs: NDArray[np.float32]
    held_out: NDArray[np.float32]
    judged: EvaluationSlice
    augment: Callable[[Tensor, Generator], Tensor] = lambda inputs, _: inputs


def load_material(source: str, inputs: str | None, *, k: int, seed: int) -> Material:
    """Load a model and what it is adapted with.

    Args:
        source: the model.source string.
        inputs: a file of inputs (see `sample_inputs`); None for the training images of a built-in model's dataset,
            which are changed at random as they were in training.
        k: the group size, K: there must be ten rows for each query of a group, so that a tenth makes one.
        seed: seed of the split into rows to train on and rows held out.

    Raises:
        ModelError: model or rows cannot be loaded, or do not fit each other.
    """
    loaded = load_model(source)
    parsed = parse_source(source)
    builtin = BUILTINS.get(parsed.target) if parsed.kind == "builtin" and inputs is None else None
    if builtin is not None:
        return _of_builtin(source, loaded.module, builtin, k, seed)
    sample = sample_inputs(inputs, source)
    require_fit(sample, loaded.spec)
    answers = _answers(loaded.module, sample)
    rows, held_out, classes = _split(sample.rows, k, seed, answers.argmax(1))
    return Material(source, loaded.module, rows, held_out, EvaluationSlice(sample.name, held_out, classes))


def _answers(module: nn.Module, sample: SampleInputs) -> NDArray[np.float32]:
    """The model's own answers to all rows: one that is not finite would spoil every group that its row is in.

    Raises:
        TrainingError: the model has nothing to train, or does not answer finite logits.
    """
    if not any(True for _ in module.parameters()):
        raise TrainingError("the model must have parameters to fine-tune; it has none")
    parts = []
    for at in range(0, len(sample.rows), _ROWS_AT_ONCE):
        with torch.inference_mode():
            answers = module(torch.from_numpy(sample.rows[at : at + _ROWS_AT_ONCE])).float().numpy()
        if answers.ndim != 2 or answers.shape[1] < 2:
            raise TrainingError(
                "the model must answer a row of logits to each input, of 2 classes or more; "
                f"got {list(answers.shape[1:])}"
            )
        bad = np.flatnonzero(~np.isfinite(answers).all(axis=1))
        if len(bad):
            raise TrainingError(
                f"the model's own answers must be finite; that to row {at + int(bad[0])} of {sample.name} is not: "
                "look at the range of --inputs, and at the weights of model.source"
            )
        parts.append(answers)
    answers = np.concatenate(parts)
    if are_probabilities(answers):
        raise TrainingError(
            "the model must answer logits to be adapted; it answers probabilities: take its softmax off, and set "
            "scheme.output_domain: logits"
        )
    return answers


def _of_builtin(source: str, module: nn.Module, model: Builtin, k: int, seed: int) -> Material:
    data = evaluation_rows(model.dataset, load(model.dataset, "train"))
    rows, held_out, _ = _split(data.images, k, seed, data.labels)
    return Material(
        source,
        module,
        rows,
        held_out,
        load_slice(model.dataset),
        augment=lambda images, generator: change(images, model.recipe, generator),
    )


def _split(
    rows: NDArray[np.float32], k: int, seed: int, classes: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Rows to train on, and a tenth of all held out, within bounds, with the classes of these.

    Raises:
        TrainingError: there are too few.
    """
    if len(rows) < _ROWS_PER_QUERY * k:
        raise TrainingError(
            f"--inputs must hold at least {_ROWS_PER_QUERY} rows for each of the k = {k} queries of a group, "
            f"{_ROWS_PER_QUERY * k}, to train on and to judge by; got {len(rows)}"
        )
    held_out = min(_MOST_HELD_OUT, len(rows) // _ROWS_PER_QUERY)
    order = np.random.default_rng(seed).permutation(len(rows))
    return rows[order[held_out:]], rows[order[:held_out]], classes[order[:held_out]]
