"""The command `unstraggle adapt`: fits the model to the configured code.

Torch is imported when it runs, so that `unstraggle --help` answers at once.
"""

from __future__ import annotations

import json as jsonlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from models.errors import ModelError
from serving.cli import ConfigOption, SetOption, configuration_file
from serving.errors import ConfigError

if TYPE_CHECKING:
    from models.adapt import AdaptRecipe, RoundLog
    from models.adapt_material import CodeParams

_USAGE_ERROR = 2
_COLUMNS = ("scheme", "variant", "mse", "accuracy", "rel_accuracy")


def adapt(
    config: ConfigOption = None,
    overrides: SetOption = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Inputs to train on, .npy or .npz of shape (rows, ...); no labels.",
            show_default="the training images of a builtin model's dataset, see `unstraggle data fetch`",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The weights to write, .safetensors; the log goes beside them.",
            show_default="adapted-KIND-K-N-WAIT_FOR.safetensors",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training, at most.")] = 30,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps in a round; after it the model is measured.")
    ] = 100,
    groups: Annotated[int, typer.Option(min=1, help="Random groups in a step.")] = 25,
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", min=1e-7, max=1.0, help="The highest learning rate.")
    ] = 1e-3,
    clean_share: Annotated[
        float,
        typer.Option(
            "--clean-share", min=0.0, max=100.0, help="Weight of plain answers beside decoded ones."
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the groups and the stragglers.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Torch threads.")] = 2,
) -> None:
    """Fine-tune a copy of your model on coded groups, so that decoded answers are accurate; no labels needed.

    After an interruption, the same command goes on where it stopped.
    """
    from models.adapt import AdaptRecipe

    recipe = AdaptRecipe(rounds, steps, groups, learning_rate, clean_share, seed=seed)
    try:
        _adapt(_Task.of(config, overrides or [], out), inputs, recipe, threads)
    except (ConfigError, ModelError, OSError) as error:
        typer.echo(f"unstraggle adapt: {error}", err=True)
        raise typer.Exit(_USAGE_ERROR) from error


@dataclass(frozen=True, slots=True)
class _Task:
    """What is adapted to what, and where the weights go."""

    source: str
    params: CodeParams
    target: Path

    @classmethod
    def of(cls, config: Path | None, overrides: list[str], out: Path | None) -> _Task:
        """Read the configuration.

        Raises:
            ConfigError: it breaks a rule, or its scheme is not a code of logits.
        """
        from serving.config.load import load
        from serving.tuning import code_of

        settings = load(configuration_file(config), os.environ, overrides).settings
        params = code_of(settings)
        if params.output_domain != "logits":
            raise ConfigError(
                f"scheme.output_domain must be logits, for adapting trains on them; got {params.output_domain}"
            )
        if getattr(params, "systematic", False):
            raise ConfigError(
                "scheme.systematic must be false, for the answers to plain queries are exact only if the model stays "
                "what it is; got true"
            )
        target = out or Path(f"adapted-{params.kind}-{params.k}-{params.n}-{params.wait_for}.safetensors")
        if target.suffix != ".safetensors":
            raise ConfigError(f"--out must end in .safetensors, got {target}")
        return cls(settings.model.source, params, target)

    @property
    def adapted_source(self) -> str:
        """The model.source that loads the weights, in the place of those that it names itself."""
        model, _, query = self.source.partition("?")
        options = [option for option in query.split("&") if option]
        kept = [option for option in options if not option.startswith(("adapted=", "weights="))]
        return f"{model}?{'&'.join([*kept, f'weights={self.target}'])}"


def _adapt(task: _Task, inputs: str | None, recipe: AdaptRecipe, threads: int) -> None:
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from models.adapt import adapt as fine_tune
    from models.adapt_material import load_material
    from models.adapt_report import adapt_result, save
    from models.experiments.output import print_table

    torch.set_num_threads(threads)
    material = load_material(task.source, inputs, seed=recipe.seed)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("fine-tuning", total=recipe.rounds * recipe.steps)
        adapted, logs = fine_tune(
            material,
            task.params,
            recipe,
            checkpoint=task.target.with_suffix(".checkpoint"),
            on_step=lambda: progress.advance(bar),
            on_round=lambda log: progress.console.print(_line(log), highlight=False),
        )
    result = adapt_result(material, adapted, task.params, recipe, logs)
    save(adapted, result, task.target)
    print_table(result, _COLUMNS)
    typer.echo(f"the weights are in {task.target}; serve them with")
    typer.echo(f"model:\n  source: {jsonlib.dumps(task.adapted_source)}")


def _line(log: RoundLog) -> str:
    return (
        f"round {log.round}: loss {log.loss:.4f}, agreement with the original model: decoded "
        f"{log.coded_agreement:.4f}, plain {log.clean_agreement:.4f}"
    )
