"""The commands against a stand-in server, which calls every digit a zero."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson
import psutil
import pytest
from PIL import Image
from typer.testing import CliRunner

from loadtest import stack
from loadtest.cli import loadtest_app
from loadtest.workload import draw_rows
from models.datasets import load_slice

pytestmark = pytest.mark.live

STAND_IN = str(Path(__file__).parent / "loadtest_stand_in_server.py")
QUICK = ["--rate", "200", "--requests", "40", "--rows-per-request", "4", "--warmup", "3"]


@pytest.fixture
def stand_in(monkeypatch):
    """Make `compare` start the stand-in, behaving as told, instead of the real server."""

    def behave(behaviour):
        monkeypatch.setattr(stack, "SERVE_COMMAND", (sys.executable, STAND_IN, behaviour))

    behave("good")
    return behave


def invoke(*arguments):
    return CliRunner().invoke(loadtest_app, list(arguments))


def share_of_zeros(seed):
    digits = load_slice("mnist")
    rows = draw_rows(digits.labels.size, requests=40, rows_per_request=4, seed=seed)
    return np.mean(digits.labels[rows] == 0)


def test_compare_writes_rows_records_and_a_picture(stand_in, tmp_path):
    result = invoke("compare", "--schemes", "none,letcc:n=12", *QUICK, "--seed", "5", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    written = orjson.loads((tmp_path / "result.json").read_bytes())
    assert (written["name"], written["seed"]) == ("loadtest-compare", 5)
    assert [row["scheme"] for row in written["rows"]] == ["none", "letcc:n=12"]
    for row in written["rows"]:
        assert (row["requests"], row["errors"], row["replicas"]) == (40, 0, 12)
        # The stand-in counts two calls and half a second per request; those of the warm-up are not counted.
        assert (row["replica_calls"], row["replica_seconds"]) == (80, 20.0)
        assert row["accuracy"] == row["base_accuracy"] == pytest.approx(share_of_zeros(5))
        assert row["rel_accuracy"] == 1.0
    records = [orjson.loads(line) for line in (tmp_path / "records.jsonl").read_bytes().splitlines()]
    assert len(records) == 80
    for one, other in zip(records[:40], records[40:], strict=True):
        assert one["intended_s"] == other["intended_s"]
    with Image.open(tmp_path / "spectrum.png") as image:
        assert image.size[0] == 1800
    assert "letcc:n=12" in result.stdout


def test_settings_say_how_to_run_it_again(stand_in, tmp_path):
    invoke("compare", "--schemes", "none", *QUICK, "--window-ms", "50", "--out", str(tmp_path))
    settings = orjson.loads((tmp_path / "result.json").read_bytes())["settings"]
    assert (settings["rate"], settings["window_ms"], settings["service_time"]) == (
        200.0,
        50.0,
        "inference-trace:50ms",
    )
    assert "scheme.kind=none" in settings["overrides"]["none"]
    assert settings["environment"]["cores"] >= 1
    assert "numpy" in settings["environment"]["versions"]


def test_json_on_standard_output_is_alone_there(stand_in, tmp_path):
    result = invoke("compare", "--schemes", "none", *QUICK, "--json", "-", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert orjson.loads(result.stdout)["rows"][0]["scheme"] == "none"
    assert "p99.9" in result.stderr
    assert not (tmp_path / "result.json").exists()


def test_without_an_uncoded_run_the_uncoded_model_is_asked_separately(stand_in, tmp_path):
    result = invoke("compare", "--schemes", "letcc", *QUICK, "--seed", "6", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    (row,) = orjson.loads((tmp_path / "result.json").read_bytes())["rows"]
    assert row["base_accuracy"] == pytest.approx(share_of_zeros(6))
    assert (tmp_path / "base.log").exists()


def test_a_server_that_does_not_start_is_one_readable_error(stand_in, tmp_path):
    stand_in("dies")
    result = invoke("compare", "--schemes", "none", *QUICK, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith("unstraggle loadtest: the server none exited with status 1")
    assert result.stderr.endswith("stand-in: there is no model here\n")


@contextmanager
def serving(behaviour, tmp_path):
    """A stand-in that runs already; yields its address."""
    with (tmp_path / "already.out").open("wb") as output:
        process = subprocess.Popen([sys.executable, STAND_IN, behaviour], stdout=output)
    try:
        yield announced(tmp_path / "already.out").split()[-1]
    finally:
        process.kill()
        process.wait()


def announced(path):
    """The first line of a file, once it is there."""
    for _ in range(500):
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text()
        time.sleep(0.02)
    raise TimeoutError(path)


def test_run_measures_a_server_that_runs_already_and_counts_its_errors(tmp_path):
    with serving("flaky", tmp_path) as url:
        result = invoke("run", "--url", url, *QUICK, "--warmup", "0", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    (row,) = orjson.loads((tmp_path / "result.json").read_bytes())["rows"]
    assert row["errors"] == 13
    assert row["p50_ms"] is not None
    assert row["p99_ms"] is None
    assert (row["base_accuracy"], row["rel_accuracy"], row["replicas"]) == (None, None, None)
    assert "13 x status 503: too few replicas" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--rate", "0"], "--rate must be over 0 requests per second, got 0.0"),
        (["compare", "--rows-per-request", "0"], "--rows-per-request must be at least 1, got 0"),
        (
            ["compare", "--schemes", "none,none"],
            "--schemes must be a list without repetitions, got 'none,none'",
        ),
        (["run", "--url", "host:80"], "--url must be an address such as http://127.0.0.1:8000, got host:80"),
        (
            ["run", "--url", "http://h", "--timeout-ms", "0"],
            "--timeout-ms must be over 0 milliseconds, got 0.0",
        ),
    ],
)
def test_a_bad_option_is_one_line(tmp_path, arguments, message):
    result = invoke(*arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert result.stderr == f"unstraggle loadtest: {message}\n"


def test_a_folder_that_cannot_be_made_is_found_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    result = invoke("compare", "--out", str(tmp_path / "file" / "out"))
    assert result.exit_code == 2
    assert "--out must be in a folder that exists or can be made" in result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_the_server_too(tmp_path, number, status):
    code = (
        # A shell that runs the tests in the background makes its children deaf to Ctrl-C.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import sys; from loadtest import cli, stack;"
        f"stack.SERVE_COMMAND = (sys.executable, {STAND_IN!r}, 'good'); cli.loadtest_app()"
    )
    arguments = ["compare", "--schemes", "none", "--requests", "1000", "--out", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE) as client:
        announced(tmp_path / "none.out")
        (server,) = psutil.Process(client.pid).children()
        client.send_signal(number)
        client.communicate(timeout=20)
        assert client.returncode == status
    assert not server.is_running()
