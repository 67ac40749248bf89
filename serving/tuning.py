"""The command `unstraggle tune`: fits the configured code to the model.

Torch is imported when it runs, so that `unstraggle --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import json as jsonlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.files import require_writable
from models.options import (
    JsonOption,
    SampleInputsOption,
    SeedOption,
    ThreadsOption,
    errors_in_one_line,
    reason,
)
from models.sources import files_of
from serving.cli import ConfigOption, SetOption, configuration_file
from serving.errors import ConfigError

if TYPE_CHECKING:
    from models.adapt_material import CodeParams
    from models.tune import Tuning
    from serving.config import Settings

_STANDARD_OUTPUT = "-"
_COLUMNS = ("variant", "nodes", "output_domain", "lambda_enc", "lambda_dec", "mse", "agreement")
_NUMBERS = frozenset(_COLUMNS[3:])
_HEADERS = MappingProxyType({"output_domain": "domain", "agreement": "agree"})
"""Short headers, so that the table fits a terminal of 80 columns."""
_SMALL = 2e-3
"""What is below is a lambda, or as good as 0: shown by its power of ten."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The configuration file that a choice goes to.

    Attributes:
        source: the file that was read; None for none.
        target: the file to write; None for none.
    """

    source: Path | None
    target: Path | None

    @classmethod
    def checked(cls, source: Path | None, out: Path | None, *, write: bool) -> Destination:
        """Refuse what cannot be written, before anything takes time.

        Raises:
            ConfigError: both or an impossible destination; the message says what to do instead.
        """
        if write and out is not None:
            raise ConfigError(
                "--write and --out must not both be given: one changes the file, one makes another"
            )
        if write and source is None:
            raise ConfigError(
                "--write needs a configuration file to change: name it with --config, or make one with --out"
            )
        if out is not None and out.exists():
            raise ConfigError(f"--out must name a new file, got {out}; --write changes the file that is read")
        target = source if write else out
        if target is not None:
            require_writable("--write" if write else "--out", target)
        return cls(source, target)

    def require_editable(self, params: CodeParams, settings: Settings) -> None:
        """Find out before the search whether its choice, which is of this kind, can be written.

        Raises:
            ConfigError: the file that was read is for another kind of scheme, or cannot be edited.
        """
        if self.target is not None:
            self._edited(params, settings)

    def save(self, choice: CodeParams, settings: Settings) -> None:
        """Write the file that was read with everything in it that the choice needs.

        Raises:
            ConfigError: the file is not one that can be edited.
        """
        if self.target is None:
            return
        edited = self._edited(choice, settings)
        mode = self.target.stat().st_mode if self.target.exists() else None
        _write(self.target.resolve(), edited)
        if mode is not None:
            self.target.chmod(mode)

    def _edited(self, choice: CodeParams, settings: Settings) -> str:
        from serving.config.edit import with_values

        text = self.source.read_bytes().decode() if self.source else "# Written by `unstraggle tune`.\n"
        return with_values(text, _missing_values(self.source, choice, settings))


def tune(
    config: ConfigOption = None,
    overrides: SetOption = None,
    inputs: SampleInputsOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a new configuration file with the choice.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the choice into the file that was read.")
    ] = False,
    json: JsonOption = None,
    groups: Annotated[
        int, typer.Option(min=10, max=100_000, help="Random groups to search on, and to check on.")
    ] = 300,
    seed: SeedOption = 0,
    threads: ThreadsOption = 2,
) -> None:
    """Choose lambdas, nodes and output domain of a code for your model, on sample inputs without labels."""
    with errors_in_one_line("tune", ConfigError):
        _tune(config, overrides or [], inputs, Output(out, write, json), Effort(groups, seed, threads))


@dataclass(frozen=True, slots=True)
class Output:
    """Where the results go: options of the same names."""

    out: Path | None
    write: bool
    json: str | None


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured, and how: options of the same names."""

    groups: int
    seed: int
    threads: int


def _tune(
    config: Path | None, overrides: list[str], inputs: str | None, output: Output, effort: Effort
) -> None:
    from serving.config.load import load

    file = configuration_file(config)
    settings = load(file, os.environ, overrides).settings
    params = code_of(settings)
    destination = Destination.checked(file, output.out, write=output.write)
    destination.require_editable(params, settings)
    if output.json not in (None, _STANDARD_OUTPUT):
        others = {"--config": file, "--inputs": inputs, "--out": output.out}
        require_writable("--json", Path(output.json), others=others | files_of(settings.model.source))

    from models.experiments.output import progress_bar
    from models.runner import ModelRunner
    from models.sample_inputs import require_fit, sample_inputs
    from models.tune import Task, result_of
    from models.tune import tune as search

    sample = sample_inputs(inputs, settings.model.source)
    runner = ModelRunner(settings.model.source, effort.threads)
    require_fit(sample, runner.spec)
    task = Task(params, runner.predict, sample.rows, effort.groups, effort.seed)
    with progress_bar("coded queries", task.calls) as advance:
        tuning = search(task, advance)
    result = result_of(tuning, task, model=settings.model.source, dataset=sample.name)
    destination.save(tuning.chosen, settings)
    _publish(tuning, result, output.json)
    if destination.target is not None:
        typer.echo(f"the choice is in {destination.target}", err=True)


def code_of(settings: Settings) -> CodeParams:
    """The configured code.

    Raises:
        ConfigError: the scheme is no code, or its model does not run on this machine.
    """
    from coding.berrut import BerrutParams
    from coding.letcc import LetccParams

    if not isinstance(settings.scheme, LetccParams | BerrutParams):
        raise ConfigError(
            f"scheme.kind must be letcc or berrut, for the others are no codes; got {settings.scheme.kind}"
        )
    if settings.replicas.kind != "local":
        raise ConfigError(
            f"replicas.kind must be local, for model.source is run on this machine; got {settings.replicas.kind}: "
            "add --set replicas.kind=local and name the model with --set model.source=..."
        )
    return settings.scheme


def _missing_values(file: Path | None, choice: CodeParams, settings: Settings) -> dict[tuple[str, str], Any]:
    """What has to be set in this file for it alone to give the choice and the model that it was made for.

    Raises:
        ConfigError: the file is for another kind of scheme.
    """
    from serving.config.load import load

    alone = load(file).settings
    if file and alone.scheme.kind != choice.kind:
        raise ConfigError(
            f"scheme.kind must be {choice.kind} in {file} too before the choice can be written there; "
            f"got {alone.scheme.kind}"
        )
    wanted = {("scheme", name): value for name, value in dataclasses.asdict(choice).items()}
    wanted["model", "source"] = settings.model.source
    given = {("scheme", name): value for name, value in dataclasses.asdict(alone.scheme).items()}
    given["model", "source"] = alone.model.source
    return {path: value for path, value in wanted.items() if file is None or given[path] != value}


def _publish(tuning: Tuning, result: dict[str, Any], destination: str | None) -> None:
    """All trials as JSON; for people a table of each encoding's best, and what came of it."""
    text = jsonlib.dumps(result, indent=2) + "\n"
    if destination == _STANDARD_OUTPUT:
        typer.echo(text, nl=False)
        typer.echo(summary(tuning), err=True)
        return
    if destination is not None:
        _write(Path(destination), text)
    _show(tuning, result)
    typer.echo(summary(tuning))


def _show(tuning: Tuning, result: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from models.tune import best_of_each_encoding

    rows = [result["rows"][index] for index in best_of_each_encoding(tuning)]
    domains = len({row["output_domain"] for row in rows}) > 1
    columns = [
        name for name in _COLUMNS if rows[0].get(name) is not None and (name != "output_domain" or domains)
    ]
    size = tuning.configured
    title = f"{size.kind}, K {size.k}, N {size.n}, any {size.wait_for} of them; seed {result['seed']}"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("groups", *columns):
        table.add_column(
            _HEADERS.get(column, column), justify="right" if column in _NUMBERS else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(
            row["part"], *(_cell(row[column]) for column in columns), style="bold" if row["chosen"] else ""
        )
    Console().print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0e}" if 0 < value < _SMALL else f"{value:.4f}" if value else "0"
    return str(value)


def _write(path: Path, text: str) -> None:
    from models.files import write_whole

    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {reason(error)}") from error


def summary(tuning: Tuning) -> str:
    """What was chosen, and how it did on held-out groups."""
    from models.tune import tuned_fields

    before, after = tuning.held_out(tuning.configured), tuning.held_out(tuning.chosen)
    if tuning.chosen == tuning.configured:
        found = tuning.held_out(tuning.found)
        return (
            "keeping what is configured: the best that was found is not better beyond chance on held-out groups "
            f"(mse {found.mse:.4f}, configured {before.mse:.4f})"
        )
    old, new = tuned_fields(tuning.configured), tuned_fields(tuning.chosen)
    changes = ", ".join(f"{name} {old[name]} -> {new[name]}" for name in new if new[name] != old[name])
    gain = after.gain_over(before)
    return (
        f"chosen: {changes}\n"
        f"held-out groups: mse {before.mse:.4f} -> {after.mse:.4f} ({-gain.mean / before.mse:+.0%}; "
        f"paired difference {-gain.mean:.4f}, standard error {gain.standard_error:.4f}), "
        f"agreement with the uncoded model {before.agreement:.4f} -> {after.agreement:.4f}"
    )
