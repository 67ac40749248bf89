"""Training the models that ship with the package: seeded, resumable, on two CPU cores."""

from __future__ import annotations

import json
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
from torch import Generator, Tensor, nn
from torch.nn import functional

from models.augment import change, mixup
from models.builtin import Builtin
from models.checkpoint import restore_checkpoint, save_checkpoint
from models.errors import TrainingError
from models.files import log_beside, write_whole
from models.images import Images
from models.recipe import Recipe
from models.registry import load_model
from models.schedule import rate_share

_SEED_STRIDE = 1_000_003
"""Epoch e draws from seed + (e + 1) * this, so that no state of a generator needs to be kept to resume."""
_EVALUATION_ROWS = 500
_LIBRARIES = ("torch", "numpy", "safetensors", "timm")


@dataclass(frozen=True, slots=True)
class EpochLog:
    """One epoch: its number from 1, mean training loss, accuracy on the test digits, seconds it took."""

    epoch: int
    loss: float
    test_accuracy: float
    seconds: float


def train(
    model: Builtin,
    recipe: Recipe,
    train: Images,
    test: Images,
    *,
    out: Path,
    on_epoch: Callable[[EpochLog], None] = lambda _: None,
) -> list[EpochLog]:
    """Train a shipped model, or go on where an interrupted run with the same recipe stopped.

    The test rows are only measured: the weights are those of the last epoch, whatever their accuracy.

    Args:
        model: what to train.
        recipe: how.
        train: the rows to learn from.
        test: the rows to measure accuracy on.
        out: the safetensors file to write at the end; the log goes beside it as `.log.json`, and until the
            end a checkpoint as `.checkpoint`.
        on_epoch: called after each epoch, once its checkpoint is on disk.

    Returns:
        The log of every epoch.

    Raises:
        TrainingError: the checkpoint beside `out` comes from another recipe, or there are too few rows.
    """
    run = _Run(model, recipe, train, test, checkpoint=out.with_suffix(".checkpoint"))
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(
            "training", total=recipe.epochs * run.steps, completed=len(run.logs) * run.steps
        )
        while len(run.logs) < recipe.epochs:
            progress.update(task, description=f"epoch {len(run.logs) + 1}/{recipe.epochs}")
            log = run.epoch(on_step=lambda: progress.advance(task))
            run.save()
            on_epoch(log)
    served = model.deploy(run.network)
    weights = {name: tensor.contiguous() for name, tensor in served.state_dict().items()}
    write_whole(out, safetensors.torch.save(weights))
    write_whole(log_beside(out), _render_log(run, served))
    run.checkpoint.unlink(missing_ok=True)
    return run.logs


class _Run:
    """The state of one training run between epochs."""

    def __init__(
        self, model: Builtin, recipe: Recipe, train: Images, test: Images, *, checkpoint: Path
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.checkpoint = checkpoint
        self.logs: list[EpochLog] = []
        self.steps = len(train.images) // recipe.batch_rows
        if self.steps < 1:
            raise TrainingError(
                f"there must be at least batch_rows, {recipe.batch_rows}, training rows; "
                f"got {len(train.images)}"
            )
        self._train = _tensors(train)
        self._test = _tensors(test)
        self._classes = int(self._train[1].max()) + 1
        self._teacher = load_model(f"builtin:{recipe.teacher}").module if recipe.teacher else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = model.make_trainable()
        self._optimizer = torch.optim.AdamW(self.network.parameters(), weight_decay=recipe.weight_decay)
        if checkpoint.exists():
            restore_checkpoint(checkpoint, {"recipe": asdict(recipe)}, self._restore)

    def epoch(self, on_step: Callable[[], None]) -> EpochLog:
        """Train for one epoch and measure the outcome."""
        started = time.perf_counter()
        number = len(self.logs)
        generator = torch.Generator().manual_seed(self.recipe.seed + (number + 1) * _SEED_STRIDE)
        order = torch.randperm(len(self._train[0]), generator=generator)
        batches = order[: self.steps * self.recipe.batch_rows].view(self.steps, -1)
        self.network.train()
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
            group["lr"] = recipe.learning_rate * rate_share(step, recipe.epochs * self.steps)
        images, targets = self._examples(rows, generator)
        loss = functional.cross_entropy(self.network(images), targets)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.item()

    def _examples(self, rows: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Changed images, and their targets as class probabilities."""
        recipe = self.recipe
        images = _pixels(self._train[0][rows])
        targets = functional.one_hot(self._train[1][rows], self._classes).float()
        images = change(images, recipe, generator)
        images, targets = mixup(images, targets, share=recipe.mixup_share, generator=generator)
        if self._teacher is not None:
            with torch.inference_mode():
                taught = functional.softmax(self._teacher(images), dim=1)
            targets = torch.lerp(targets, taught.clone(), recipe.teacher_share)
        return images, targets

    @torch.inference_mode()
    def _accuracy(self) -> float:
        self.network.eval()
        images, labels = self._test
        some = range(0, len(labels), _EVALUATION_ROWS)
        guesses = torch.cat(
            [self.network(_pixels(images[at : at + _EVALUATION_ROWS])).argmax(1) for at in some]
        )
        return int((guesses == labels).sum()) / len(labels)

    def save(self) -> None:
        """Write the checkpoint."""
        state = {
            "model": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "logs": [asdict(log) for log in self.logs],
        }
        save_checkpoint(self.checkpoint, {"recipe": asdict(self.recipe)}, state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.logs = [EpochLog(**log) for log in state["logs"]]


def _tensors(data: Images) -> tuple[Tensor, Tensor]:
    return torch.tensor(data.images), torch.tensor(data.labels, dtype=torch.int64)


def _pixels(images: Tensor) -> Tensor:
    """Bytes to float32 in [0, 1]."""
    return images.float() / 255


def _render_log(run: _Run, served: nn.Module) -> bytes:
    log = {
        "name": run.model.name,
        "recipe": asdict(run.recipe),
        "parameters": sum(parameter.numel() for parameter in served.parameters()),
        "test_accuracy": run.logs[-1].test_accuracy,
        "seconds": round(sum(entry.seconds for entry in run.logs), 1),
        "threads": torch.get_num_threads(),
        "libraries": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        "epochs": [asdict(entry) for entry in run.logs],
    }
    return (json.dumps(log, indent=2) + "\n").encode()
