"""The datasets: the raw files in a cache directory, and evaluation slices in the package. Free of torch."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.cifar10 import CIFAR10_CLASSES, CIFAR10_FILES, cifar10_sources, read_cifar10
from models.download import DataFile, DataSource, fetch_files, is_complete
from models.errors import DataError
from models.files import write_whole
from models.images import Images, Split
from models.mnist import MNIST_CLASSES, MNIST_FILES, mnist_sources, read_mnist

DATA_DIR_VARIABLE = "UNSTRAGGLE_DATA_DIR"
SHIPPED = Path(__file__).parent / "shipped"
SLICE_ROWS = 2000

DatasetName: TypeAlias = Literal["mnist", "cifar10"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset.

    Attributes:
        name: its name in commands.
        classes: a label for each class.
        item_shape: of one image, (C, H, W).
        files: what its cache directory holds.
        sources: the places to fetch them from, in order.
        read: reads one split from the cache directory.
    """

    name: DatasetName
    classes: tuple[str, ...]
    item_shape: tuple[int, int, int]
    files: tuple[DataFile, ...]
    sources: Callable[[], tuple[DataSource, ...]]
    read: Callable[[Split, Path], Images]

    @property
    def directory(self) -> Path:
        """The default cache: $UNSTRAGGLE_DATA_DIR/NAME, or `.data/NAME` in the working directory."""
        return Path(os.environ.get(DATA_DIR_VARIABLE) or ".data") / self.name


DATASETS: Mapping[DatasetName, Dataset] = MappingProxyType(
    {
        "mnist": Dataset("mnist", MNIST_CLASSES, (1, 28, 28), MNIST_FILES, mnist_sources, read_mnist),
        "cifar10": Dataset(
            "cifar10", CIFAR10_CLASSES, (3, 32, 32), CIFAR10_FILES, cifar10_sources, read_cifar10
        ),
    }
)
"""Every dataset by name."""


@dataclass(frozen=True, slots=True)
class EvaluationSlice:
    """Labelled rows in the form that models take.

    Attributes:
        name: the dataset's name.
        images: shape (n, C, H, W), float32 in [0, 1].
        labels: shape (n,), int64.
    """

    name: str
    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def fetch(
    name: DatasetName, directory: Path | None = None, *, sources: Sequence[DataSource] | None = None
) -> Path:
    """Make sure that a dataset's files are in a directory, each with its published size and checksum.

    A file appears in the directory whole and verified or not at all. Nothing is fetched when all are there.

    Args:
        name: which dataset.
        directory: the cache; by default the dataset's own.
        sources: where to fetch from, in order; by default the dataset's own.

    Returns:
        The directory.

    Raises:
        DataError: no source gave every file; the message says why for each, and what to do by hand.
    """
    dataset = DATASETS[name]
    target = dataset.directory if directory is None else directory
    if not is_complete(target, dataset.files):
        fetch_files(dataset.files, target, dataset.sources() if sources is None else sources)
    return target


def load(name: DatasetName, split: Split, directory: Path | None = None) -> Images:
    """Read one split from the cache.

    Raises:
        DataError: the files are not there, or are not what they should be.
    """
    dataset = DATASETS[name]
    return dataset.read(split, dataset.directory if directory is None else directory)


def make_slice(name: DatasetName, directory: Path | None = None, out: Path | None = None) -> Path:
    """Write the evaluation slice: the first 2,000 test rows, none of which was trained on.

    Args:
        name: which dataset.
        directory: its cache.
        out: the file to write; by default the one that ships with the package.

    Raises:
        DataError: the test files are missing or malformed.
    """
    target = _slice_path(name) if out is None else out
    some = load(name, "test", directory)[:SLICE_ROWS]
    buffer = io.BytesIO()
    np.savez_compressed(buffer, images=some.images, labels=some.labels)
    write_whole(target, buffer.getvalue())
    return target


def load_slice(name: str = "mnist") -> EvaluationSlice:
    """Load the evaluation slice of a dataset from the package; it needs no network and no torch.

    Raises:
        DataError: no slice of that name ships with the package.
    """
    path = _slice_path(name)
    if not path.is_file():
        known = sorted(found.name.removesuffix("-slice.npz") for found in SHIPPED.glob("*-slice.npz"))
        raise DataError(f"slice must be one of {', '.join(known)}; got {name!r}")
    with np.load(path) as stored:
        return evaluation_rows(name, Images(stored["images"], stored["labels"]))


def evaluation_rows(name: str, data: Images) -> EvaluationSlice:
    """Raw images in the form that models take."""
    return EvaluationSlice(
        name, data.images.astype(np.float32) / np.float32(255), data.labels.astype(np.int64)
    )


def _slice_path(name: str) -> Path:
    return SHIPPED / f"{name}-slice.npz"
