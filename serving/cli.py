"""Commands of the server: `unstraggle serve`, `unstraggle replicas` and `unstraggle config`.

Each imports what it needs when it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving.errors import ConfigError

if TYPE_CHECKING:
    from serving.config.load import Loaded

config_app = typer.Typer(help="Show and explain the configuration.", no_args_is_help=True)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="UNSTRAGGLE_CONFIG", help="YAML file; ./config.yaml if it is there."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override one value, as scheme.kind=none."),
]


def serve(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Serve predictions until SIGTERM."""
    import uvloop

    from serving.logs import configure_logs
    from serving.server import serve as serve_forever

    settings = _load(config, overrides).settings
    configure_logs(settings.log)

    def announce(url: str) -> None:
        typer.echo(f"unstraggle: serving {settings.model.name} at {url}")

    try:
        uvloop.run(serve_forever(settings, announce))
    except ConfigError as error:
        raise _fatal(error) from error


def replicas(
    url: Annotated[str, typer.Option("--url", help="Address of the server.")] = "http://127.0.0.1:8000",
    pid: Annotated[
        str | None, typer.Option("--pid", metavar="NAME", help="Print only this replica's process number.")
    ] = None,
) -> None:
    """Show the replicas of a running server."""
    import httpx

    try:
        rows = _ask_for_replicas(url)
    except httpx.TransportError as error:
        typer.echo(f"unstraggle: cannot ask {url}: {error}; is the server running?", err=True)
        raise typer.Exit(1) from error
    except (httpx.HTTPStatusError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        typer.echo(
            f"unstraggle: --url must be the address of an Unstraggle server, such as http://127.0.0.1:8000; "
            f"{url}/replicas has no list of replicas",
            err=True,
        )
        raise typer.Exit(2) from error
    if pid is not None:
        found = next((row["pid"] for row in rows if row["name"] == pid), None)
        if found is None:
            names = ", ".join(row["name"] for row in rows)
            typer.echo(
                f"unstraggle: --pid must name a local replica that runs ({names}), got {pid!r}", err=True
            )
            raise typer.Exit(2)
        typer.echo(found)
        return
    _show_replicas(rows)


def _show_replicas(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("replica", "state", "in flight", "pid", box=None, header_style="bold")
    for row in rows:
        table.add_row(row["name"], row["state"], str(row["in_flight"]), str(row["pid"] or ""))
    Console().print(table)


def _ask_for_replicas(url: str) -> list[dict[str, Any]]:
    import httpx

    reply = httpx.get(f"{url.rstrip('/')}/replicas", timeout=5.0, trust_env=False).raise_for_status()
    rows: list[dict[str, Any]] = reply.json()["replicas"]
    return rows


@config_app.command("show")
def show(
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print a file that can be served with.")] = False,
) -> None:
    """Print the effective configuration with the source of each value."""
    loaded = _load(config, overrides)
    if as_yaml:
        import yaml

        typer.echo(yaml.safe_dump(loaded.settings.model_dump(mode="json"), sort_keys=False), nl=False)
        return
    rows = [(key, _as_yaml(value), source) for key, value, source in loaded.rows()]
    key_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for key, value, source in rows:
        typer.echo(f"{key:{key_width}}  {value:{value_width}}  {source}")


@config_app.command("reference")
def print_reference() -> None:
    """Print the configuration reference (docs/config.md) in Markdown."""
    from serving.config.reference import reference

    typer.echo(reference(), nl=False)


def configuration_file(config: Path | None) -> Path | None:
    """The file that a command reads: the one that was named, else ./config.yaml if it is there."""
    here = Path("config.yaml")
    return config or (here if here.is_file() else None)


def _as_yaml(value: object) -> str:
    import yaml

    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def _load(config: Path | None, overrides: list[str] | None) -> Loaded:
    from serving.config.load import load

    try:
        return load(configuration_file(config), os.environ, overrides or [])
    except ConfigError as error:
        raise _fatal(error) from error


def _fatal(error: ConfigError) -> typer.Exit:
    typer.echo(f"unstraggle: {error}", err=True)
    return typer.Exit(2)
