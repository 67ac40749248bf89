"""Running a model on batches of rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.errors import BadRows
from models.registry import load_model
from models.spec import ModelSpec, TensorInfo


class ModelRunner:
    """One model in one process, ready to answer.

    Predictions are deterministic: evaluation mode, inference mode, a fixed number of threads. The same batch always
    gives the same bits. The same row in batches of different sizes may differ in its last bits (about 1e-6 of the
    largest logit), because the matrix kernels sum in another order; codes do not notice, tests for equality would.

    Args:
        source: the `model.source` string (see `models.registry`).
        threads: torch threads. Torch has one such setting per process, so the latest runner's holds for all.

    Raises:
        ModelError: the model cannot be loaded, or its first run breaks its own contract.
    """

    def __init__(self, source: str, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        loaded = load_model(source)
        self._module = loaded.module
        self._spec = loaded.spec
        self._warm_up()

    @property
    def spec(self) -> ModelSpec:
        """What the model takes and gives."""
        return self._spec

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run the model on a batch.

        Rows are used as they are: coded rows leave the range of the data, and clipping them would break the code.

        Args:
            rows: shape (b, ...) in the item shape of `spec.input`, float32; it may be read-only. b may be 0.

        Returns:
            Shape (b, ...) in the item shape of `spec.output`, float32.

        Raises:
            BadRows: the rows, or the model's answer, do not have the promised shape or dtype.
        """
        self._check(rows.shape, self._spec.input)
        if rows.dtype != np.float32:
            raise BadRows(f"{self._spec.source}: rows must be float32; got {rows.dtype}")
        if len(rows) == 0:
            return np.empty((0, *self._spec.output.item_shape), np.float32)
        output = forward(self._module, rows)
        if not isinstance(output, Tensor):
            raise BadRows(
                f"{self._spec.source}: the model must return one tensor; got {type(output).__name__}"
            )
        self._check(tuple(output.shape), self._spec.output, batch=len(rows))
        answers: NDArray[np.float32] = output.float().numpy()
        return answers

    def _warm_up(self) -> None:
        """Let torch pick its kernels and buffers before the first request; variable dimensions count as 1."""
        item = [max(1, side) for side in self._spec.input.item_shape]
        self.predict(np.zeros((1, *item), np.float32))

    def _check(self, shape: tuple[int, ...], tensor: TensorInfo, batch: int = -1) -> None:
        wanted = (batch, *tensor.item_shape)
        fits = len(shape) == len(wanted) and all(
            want in (-1, have) for want, have in zip(wanted, shape, strict=True)
        )
        if not fits:
            raise BadRows(
                f"{self._spec.source}: {tensor.name!r} must have shape {list(wanted)}; got {list(shape)}"
            )


def forward(module: nn.Module, rows: NDArray[np.float32]) -> object:
    """What a module answers to a batch, unchecked and without gradients."""
    # torch wants memory that it may write to; request bodies are read-only and get copied here.
    batch = torch.from_numpy(np.require(rows, requirements=["C", "W"]))
    with torch.inference_mode():
        return module(batch)
