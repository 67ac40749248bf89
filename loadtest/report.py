"""Results for people (a table) and for machines (JSON)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.compare import Measurement
from loadtest.config import LoadSettings
from loadtest.records import finite_ms
from loadtest.stats import MAX_LAG_SHARE, Interval

Row: TypeAlias = dict[str, Any]
"""One line of a result's `rows`: JSON values only; None stands for infinity or for unknown."""

_SHOWN_ERRORS = 3


@dataclass(frozen=True, slots=True)
class Result:
    """What a load test writes: the same four keys as everything else here that measures."""

    name: str
    seed: int
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]


def latency_row(
    measurement: Measurement, load: LoadSettings, *, base_accuracy: float | None, replicas: int | None
) -> Row:
    """One scheme's figures.

    Args:
        measurement: the run.
        load: the load it was under.
        base_accuracy: the uncoded model's accuracy on the same rows; None when unknown.
        replicas: number of replicas; None when unknown.
    """
    summary, cost = measurement.summary, measurement.cost
    percentiles = summary.percentiles_s
    return {
        "scheme": measurement.label,
        "requests": summary.requests,
        "rows_per_request": load.rows_per_request,
        "rate": load.rate,
        "errors": summary.errors,
        "p50_ms": finite_ms(percentiles[50.0]),
        "p95_ms": finite_ms(percentiles[95.0]),
        "p99_ms": finite_ms(percentiles[99.0]),
        "p999_ms": finite_ms(percentiles[99.9]),
        "max_ms": finite_ms(percentiles[100.0]),
        "accuracy": summary.accuracy,
        "base_accuracy": base_accuracy,
        "rel_accuracy": _ratio(summary.accuracy, base_accuracy),
        "replicas": replicas,
        "replica_calls": None if cost is None else cost.calls,
        "replica_seconds": None if cost is None else round(cost.seconds, 3),
        "p50_interval_ms": _interval_ms(summary.p50_interval_s),
        "p99_interval_ms": _interval_ms(summary.p99_interval_s),
        "service_p50_ms": finite_ms(summary.service_p50_s),
        "degraded": summary.degraded,
        "replicas_used": summary.replicas_used,
        "refused": summary.refused,
        "peak_outstanding": measurement.run.peak_outstanding,
        "sender_lag_p99_ms": finite_ms(summary.sender_lag_p99_s),
        "client_cpu": round(measurement.run.client_cpu, 3),
        "valid": summary.valid,
        "seconds": round(measurement.run.duration_s, 3),
    }


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _interval_ms(interval: Interval) -> list[float | None]:
    return [finite_ms(interval.low), finite_ms(interval.high)]


def write_json(result: Result, path: Path | None) -> None:
    """Write the result object to a file, or to standard output where `path` is None."""
    encoded = orjson.dumps(asdict(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if path is None:
        sys.stdout.buffer.write(encoded)
        sys.stdout.buffer.flush()
    else:
        path.write_bytes(encoded)


def print_table(console: Console, result: Result) -> None:
    """Print the rows for people: latencies, errors, accuracy, and what the replicas spent per request."""
    title = f"{result.name}: latency in ms"
    # Twelve columns fit into a terminal of eighty characters only with single blanks between them.
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("scheme", overflow="fold", min_width=11)
    for heading in ("p50", "p95", "p99", "p99.9", "max", "errors", "acc", "rel", "used", "calls", "busy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print(
        "Latency counts from the intended send time; a failed request's is infinite. acc: accuracy; rel: over the"
        " uncoded model's. used: replicas behind an answer. calls, busy: replica calls and ms per request.",
        style="dim",
        highlight=False,
    )
    intervals = "; ".join(f"{row['scheme']} {_interval(row['p99_interval_ms'])}" for row in result.rows)
    console.print(f"95 % interval of p99: {intervals}.", style="dim", markup=False, highlight=False)


def _interval(bounds: Sequence[float | None]) -> str:
    low, high = (_latency(bound) for bound in bounds)
    return f"{low} to {high}"


def _cells(row: Row) -> Sequence[str]:
    latencies = [_latency(row[key]) for key in ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")]
    return (
        row["scheme"] if row["valid"] else f"{row['scheme']} (invalid)",
        *latencies,
        str(row["errors"]),
        _number(row["accuracy"], 4),
        _number(row["rel_accuracy"], 4),
        _number(row["replicas_used"], 1),
        _number(_per_request(row, "replica_calls"), 1),
        _number(_per_request(row, "replica_seconds", scale=1000.0), 0),
    )


def _latency(value: float | None) -> str:
    if value is None:
        return "inf"
    return f"{value:.1f}" if value < 1000.0 else f"{value:.0f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _per_request(row: Row, key: str, *, scale: float = 1.0) -> float | None:
    return None if row[key] is None else scale * row[key] / row["requests"]


def print_warnings(console: Console, measurements: Sequence[Measurement]) -> None:
    """Say what casts doubt on a run: a sender that was late, and errors."""
    for measurement in measurements:
        summary, label = measurement.summary, measurement.label
        if not summary.valid:
            lag_ms, median_ms = summary.sender_lag_p99_s * 1e3, summary.percentiles_s[50.0] * 1e3
            console.print(
                f"INVALID: {label}: the sender was {lag_ms:.1f} ms late at p99, over {MAX_LAG_SHARE:.0%} of"
                f" the median of {median_ms:.1f} ms; these latencies measure the client. Lower the rate.",
                style="bold red",
                markup=False,
                highlight=False,
            )
        for error, count in summary.error_counts[:_SHOWN_ERRORS]:
            console.print(f"{label}: {count} x {error}", style="red", markup=False, highlight=False)
        unseen = len(summary.error_counts) - _SHOWN_ERRORS
        if unseen > 0:
            console.print(f"{label}: and {unseen} other kinds of error", style="red", highlight=False)
