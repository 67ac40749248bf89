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
        path: the file; its directory is made when missing. A device or a pipe is written to, not replaced.
        content: all of it.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def log_beside(weights: Path) -> Path:
    """Where the record of how weights came about lies."""
    return weights.with_suffix(".log.json")


def require_writable(
    option: str, path: Path, *, others: Mapping[str, Path | str | None] | None = None
) -> None:
    """Find out before a long run whether a file can be written at its end.

    Args:
        option: what named the file, for messages.
        path: the file.
        others: files that the same run reads or writes, by what named them: it must not be one of them, nor lie below
            one, nor above.

    Raises:
        BadOption: it cannot, or it is in the way of another.
    """
    mine = path.resolve()
    for name, other in (others or {}).items():
        if other is None or Path(other).is_dir():
            continue
        theirs = Path(other).resolve()
        if mine == theirs or mine in theirs.parents or theirs in mine.parents:
            raise BadOption(f"{option} must not be the file of {name}, or a folder of it; got {path}")
    if path.is_dir():
        raise BadOption(f"{option} must name a file; {path} is a folder")
    _require_folder(path.parent, f"{option} must name a file that can be written; {path}")


def require_folder(option: str, folder: Path) -> None:
    """Find out before a long run whether files can be written into a folder at its end; the folder may be missing.

    Raises:
        BadOption: they cannot.
    """
    _require_folder(folder, f"{option} must name a folder that can be written to; {folder}")


def _require_folder(folder: Path, rule: str) -> None:
    """Write a temporary file where the folder is or would be: only trying shows every reason why not."""
    nearest = next(there for there in (folder, *folder.absolute().parents) if there.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadOption(f"{rule}: {error.strerror or error}") from error
