"""Where a load test's results go, and getting all of them there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from loadtest.compare import Measurement
from loadtest.errors import OptionError, PlotError
from loadtest.plot import require_matplotlib, write_spectrum
from loadtest.records import write_records
from loadtest.report import Result, print_table, print_warnings, write_json
from models.environment import describe_environment

STANDARD_OUTPUT = "-"
_PIPE_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the results go; everything without a path of its own goes to files in `directory`.

    Attributes:
        directory: made where it is missing; also holds the servers' logs.
        json: the result object; "-" for standard output, which then carries nothing else.
        records: one JSON line per request.
        plot: the percentile spectrum.
    """

    directory: Path
    json: str | None = None
    records: Path | None = None
    plot: Path | None = None

    def console(self) -> Console:
        """Where the table goes: standard output, unless that belongs to the JSON."""
        to_stderr = self.json == STANDARD_OUTPUT
        piped = not (sys.stderr if to_stderr else sys.stdout).isatty()
        return Console(stderr=to_stderr, width=_PIPE_WIDTH if piped else None)

    def check(self) -> None:
        """Find out before a long run whether everything that was asked for can be written.

        Raises:
            OptionError: a folder cannot be made.
            PlotError: a plot was asked for by path, and matplotlib is not installed.
        """
        _make_folder("--out", self.directory)
        for option, path in (("--json", self._json_path), ("--records", self.records), ("--plot", self.plot)):
            if path is not None:
                _make_folder(option, path.parent)
        if self.plot is not None:
            require_matplotlib()

    @property
    def _json_path(self) -> Path | None:
        """The file for the result; None where it goes to standard output."""
        if self.json == STANDARD_OUTPUT:
            return None
        return self.directory / "result.json" if self.json is None else Path(self.json)

    def publish(self, result: Result, measurements: Sequence[Measurement], *, set_up: str) -> None:
        """Write the files, print the table, and warn about whatever casts doubt on it.

        Args:
            result: what the JSON holds.
            measurements: the runs behind its rows.
            set_up: what was measured and how, for the plot.
        """
        write_json(result, self._json_path)
        with (self.records or self.directory / "records.jsonl").open("wb") as stream:
            for measurement in measurements:
                write_records(stream, measurement.label, measurement.run.records)
        console, errors = self.console(), Console(stderr=True)
        print_table(console, result)
        print_warnings(errors, measurements)
        try:
            self._plot(measurements, set_up)
        except PlotError as error:
            errors.print(f"no plot: {error}", markup=False)
        errors.print(f"written to {self.directory}", markup=False, highlight=False)

    def _plot(self, measurements: Sequence[Measurement], set_up: str) -> None:
        latencies = {
            measurement.label: np.array([record.latency_s for record in measurement.run.records])
            for measurement in measurements
        }
        count = measurements[0].summary.requests
        title = f"Latency by percentile, {count:,} requests"
        write_spectrum(self.plot or self.directory / "spectrum.png", latencies, title=title, subtitle=set_up)


def _make_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            option, "in a folder that exists or can be made", f"{folder} ({error.strerror})"
        ) from error


def describe_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with all else that is needed to run the same again: the command and the environment."""
    command = f"unstraggle {shlex.join(sys.argv[1:])}"
    return {"command": command, **settings, "environment": describe_environment()}
