"""Sample inputs for tuning: rows of a user's file, or the shipped slice of a built-in model's dataset."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.builtin import BUILTINS
from models.datasets import DATASETS, load_slice
from models.errors import DataError, TuningError
from models.experiments.measure import Floats
from models.registry import require_builtin
from models.sources import parse_source
from models.spec import ModelSpec

_DAMAGED = (
    ValueError, EOFError, LookupError, SyntaxError, TypeError, OverflowError, MemoryError, RuntimeError, struct.error,
    lzma.LZMAError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy raises on files that are damaged, or whose heads lie."""


@dataclass(frozen=True, slots=True)
class SampleInputs:
    """Rows without labels.

    Attributes:
        name: a dataset's name, or the file's.
        rows: shape (rows, ...), float32, finite.
    """

    name: str
    rows: Floats


def sample_inputs(where: str | None, source: str) -> SampleInputs:
    """Load sample inputs.

    Args:
        where: a .npy file; an .npz file that holds one array, or one named `inputs`; the name of a shipped slice;
            None for the slice of the dataset that the built-in model `source` was trained on.
        source: the `model.source` string.

    Raises:
        DataError: the file cannot be read, or does not hold rows of finite floating-point numbers.
        TuningError: `where` is None, and the source is no built-in model.
        BadSource: the source string breaks a rule.
    """
    if where is None:
        parsed = parse_source(source)
        builtin = BUILTINS.get(parsed.target) if parsed.kind == "builtin" else None
        if builtin is None:
            if parsed.kind == "builtin":
                require_builtin(parsed)
            raise TuningError(
                f"--inputs must name a .npy file of inputs of your own for model.source {source}; "
                "no dataset comes with it"
            )
        where = builtin.dataset
    if where in DATASETS:
        return SampleInputs(where, load_slice(where).images)
    return SampleInputs(Path(where).name, _checked(where, _read(Path(where))))


def require_fit(inputs: SampleInputs, spec: ModelSpec) -> None:
    """Refuse rows that the model does not take.

    Raises:
        DataError: the rows' shape is not the model's.
    """
    wanted, got = spec.input.item_shape, inputs.rows.shape[1:]
    fits = len(wanted) == len(got) and all(want in (-1, have) for want, have in zip(wanted, got, strict=True))
    if not fits:
        raise DataError(
            f"--inputs must hold rows of shape {list(wanted)} for {spec.source}; "
            f"{inputs.name} has rows of shape {list(got)}"
        )


def _read(path: Path) -> object:
    try:
        with path.open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            return _only_array(path, stored) if isinstance(stored, np.lib.npyio.NpzFile) else stored
    except OSError as error:
        raise DataError(
            f"--inputs must be a file that can be read: {path}: {error.strerror or error}"
        ) from error
    except _DAMAGED as error:
        raise DataError(
            f"--inputs must be a .npy or .npz file of numbers; {path} {_what_is_wrong(error)}"
        ) from error


def _what_is_wrong(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "pickle" in text:
        return "is another kind of file, or holds Python objects"
    if isinstance(error, MemoryError):
        return "announces more numbers than fit into memory"
    return f"is damaged: {text[:200]}"


def _only_array(path: Path, stored: np.lib.npyio.NpzFile) -> object:
    if not stored.files:
        raise DataError(f"--inputs must be an .npz file with an array; {path} has none")
    name = "inputs" if "inputs" in stored.files else stored.files[0]
    if name != "inputs" and len(stored.files) > 1:
        raise DataError(
            f"--inputs must be an .npz file with one array, or with one named inputs; "
            f"{path} has {', '.join(stored.files)}"
        )
    return stored[name]


def _checked(where: str, stored: object) -> Floats:
    if not isinstance(stored, np.ndarray) or stored.dtype.kind != "f":
        found = stored.dtype if isinstance(stored, np.ndarray) else type(stored).__name__
        raise DataError(
            f"--inputs must hold floating-point numbers, as the model takes them; {where} holds {found}"
        )
    if stored.ndim < 2 or not len(stored):
        raise DataError(f"--inputs must have shape (rows, ...), got {list(stored.shape)} in {where}")
    with np.errstate(over="ignore"):
        rows: Floats = np.ascontiguousarray(stored, np.float32)
    if not np.isfinite(rows).all():
        first = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))[0])
        raise DataError(f"--inputs must be finite in single precision; row {first} of {where} is not")
    return rows
