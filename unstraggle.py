"""The command line: mounts the packages' commands, nothing else.

Torch is imported by the commands that need it, so that `unstraggle --help` answers at once.
"""

from __future__ import annotations

import typer

from loadtest.cli import loadtest_app
from models.cli import data_app, train
from models.experiments.cli import experiment_app
from serving.adapting import adapt
from serving.cli import config_app, replicas, serve
from serving.planning import plan
from serving.tuning import tune

app = typer.Typer(
    name="unstraggle",
    help="A prediction server whose answers never wait for the slowest replica.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(replicas)
app.command()(train)
app.command()(tune)
app.command()(adapt)
app.command()(plan)
app.add_typer(config_app, name="config")
app.add_typer(loadtest_app, name="loadtest")
app.add_typer(experiment_app, name="experiment")
app.add_typer(data_app, name="data")


def main() -> None:
    """Entry point of the `unstraggle` command."""
    app()


if __name__ == "__main__":
    main()
