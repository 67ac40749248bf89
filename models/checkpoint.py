"""The state of a training run on disk, for the next run to go on from."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.errors import TrainingError
from models.files import write_whole

_DAMAGED = (
    RuntimeError, EOFError, KeyError, AttributeError, TypeError, ValueError, IndexError, pickle.UnpicklingError,
)  # fmt: skip
"""What torch raises on files that are no checkpoints, and on states that do not fit."""


def save_checkpoint(path: Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the state of a run, whole or not at all.

    Args:
        path: the file.
        identity: what the run is, of dicts, numbers and texts: another run may not go on from it.
        state: tensors, numbers and texts.
    """
    buffer = io.BytesIO()
    torch.save({"identity": identity, **state}, buffer)
    write_whole(path, buffer.getvalue())


def restore_checkpoint(path: Path, identity: dict[str, Any], apply: Callable[[dict[str, Any]], None]) -> None:
    """Let a run go on from a state.

    Args:
        path: the file.
        identity: what the run is.
        apply: puts the state in place.

    Raises:
        TrainingError: the file is no checkpoint, cannot be read, or comes from another run.
    """
    try:
        state = torch.load(path, weights_only=True)
        found = dict(_flat(state["identity"]))
        if found == dict(_flat(identity)):
            apply(state)
            return
    except OSError as error:
        raise TrainingError(f"{path} must be a file that can be read: {error.strerror or error}") from error
    except _DAMAGED as error:
        raise TrainingError(
            f"{path} must be a checkpoint of a run that was interrupted, and is not one. "
            "Delete it to start over."
        ) from error
    raise TrainingError(
        f"{path} must come from this run; it comes from another, {_difference(found, dict(_flat(identity)))}. "
        "Delete it to start over, or write elsewhere with --out."
    )


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """A short name for the content of arrays, by which two runs tell that they have the same ones."""
    content = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        content.update(f"{name} {array.dtype} {array.shape};".encode())
        content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return content.hexdigest()[:16]


def _flat(identity: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in identity.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return "with " + ", ".join(
        f"{name} {found.get(name)} instead of {wanted.get(name)}" for name in names[:3]
    )
