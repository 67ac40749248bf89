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

from models.files import log_beside, require_writable
from models.options import SeedOption, ThreadsOption, errors_in_one_line
from models.sources import Source, files_of, parse_source, with_weights
from serving.cli import ConfigOption, SetOption, configuration_file
from serving.errors import ConfigError

if TYPE_CHECKING:
    from models.adapt import AdaptRecipe, RoundLog
    from models.adapt_material import CodeParams

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
            show_default="MODEL.KIND-K-N-WAIT_FOR.safetensors",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Rounds of training, at most.")] = 30,
    steps: Annotated[
        int, typer.Option(min=1, max=100_000, help="Steps in a round; after it the model is measured.")
    ] = 100,
    groups: Annotated[int, typer.Option(min=1, max=10_000, help="Random groups in a step.")] = 25,
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", min=1e-7, max=1.0, help="The highest learning rate.")
    ] = 1e-3,
    clean_share: Annotated[
        float,
        typer.Option(
            "--clean-share", min=0.0, max=100.0, help="Weight of plain answers beside decoded ones."
        ),
    ] = 0.5,
    seed: SeedOption = 0,
    threads: ThreadsOption = 2,
) -> None:
    """Fine-tune a copy of your model on coded groups, so that decoded answers are accurate; no labels needed.

    Each round shows how often decoded and plain answers agree with the original model's, on held-out inputs. After an
    interruption, the same command goes on where it stopped.
    """
    with errors_in_one_line("adapt", ConfigError):
        task = _Task.of(config, overrides or [], inputs, out)

        from models.adapt import AdaptRecipe

        recipe = AdaptRecipe(rounds, steps, groups, learning_rate, clean_share, seed=seed)
        _adapt(task, recipe, threads)


@dataclass(frozen=True, slots=True)
class _Task:
    """What is adapted to what, with which inputs, and where the weights go."""

    source: Source
    params: CodeParams
    inputs: str | None
    target: Path

    @classmethod
    def of(cls, config: Path | None, overrides: list[str], inputs: str | None, out: Path | None) -> _Task:
        """Read the configuration, and make sure that there is a place for the weights.

        Raises:
            ConfigError: it breaks a rule, or its scheme is not a code of logits.
            ModelError: the model's source breaks a rule, or the weights cannot be written.
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
        source = parse_source(settings.model.source)
        if source.kind == "torchscript":
            raise ConfigError(
                "model.source must take weights=FILE, to be served with what is learned; a torchscript file holds its "
                f"own: name the module that it was made from; got {source.text}"
            )
        code = f"{params.kind}-{params.k}-{params.n}-{params.wait_for}"
        target = out or Path(f"{source.short_name}.{code}.safetensors")
        if target.suffix != ".safetensors":
            raise ConfigError(f"--out must end in .safetensors, got {target}")
        if any("\udc80" <= character <= "\udcff" for character in str(target)):
            raise ConfigError(f"--out must be a name in UTF-8, for model.source to name it; got {target!r}")
        task = cls(source, params, inputs, target)
        others = {"--inputs": inputs, "--config": configuration_file(config), **files_of(source.text)}
        for path in (target, log_beside(target), task.checkpoint):
            require_writable("--out", path, others=others)
        if target.exists() and not task.checkpoint.exists():
            raise ConfigError(f"--out must name a new file; there is a {target} already")
        return task

    @property
    def checkpoint(self) -> Path:
        """Where the state between rounds is kept."""
        return self.target.with_suffix(".checkpoint")


def _adapt(task: _Task, recipe: AdaptRecipe, threads: int) -> None:
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from models.adapt import adapt as fine_tune
    from models.adapt_material import load_material
    from models.adapt_report import adapt_result, save
    from models.experiments.output import print_table

    torch.set_num_threads(threads)
    material = load_material(task.source.text, task.inputs, k=task.params.k, seed=recipe.seed)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("fine-tuning", total=recipe.rounds * recipe.steps)
        adapted, logs = fine_tune(
            material,
            task.params,
            recipe,
            checkpoint=task.checkpoint,
            advance=lambda done: progress.advance(bar, done),
            on_round=lambda log: progress.console.print(_line(log), highlight=False),
        )
    result = adapt_result(material, adapted, task.params, recipe, logs)
    save(adapted, result, task.target)
    task.checkpoint.unlink(missing_ok=True)
    print_table(result, _COLUMNS)
    typer.echo(
        "replication, hedged and default: the same N replicas without a code, as in `experiment table1`"
    )
    typer.echo(f"the weights are in {task.target}; serve them with")
    typer.echo(f"model:\n  source: {jsonlib.dumps(with_weights(task.source, task.target))}")


def _line(log: RoundLog) -> str:
    return (
        f"round {log.round}: loss {log.loss:.4f}, agreement decoded {log.coded_agreement:.4f}, "
        f"plain {log.clean_agreement:.4f}"
    )
