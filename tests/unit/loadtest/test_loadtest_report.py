import io
import math

import numpy as np
import orjson
import pytest
from rich.console import Console

from loadtest.compare import Measurement
from loadtest.config import LoadSettings
from loadtest.metrics import ReplicaCost
from loadtest.records import Outcome, Record
from loadtest.report import Result, latency_row, print_table, print_warnings, write_json
from loadtest.runner import Run
from loadtest.stats import summarise

KEYS = [
    "scheme",
    "requests",
    "rows_per_request",
    "rate",
    "errors",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "accuracy",
    "base_accuracy",
    "rel_accuracy",
    "replicas",
    "replica_calls",
    "replica_seconds",
]
LOAD = LoadSettings(rate=10.0, requests=100, rows_per_request=8)


def measurement(latencies_s, *, lag_s=0.0, cost=None, label="letcc"):
    records = tuple(
        Record(
            index,
            0.1 * index,
            0.1 * index + lag_s,
            0.1 * index + min(latency, 6.0),
            8,
            Outcome(error="no answer within the client's timeout")
            if math.isinf(latency)
            else Outcome(200, correct=7, obtained="decoded", replicas_used=10),
        )
        for index, latency in enumerate(latencies_s)
    )
    return Measurement(label, Run(records, 10.0, 0.05, 3), summarise(records), cost)


def row_of(measured, **known):
    return latency_row(measured, LOAD, **{"base_accuracy": 0.9, "replicas": 12, **known})


def printed(function, *arguments):
    stream = io.StringIO()
    function(Console(file=stream, width=110), *arguments)
    return stream.getvalue()


def test_a_row_begins_with_the_agreed_keys_in_their_order():
    row = row_of(measurement(np.full(100, 0.05), cost=ReplicaCost(1200, 66.0)))
    assert list(row)[: len(KEYS)] == KEYS
    assert (row["p50_ms"], row["max_ms"], row["errors"]) == (50.0, 50.0, 0)
    assert row["accuracy"] == pytest.approx(7 / 8)
    assert row["rel_accuracy"] == pytest.approx(7 / 8 / 0.9)
    assert (row["replicas"], row["replica_calls"], row["replica_seconds"]) == (12, 1200, 66.0)
    assert (row["rows_per_request"], row["rate"], row["valid"]) == (8, 10.0, True)


def test_infinite_percentiles_are_null_in_json_and_inf_in_the_table(tmp_path):
    latencies = np.full(100, 0.05)
    latencies[[10, 20]] = math.inf
    row = row_of(measurement(latencies))
    result = Result("test", 0, {}, (row,))
    write_json(result, tmp_path / "result.json")
    written = orjson.loads((tmp_path / "result.json").read_bytes())["rows"][0]
    assert (written["p95_ms"], written["p99_ms"], written["max_ms"]) == (50.0, None, None)
    assert written["errors"] == 2
    assert "inf" in printed(print_table, result)


def test_what_is_unknown_is_null_and_a_dash(tmp_path):
    row = row_of(measurement(np.full(100, 0.05)), base_accuracy=None, replicas=None)
    unknown = ("base_accuracy", "rel_accuracy", "replicas", "replica_calls", "replica_seconds")
    assert [row[key] for key in unknown] == [None] * len(unknown)
    assert " - " in printed(print_table, Result("test", 0, {}, (row,)))


def test_the_json_is_one_object_with_four_keys(capsysbinary):
    write_json(Result("test", 7, {"rate": 10.0}, (row_of(measurement([0.05])),)), None)
    written = orjson.loads(capsysbinary.readouterr().out)
    assert list(written) == ["name", "seed", "settings", "rows"]
    assert (written["name"], written["seed"], written["settings"]) == ("test", 7, {"rate": 10.0})


def test_the_table_shows_what_each_request_cost():
    row = row_of(measurement(np.full(100, 0.05), cost=ReplicaCost(1200, 66.0)))
    text = printed(print_table, Result("test", 0, {}, (row,)))
    for part in ("letcc", "50.0", "0.8750", "0.9722", "10.0", "12.0", "660"):
        assert part in text


def test_a_late_sender_is_called_out():
    text = printed(print_warnings, [measurement(np.full(100, 0.05), lag_s=0.02)])
    assert "INVALID: letcc" in text
    assert "20.0 ms late" in text


def test_errors_are_counted_by_kind():
    latencies = np.full(100, 0.05)
    latencies[:4] = math.inf
    assert "letcc: 4 x no answer within" in printed(print_warnings, [measurement(latencies)])


def test_a_clean_run_gives_no_warning():
    assert printed(print_warnings, [measurement(np.full(100, 0.05))]) == ""


def test_the_table_fits_a_terminal_of_eighty_characters():
    row = row_of(
        measurement(np.full(100, 1.234), cost=ReplicaCost(1200, 660.0), label="letcc:n=12,wait_for=10")
    )
    stream = io.StringIO()
    print_table(Console(file=stream, width=80), Result("test", 0, {}, (row,)))
    for heading in (
        "scheme",
        "p50",
        "p99.9",
        "errors",
        "acc",
        "rel",
        "used",
        "calls",
        "busy",
        "letcc",
        "6600",
    ):
        assert heading in stream.getvalue()
    assert "…" not in stream.getvalue()
