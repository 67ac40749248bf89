"""The state of a training run on disk, for the next run to go on from."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from models.errors import TrainingError
from models.files import write_whole


def save_checkpoint(path: Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the state of a run, whole or not at all.

    Args:
        path: the file.
        identity: what the run is: another run may not go on from it.
        state: tensors, numbers and texts.
    """
    buffer = io.BytesIO()
    torch.save({"identity": identity, **state}, buffer)
    write_whole(path, buffer.getvalue())


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Read the state of a run.

    Raises:
        TrainingError: the file is no checkpoint, or comes from another run.
    """
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        found = state["identity"]
    except (RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise TrainingError(
            f"{path} must be a checkpoint of a run that was interrupted, and is not one. "
            "Delete it to start over."
        ) from error
    if found != identity:
        raise TrainingError(
            f"{path} must come from {identity}; it comes from {found}. Delete it to start over."
        )
    return state
