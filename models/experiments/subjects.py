"""The trained networks that experiments run on, with their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from models.adapted import adapted_codes
from models.datasets import SLICE_ROWS, DatasetName, EvaluationSlice, evaluation_rows, load, load_slice
from models.errors import BadOption
from models.experiments.groups import CodeSetting
from models.experiments.measure import Predict
from models.runner import ModelRunner

RowsName: TypeAlias = Literal["slice", "rest", "test", "train"]
TRAINING_ROWS = 4000
"""How many training rows are loaded, where parameters are chosen on them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A shipped network.

    Attributes:
        name: as in `--models`.
        title: for people.
        model: the built-in model.
        dataset: what it classifies.
        large: its setting with many replicas, from LeTCC's Table 1. Its lambda_dec has the least mse for LeTCC as in
            the paper, or one within 3 percent of it, on training images (`unstraggle experiment lambda --split train`).
        groups: random groups per setting in an experiment of the default size, fewer where the model is slow.
    """

    name: str
    title: str
    model: str
    dataset: DatasetName
    large: CodeSetting
    groups: int

    @property
    def source(self) -> str:
        """The model.source string."""
        return f"builtin:{self.model}"


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        subject.name: subject
        for subject in (
            Subject(
                "lenet5",
                "LeNet5, MNIST",
                "lenet5-mnist",
                "mnist",
                CodeSetting(k=20, n=100, s=60, lambda_dec=1e-6),
                groups=300,
            ),
            Subject(
                "repvgg",
                "RepVGG, CIFAR-10",
                "repvgg-cifar10",
                "cifar10",
                CodeSetting(k=20, n=60, s=20, lambda_dec=1e-6),
                groups=120,
            ),
            Subject(
                "vit",
                "ViT, CIFAR-10",
                "vit-cifar10",
                "cifar10",
                CodeSetting(k=8, n=20, s=3, lambda_dec=1e-5),
                groups=120,
            ),
        )
    }
)
"""Every subject by name."""


@dataclass(frozen=True, slots=True)
class LoadedSubject:
    """A subject, ready to be asked.

    Attributes:
        subject: which.
        predict: the network itself.
        data: labelled rows that it was not trained on.
        adapted: the networks that were fine-tuned for LeTCC, by K and N.
    """

    subject: Subject
    predict: Predict
    data: EvaluationSlice
    adapted: Mapping[tuple[int, int], Predict]


def choose(names: Sequence[str]) -> tuple[Subject, ...]:
    """The subjects of these names.

    Raises:
        BadOption: a name is unknown, or there is none.
    """
    if not names:
        raise BadOption(f"models must name at least one of {', '.join(SUBJECTS)}")
    for name in names:
        if name not in SUBJECTS:
            raise BadOption(f"models must be among {', '.join(SUBJECTS)}; got {name!r}")
    return tuple(SUBJECTS[name] for name in dict.fromkeys(names))


def load_subject(subject: Subject, *, rows: RowsName = "slice", threads: int = 2) -> LoadedSubject:
    """Load a subject's network and labelled rows.

    Args:
        subject: which.
        rows: the slice of the test set that is in the package; or, from the dataset's cache, the rest of the test set,
            all of it, or the first training rows.
        threads: torch threads.

    Raises:
        ModelError: weights or data are not there.
    """
    runner = ModelRunner(subject.source, threads)
    data = _labelled_rows(subject.dataset, rows)
    adapted = {
        (code.k, code.n): ModelRunner(f"{subject.source}?adapted={code.name}", threads).predict
        for code in adapted_codes(subject.model)
        if code.kind == "letcc"
    }
    return LoadedSubject(subject, runner.predict, data, adapted)


def _labelled_rows(dataset: DatasetName, rows: RowsName) -> EvaluationSlice:
    if rows == "slice":
        return load_slice(dataset)
    some = load(dataset, "train" if rows == "train" else "test")
    part = {"rest": slice(SLICE_ROWS, None), "test": slice(None), "train": slice(TRAINING_ROWS)}[rows]
    return evaluation_rows(f"{dataset}-{rows}", some[part])
