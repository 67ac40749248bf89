"""Fine-tuning a model on coded groups, so that what its replicas answer decodes well.

A coded query is a blend of inputs, which no model was trained on. A few minutes of training on such blends, through the
decoder, teach it to answer them so that the decoded answers are the original model's: the loss is taken after decoding,
over random groups and random stragglers. The original model's own answers are the targets, so that no labels are
needed, and plain inputs stay in the loss, so that plain answers stay what they were.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from coding.ordering import nearest_order
from coding.scheme import Scheme
from models.adapt_material import CodeParams, Material
from models.checkpoint import digest, restore_checkpoint, save_checkpoint
from models.errors import TrainingError
from models.schedule import rate_share

_SEED_STRIDE = 1_000_003
_ROWS_AT_ONCE = 500
_AVERAGE_DECAY = 0.99
"""Of the weights that are kept, per step: an average over about the last hundred."""


@dataclass(frozen=True, slots=True)
class AdaptRecipe:
    """How to fine-tune.

    Attributes:
        rounds: how often the model is measured on held-out groups, at most.
        steps: steps of a round.
        groups: random groups in a step.
        learning_rate: the highest one; it rises over the first tenth of all steps, then falls along a cosine.
        clean_share: weight of the loss on plain inputs beside that on decoded answers.
        patience: rounds without a better held-out loss after which to stop.
        seed: seed of groups, stragglers and changes to the inputs.
    """

    rounds: int = 20
    steps: int = 100
    groups: int = 25
    learning_rate: float = 1e-3
    clean_share: float = 0.5
    patience: int = 10
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RoundLog:
    """One round: its number from 0 (before any training), held-out accuracies against the original model, seconds.

    Attributes:
        round: number.
        loss: held-out loss, of decoded and plain answers together.
        coded_agreement: share of decoded answers whose class is the original model's.
        clean_agreement: the same of plain answers.
        seconds: spent since the round before.
    """

    round: int
    loss: float
    coded_agreement: float
    clean_agreement: float
    seconds: float


class Coder:
    """A code's matrices as tensors, for sets of survivors."""

    def __init__(self, params: CodeParams) -> None:
        self.code = params.build(params.k)
        self.ordered = params.order == "nearest"
        self.n, self.wait_for = params.n, params.wait_for
        self._encoding = torch.tensor(encoding_matrix(self.code, params.k), dtype=torch.float32)

    def order(self, inputs: NDArray[np.float32], groups: NDArray[np.intp]) -> NDArray[np.intp]:
        """Put similar inputs of each group, shape (g, K), side by side where the code asks for it."""
        if not self.ordered:
            return groups
        return np.stack([group[nearest_order(inputs[group])] for group in groups])

    def encode(self, inputs: Tensor, survivors: NDArray[np.intp]) -> Tensor:
        """The payloads of the survivors only: inputs (g, K, ...), survivors (g, F), to (g, F, ...)."""
        rows = self._encoding[torch.tensor(survivors)]
        return torch.bmm(rows, inputs.flatten(2)).view(*survivors.shape, *inputs.shape[2:])

    def decode(self, arrivals: Tensor, survivors: NDArray[np.intp]) -> Tensor:
        """Answers (g, K, C) from arrivals (g, F, C)."""
        matrices = np.stack([decoding_matrix(self.code, tuple(some.tolist())) for some in survivors])
        return torch.bmm(torch.tensor(matrices, dtype=arrivals.dtype), arrivals)


def encoding_matrix(code: Scheme, k: int) -> NDArray[np.float64]:
    """E, shape (N, K), read off what the code makes of unit vectors."""
    return np.asarray(code.encode(np.eye(k)[np.newaxis])[:, 0], np.float64)


def decoding_matrix(code: Scheme, survivors: tuple[int, ...]) -> NDArray[np.float64]:
    """D_F, shape (K, |F|), read off what the code makes of unit vectors."""
    units = np.eye(len(survivors))
    arrivals = {task: units[index : index + 1] for index, task in enumerate(survivors)}
    return np.asarray(code.decode(arrivals).outputs[:, 0], np.float64)


def adapt(
    material: Material,
    params: CodeParams,
    recipe: AdaptRecipe,
    *,
    checkpoint: Path,
    advance: Callable[[int], None] = lambda _: None,
    on_round: Callable[[RoundLog], None] = lambda _: None,
) -> tuple[nn.Module, list[RoundLog]]:
    """Fine-tune a copy of a model for a code, or go on where an interrupted run stopped.

    Args:
        material: the model, which answers logits and is not changed, and its rows.
        params: the code that it will be served with.
        recipe: how.
        checkpoint: where to keep the state between rounds. It stays there at the end, for the caller to remove once the
            weights are safe.
        advance: told the number of steps done: those of an interrupted run at once, then one by one.
        on_round: called after each round, once its checkpoint is on disk.

    Returns:
        The model of the best round, and the log.

    Raises:
        TrainingError: fewer inputs than a group has; the checkpoint comes from another run; or answers or the loss are
            not finite.
    """
    run = _Run(material, params, recipe, checkpoint)
    advance((len(run.logs) - 1) * recipe.steps)
    while not run.finished:
        log = run.round(lambda: advance(1))
        run.save()
        on_round(log)
    return run.best(), run.logs


class _Run:
    """The state of one run between rounds."""

    def __init__(
        self,
        material: Material,
        params: CodeParams,
        recipe: AdaptRecipe,
        checkpoint: Path,
    ) -> None:
        for name, rows in (("inputs", material.inputs), ("held-out inputs", material.held_out)):
            if len(rows) < params.k:
                raise TrainingError(f"there must be at least k, {params.k}, {name}; got {len(rows)}")
        self.recipe = recipe
        self.logs: list[RoundLog] = []
        self._identity = _identity(material, params, recipe)
        self._checkpoint = checkpoint
        self._augment = material.augment
        self._coder = Coder(params)
        self._k = params.k
        self._teacher = copy.deepcopy(material.module).eval().requires_grad_(requires_grad=False)
        # Statistics of batches of blends would not be those of plain inputs: normalisation stays as it is.
        self._student = copy.deepcopy(material.module).eval()
        self._optimizer = torch.optim.AdamW(
            self._student.parameters(), lr=recipe.learning_rate, weight_decay=0.0
        )
        self._inputs = torch.from_numpy(material.inputs)
        self._held_out = torch.from_numpy(material.held_out)
        self._held_targets = self._answers(self._teacher, self._held_out)
        self._require_finite(self._held_targets, "held-out inputs")
        # What is measured and kept: an average over steps is better than where a high learning rate happens to stand.
        self._average = AveragedModel(
            self._student,
            multi_avg_fn=get_ema_multi_avg_fn(_AVERAGE_DECAY),  # type: ignore[no-untyped-call]
        )
        self._best = self._averaged_state()
        if checkpoint.exists():
            restore_checkpoint(checkpoint, self._identity, self._restore)
        else:
            self.logs.append(self._measure(0, time.perf_counter()))

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or the last ones brought nothing."""
        losses = [log.loss for log in self.logs]
        stale = len(losses) - 1 - int(np.argmin(losses))
        return len(self.logs) > self.recipe.rounds or stale >= self.recipe.patience

    def best(self) -> nn.Module:
        """The model of the round with the least held-out loss."""
        self._student.load_state_dict(self._best)
        return self._student

    def round(self, on_step: Callable[[], None]) -> RoundLog:
        """Train for one round and measure."""
        started = time.perf_counter()
        number = len(self.logs)
        random = np.random.default_rng((self.recipe.seed, number))
        generator = torch.Generator().manual_seed(self.recipe.seed + number * _SEED_STRIDE)
        total = self.recipe.rounds * self.recipe.steps
        for step in range(self.recipe.steps):
            done = (number - 1) * self.recipe.steps + step
            for group in self._optimizer.param_groups:
                group["lr"] = self.recipe.learning_rate * rate_share(done, total)
            self._step(random, generator)
            on_step()
        log = self._measure(number, started)
        if log.loss < min(previous.loss for previous in self.logs):
            self._best = self._averaged_state()
        self.logs.append(log)
        return log

    def _step(self, random: np.random.Generator, generator: Generator) -> None:
        groups = _draw(random, len(self._inputs), self.recipe.groups, self._k)
        rows = self._augment(self._inputs[torch.tensor(groups.ravel())], generator)
        with torch.inference_mode():
            taught = functional.softmax(self._teacher(rows), dim=1)
        self._require_finite(taught, "inputs")
        loss = self._loss(rows, taught.clone(), groups.shape, random)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"the loss must stay finite; it became {loss.item()} in round {len(self.logs)}. "
                f"A lower --learning-rate than {self.recipe.learning_rate:g} helps where training runs away"
            )
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._average.update_parameters(self._student)

    @staticmethod
    def _require_finite(answers: Tensor, to: str) -> None:
        bad = int((~torch.isfinite(answers)).any(dim=1).sum())
        if bad:
            raise TrainingError(
                f"the model's own answers must be finite; {bad} of {len(answers)} to {to} are not: "
                "look at the range of --inputs, and at the weights of model.source"
            )

    def _averaged_state(self) -> dict[str, Any]:
        return copy.deepcopy(self._average.module.state_dict())

    def _loss(
        self, rows: Tensor, taught: Tensor, shape: tuple[int, ...], random: np.random.Generator
    ) -> Tensor:
        decoded, order = self._coded(self._student, rows, shape, random)
        coded = functional.cross_entropy(decoded, taught[order])
        some = torch.tensor(random.choice(len(rows), max(1, len(rows) // 2), replace=False))
        clean = functional.cross_entropy(self._student(rows[some]), taught[some])
        return coded + self.recipe.clean_share * clean

    def _coded(
        self, model: nn.Module, rows: Tensor, shape: tuple[int, ...], random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Decoded logits (g * K, C), and which row each answers."""
        positions = np.arange(len(rows)).reshape(shape)
        order = self._coder.order(rows.numpy(), positions)
        survivors = _survivors(random, shape[0], self._coder.n, self._coder.wait_for)
        payloads = self._coder.encode(rows[torch.tensor(order)], survivors)
        arrivals = model(payloads.flatten(0, 1)).view(*survivors.shape, -1)
        return self._coder.decode(arrivals, survivors).flatten(0, 1), torch.tensor(order.ravel())

    @torch.inference_mode()
    def _measure(self, number: int, started: float) -> RoundLog:
        random = np.random.default_rng((self.recipe.seed, 0))
        count = max(1, min(300, 4 * len(self._held_out) // self._k))
        groups = _draw(random, len(self._held_out), count, self._k)
        losses, right = [], []
        for some in np.array_split(groups, math.ceil(len(groups) / 25)):
            flat = torch.tensor(some.ravel())
            decoded, order = self._coded(self._average, self._held_out[flat], some.shape, random)
            targets = self._held_targets[flat][order]
            losses.append(float(functional.cross_entropy(decoded, targets)) * len(targets))
            right.append(float((decoded.argmax(1) == targets.argmax(1)).sum()))
        clean = self._answers(self._average, self._held_out)
        clean_loss = -(self._held_targets * clean.clamp_min(1e-12).log()).sum(1).mean()
        loss = sum(losses) / groups.size + self.recipe.clean_share * float(clean_loss)
        agreement = float((clean.argmax(1) == self._held_targets.argmax(1)).float().mean())
        seconds = time.perf_counter() - started
        return RoundLog(number, round(loss, 5), sum(right) / groups.size, agreement, round(seconds, 2))

    @torch.inference_mode()
    def _answers(self, model: nn.Module, inputs: Tensor) -> Tensor:
        parts = [model(inputs[at : at + _ROWS_AT_ONCE]) for at in range(0, len(inputs), _ROWS_AT_ONCE)]
        return functional.softmax(torch.cat(parts), dim=1)

    def save(self) -> None:
        """Write the checkpoint."""
        state = {
            "student": self._student.state_dict(),
            "average": self._average.state_dict(),
            "best": self._best,
            "optimizer": self._optimizer.state_dict(),
            "logs": [asdict(log) for log in self.logs],
        }
        save_checkpoint(self._checkpoint, self._identity, state)

    def _restore(self, state: dict[str, Any]) -> None:
        self._student.load_state_dict(state["best"])  # finds out that it fits
        self._best = state["best"]
        self._student.load_state_dict(state["student"])
        self._average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.logs = [RoundLog(**log) for log in state["logs"]]
        if not self.logs:
            raise ValueError("no round was logged")


def _identity(material: Material, params: CodeParams, recipe: AdaptRecipe) -> dict[str, Any]:
    """What a run is: everything that its outcome depends on."""
    return {
        "recipe": asdict(recipe),
        "code": asdict(params),
        "model.source": material.source,
        "judged on": material.judged.name,
        "weights": digest(
            {name: tensor.numpy(force=True) for name, tensor in material.module.state_dict().items()}
        ),
        "inputs": digest({"inputs": material.inputs, "held_out": material.held_out}),
    }


def _draw(random: np.random.Generator, rows: int, groups: int, k: int) -> NDArray[np.intp]:
    """Groups of distinct rows, shape (groups, k)."""
    return np.stack([random.choice(rows, k, replace=False) for _ in range(groups)])


def _survivors(random: np.random.Generator, groups: int, n: int, wait_for: int) -> NDArray[np.intp]:
    replicas = random.permuted(np.tile(np.arange(n), (groups, 1)), axis=1)
    return np.sort(replicas[:, :wait_for], axis=1)
