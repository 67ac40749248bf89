"""Writing files whole or not at all, and finding out early whether they can be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from models.errors import BadOption


def write_whole(path: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it, so that no reader ever sees half of it.

    Args:
        path: the file; its directory is made when missing.
        content: all of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_writable(option: str, path: Path, *, read: Mapping[str, Path | str | None] | None = None) -> None:
    """Find out before a long run whether a file can be written at its end; makes the folder for it.

    Args:
        option: what named the file, for messages.
        path: the file.
        read: files that the same run reads, by what named them, which it must not overwrite.

    Raises:
        BadOption: it cannot, or it is one of those.
    """
    for other, source in (read or {}).items():
        if source is not None and path.resolve() == Path(source).resolve():
            raise BadOption(f"{option} must not be the file of {other}, which would be lost; got {path}")
    if path.is_dir():
        raise BadOption(f"{option} must name a file; {path} is a folder")
    try:
        _try_writing_in(path.parent)
    except OSError as error:
        raise BadOption(
            f"{option} must name a file that can be written; {path}: {error.strerror or error}"
        ) from error


def require_folder(option: str, folder: Path) -> None:
    """Find out before a long run whether files can be written into a folder at its end; makes the folder.

    Raises:
        BadOption: they cannot.
    """
    try:
        _try_writing_in(folder)
    except OSError as error:
        raise BadOption(
            f"{option} must name a folder that can be written to; {folder}: {error.strerror or error}"
        ) from error


def _try_writing_in(folder: Path) -> None:
    """Only trying shows every reason: permissions, a read-only disk, a folder of the kernel's."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
