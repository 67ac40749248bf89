"""Training the model that ships with the package: seeded, resumable, minutes on two CPU cores."""

from __future__ import annotations

import io
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Generator, Tensor
from torch.nn import functional

from models.augment import mixup, shift
from models.datasets import SHIPPED, Digits
from models.errors import TrainingError
from models.files import write_whole
from models.lenet5 import DIGITS, LeNet5

WEIGHTS = SHIPPED / "lenet5-mnist.safetensors"

_SEED_STRIDE = 1_000_003
"""Epoch e draws from seed + (e + 1) * this, so that no state of a generator needs to be kept to resume."""
_EVALUATION_ROWS = 1000
_LIBRARIES = ("torch", "numpy", "safetensors")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; together with the data and the library versions it fixes the weights.

    The defaults are a compromise. Decoding wants a network whose logits change smoothly from one digit to another:
    mixup and an unusually strong weight decay give it that. Turning or scaling the digits, and longer training, take
    it away, for a little more accuracy on plain digits.

    Attributes:
        epochs: passes over the training digits.
        seed: seed of everything random: initial weights, order, changes to the digits.
        batch_rows: digits per step.
        learning_rate: the highest one; it rises over the first tenth of the steps and falls along a cosine.
        weight_decay: decoupled weight decay of AdamW.
        shift_pixels: largest random shift of a digit along each axis.
        mixup_share: share of the digits that are mixed with another one (see `models.augment.mixup`).
    """

    epochs: int = 20
    seed: int = 0
    batch_rows: int = 200
    learning_rate: float = 3e-3
    weight_decay: float = 0.25
    shift_pixels: float = 1.5
    mixup_share: float = 0.2


@dataclass(frozen=True, slots=True)
class EpochLog:
    """One epoch: its number from 1, mean training loss, accuracy on the test digits, seconds it took."""

    epoch: int
    loss: float
    test_accuracy: float
    seconds: float


def train_lenet5_mnist(
    recipe: Recipe,
    train: Digits,
    test: Digits,
    *,
    out: Path = WEIGHTS,
    on_epoch: Callable[[EpochLog], None] = lambda _: None,
) -> list[EpochLog]:
    """Train LeNet-5, or go on where an interrupted run with the same recipe stopped.

    The test digits are only measured: the weights are those of the last epoch, whatever their accuracy.

    Args:
        recipe: how to train.
        train: the digits to learn from.
        test: the digits to measure accuracy on.
        out: the safetensors file to write at the end; the log goes beside it as `.log.json`, and until the
            end a checkpoint as `.checkpoint`.
        on_epoch: called after each epoch, once its checkpoint is on disk.

    Returns:
        The log of every epoch.

    Raises:
        TrainingError: the checkpoint beside `out` comes from another recipe, or there are too few digits.
    """
    run = _Run(recipe, train, test, checkpoint=out.with_suffix(".checkpoint"))
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(
            "training", total=recipe.epochs * run.steps, completed=len(run.logs) * run.steps
        )
        while len(run.logs) < recipe.epochs:
            progress.update(task, description=f"epoch {len(run.logs) + 1}/{recipe.epochs}")
            log = run.epoch(on_step=lambda: progress.advance(task))
            run.save()
            on_epoch(log)
    write_whole(out, safetensors.torch.save(run.model.state_dict()))
    write_whole(out.with_suffix(".log.json"), _render_log(run))
    run.checkpoint.unlink(missing_ok=True)
    return run.logs


class _Run:
    """The state of one training run between epochs."""

    def __init__(self, recipe: Recipe, train: Digits, test: Digits, *, checkpoint: Path) -> None:
        self.recipe = recipe
        self.checkpoint = checkpoint
        self.logs: list[EpochLog] = []
        self.steps = len(train.images) // recipe.batch_rows
        if self.steps < 1:
            raise TrainingError(
                f"there must be at least batch_rows, {recipe.batch_rows}, training digits; "
                f"got {len(train.images)}"
            )
        self._train = _tensors(train)
        self._test = _tensors(test)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.model = LeNet5()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=recipe.weight_decay)
        if checkpoint.exists():
            self._restore()

    def epoch(self, on_step: Callable[[], None]) -> EpochLog:
        """Train for one epoch and measure the outcome."""
        started = time.perf_counter()
        number = len(self.logs)
        generator = torch.Generator().manual_seed(self.recipe.seed + (number + 1) * _SEED_STRIDE)
        order = torch.randperm(len(self._train[0]), generator=generator)
        batches = order[: self.steps * self.recipe.batch_rows].view(self.steps, -1)
        self.model.train()
        total = 0.0
        for step, rows in enumerate(batches):
            total += self._step(number * self.steps + step, rows, generator)
            on_step()
        accuracy = self._accuracy()
        seconds = time.perf_counter() - started
        log = EpochLog(number + 1, round(total / self.steps, 5), accuracy, round(seconds, 2))
        self.logs.append(log)
        return log

    def _step(self, step: int, rows: Tensor, generator: Generator) -> float:
        recipe = self.recipe
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe.epochs * self.steps)
        images = shift(self._train[0][rows], pixels=recipe.shift_pixels, generator=generator)
        targets = functional.one_hot(self._train[1][rows], len(DIGITS)).float()
        images, targets = mixup(images, targets, share=recipe.mixup_share, generator=generator)
        loss = functional.cross_entropy(self.model(images), targets)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.item()

    @torch.inference_mode()
    def _accuracy(self) -> float:
        self.model.eval()
        images, labels = self._test
        some = range(0, len(labels), _EVALUATION_ROWS)
        guesses = torch.cat([self.model(images[at : at + _EVALUATION_ROWS]).argmax(1) for at in some])
        return int((guesses == labels).sum()) / len(labels)

    def save(self) -> None:
        """Write the checkpoint."""
        state = {
            "recipe": asdict(self.recipe),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "logs": [asdict(log) for log in self.logs],
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_whole(self.checkpoint, buffer.getvalue())

    def _restore(self) -> None:
        state: dict[str, Any] = torch.load(self.checkpoint, weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            raise TrainingError(
                f"{self.checkpoint} must come from the recipe {asdict(self.recipe)}; it comes from "
                f"{state['recipe']}. Delete it to start over."
            )
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.logs = [EpochLog(**log) for log in state["logs"]]


def _tensors(digits: Digits) -> tuple[Tensor, Tensor]:
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 255
    return images, torch.tensor(digits.labels, dtype=torch.int64)


def _schedule(step: int, steps: int) -> float:
    """The learning rate as a share of the highest: up over the first tenth, then down along a cosine."""
    rise = max(1, steps // 10)
    if step < rise:
        return (step + 1) / rise
    return 0.5 + 0.5 * math.cos(math.pi * (step - rise) / max(1, steps - rise))


def _render_log(run: _Run) -> bytes:
    log = {
        "name": "lenet5-mnist",
        "recipe": asdict(run.recipe),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "test_accuracy": run.logs[-1].test_accuracy,
        "seconds": round(sum(entry.seconds for entry in run.logs), 1),
        "threads": torch.get_num_threads(),
        "libraries": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        "epochs": [asdict(entry) for entry in run.logs],
    }
    return (json.dumps(log, indent=2) + "\n").encode()
