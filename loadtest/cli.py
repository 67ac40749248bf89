"""Commands of the harness: `unstraggle loadtest compare` and `unstraggle loadtest run`.

Each imports what it needs when it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from loadtest.config import ArrivalKind, LoadSettings, StackSettings, parse_schemes, parse_service_time
from loadtest.errors import LoadTestError, OptionError

if TYPE_CHECKING:
    from loadtest.compare import Measurement
    from loadtest.records import Record

_Result = TypeVar("_Result")

_TERMINATED = 128 + signal.SIGTERM
_USAGE_ERROR = 2

loadtest_app = typer.Typer(help="Measure latency and accuracy under load.", no_args_is_help=True)

RateOption = Annotated[float, typer.Option(help="Requests per second.")]
RequestsOption = Annotated[
    int, typer.Option(help="Measured requests. A p99 needs about 1,000, a p99.9 about 10,000.")
]
RowsOption = Annotated[int, typer.Option(help="Digits in each request.")]
SeedOption = Annotated[int, typer.Option(help="Decides the schedule, the digits and the stragglers.")]
ArrivalsOption = Annotated[ArrivalKind, typer.Option(help="Random arrivals, or evenly spaced ones.")]
WarmupOption = Annotated[int, typer.Option(help="Requests sent beforehand and not counted.")]
NameOption = Annotated[str, typer.Option(help="Names the result.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder for every file.", show_default=".runs/NAME")]
JsonOption = Annotated[
    str | None,
    typer.Option(help="File for the result; - for standard output.", show_default="OUT/result.json"),
]
RecordsOption = Annotated[
    Path | None, typer.Option(help="File for one line per request.", show_default="OUT/records.jsonl")
]
PlotOption = Annotated[
    Path | None, typer.Option(help="File for the percentile spectrum.", show_default="OUT/spectrum.png")
]


@loadtest_app.command()
def compare(
    schemes: Annotated[
        str, typer.Option(help="Schemes and their parameters, as none,replication:copies=3,letcc:n=12.")
    ] = "none,replication,letcc",
    rate: RateOption = 10.0,
    requests: RequestsOption = 1000,
    rows_per_request: RowsOption = 8,
    replicas: Annotated[int, typer.Option(help="Worker processes of each server.")] = 12,
    window_ms: Annotated[float, typer.Option(help="Longest wait of a row for its group to fill.")] = 10.0,
    service_time: Annotated[
        str, typer.Option(help="Time added to each replica call: none, or such as exponential:50ms.")
    ] = "inference-trace:50ms",
    replica_concurrency: Annotated[
        int, typer.Option(help="Calls that a replica runs at once; 0 for no limit.")
    ] = 1,
    deadline_ms: Annotated[float, typer.Option(help="The server's deadline for a request.")] = 1000.0,
    seed: SeedOption = 0,
    arrivals: ArrivalsOption = "poisson",
    warmup: WarmupOption = 20,
    name: NameOption = "loadtest-compare",
    out: OutOption = None,
    json: JsonOption = None,
    records: RecordsOption = None,
    plot: PlotOption = None,
) -> None:
    """Start one server per scheme and send the same load to each."""
    from loadtest.compare import compare_schemes
    from loadtest.output import Destination, describe_settings
    from loadtest.report import Result, latency_row
    from loadtest.stack import SERVE_COMMAND
    from models.datasets import load_slice

    with _readable_errors():
        destination = Destination(out or Path(".runs") / name, json, records, plot)
        destination.check()
        choices = parse_schemes(schemes)
        load = LoadSettings(rate, requests, rows_per_request, seed, arrivals, warmup)
        stack = StackSettings(
            replicas, window_ms, parse_service_time(service_time), replica_concurrency, deadline_ms
        )
        comparison = _run_to_the_end(
            compare_schemes(
                choices,
                load,
                stack,
                load_slice("mnist"),
                log_directory=destination.directory,
                progress=_progress(load),
                serve_command=SERVE_COMMAND,
            )
        )
    settings = {
        **asdict(load),
        "replicas": replicas,
        "window_ms": window_ms,
        "service_time": service_time,
        "replica_concurrency": replica_concurrency,
        "deadline_ms": deadline_ms,
        "overrides": {choice.label: stack.overrides(choice, seed) for choice in choices},
    }
    rows = tuple(
        latency_row(measurement, load, base_accuracy=comparison.base_accuracy, replicas=replicas)
        for measurement in comparison.measurements
    )
    at_once = replica_concurrency or "any number of"
    set_up = (
        f"{replicas} replicas, service times {service_time}, {at_once} calls at once each;"
        f" {_describe(load)}; window {window_ms:g} ms; seed {seed}"
    )
    result = Result(name, seed, describe_settings(settings), rows)
    destination.publish(result, comparison.measurements, set_up=set_up)


@loadtest_app.command()
def run(
    url: Annotated[str, typer.Option(help="Base address of a V2 server that runs already.")],
    model: Annotated[str, typer.Option(help="The model's name in that server.")] = "lenet5",
    rate: RateOption = 10.0,
    requests: RequestsOption = 1000,
    rows_per_request: RowsOption = 8,
    timeout_ms: Annotated[float, typer.Option(help="Longest wait for one answer.")] = 5000.0,
    seed: SeedOption = 0,
    arrivals: ArrivalsOption = "poisson",
    warmup: WarmupOption = 20,
    name: NameOption = "loadtest-run",
    out: OutOption = None,
    json: JsonOption = None,
    records: RecordsOption = None,
    plot: PlotOption = None,
) -> None:
    """Send the load to a server that runs already."""
    from loadtest.output import Destination, describe_settings
    from loadtest.report import Result, latency_row

    with _readable_errors():
        destination = Destination(out or Path(".runs") / name, json, records, plot)
        destination.check()
        load = LoadSettings(rate, requests, rows_per_request, seed, arrivals, warmup)
        _check_address(url)
        if timeout_ms <= 0:
            raise OptionError("--timeout-ms", "over 0 milliseconds", timeout_ms)
        measurement = _run_to_the_end(_measure_at(url, model, timeout_ms / 1000.0, load))
    settings = {**asdict(load), "url": url, "model": model, "timeout_ms": timeout_ms}
    rows = (latency_row(measurement, load, base_accuracy=None, replicas=None),)
    result = Result(name, seed, describe_settings(settings), rows)
    destination.publish(result, [measurement], set_up=f"{model} at {url}, {_describe(load)}")


async def _measure_at(url: str, model: str, timeout_s: float, load: LoadSettings) -> Measurement:
    from loadtest.compare import measure
    from loadtest.target import connect
    from models.datasets import load_slice

    async with connect(url, model, timeout_s=timeout_s) as target:
        return await measure(target, model, load, load_slice("mnist"), progress=_progress(load))


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError("--url", "an address such as http://127.0.0.1:8000", url)


def _progress(load: LoadSettings) -> Callable[[str], AbstractContextManager[Callable[[Record], None]]]:
    from rich.console import Console

    from loadtest.progress import progress_bar

    console = Console(stderr=True)
    expected_s = load.requests / load.rate
    return lambda label: progress_bar(console, label, requests=load.requests, expected_s=expected_s)


def _describe(load: LoadSettings) -> str:
    return f"{load.arrivals} arrivals at {load.rate:g}/s, {load.rows_per_request} rows per request"


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Turn the errors that users cause into one message and an exit status."""
    try:
        yield
    except LoadTestError as error:
        typer.echo(f"unstraggle loadtest: {error}", err=True)
        raise typer.Exit(_USAGE_ERROR if isinstance(error, OptionError) else 1) from error


def _run_to_the_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine; SIGTERM cancels it, as Ctrl-C does, so that the servers it started are stopped."""
    from loadtest.loop import precise_loop

    async def cancellable() -> _Result:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    _raise_open_file_limit()
    try:
        with asyncio.Runner(loop_factory=precise_loop) as runner:
            return runner.run(cancellable())
    except asyncio.CancelledError as error:
        raise typer.Exit(_TERMINATED) from error


def _raise_open_file_limit() -> None:
    """Every outstanding request holds a socket, and common limits on open files are low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
