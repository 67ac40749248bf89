"""A short comparison of the real thing: two schemes, real workers, real digits."""

import subprocess
import sys

import orjson
import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

COMPARE = [sys.executable, "-m", "unstraggle", "loadtest", "compare"]
LOAD = ["--rate", "10", "--requests", "60", "--rows-per-request", "8", "--seed", "3", "--deadline-ms", "5000"]
# Far apart, so that no other load on the machine can blur them: one call in ten takes 900 ms. Of the eight that an
# uncoded request waits for, one is slow more often than not; that three in twelve are is rare.
STRAGGLERS = ["--service-time", "bimodal:20ms,slow_ms=900,slow_share=0.1", "--replica-concurrency", "0"]


def test_coding_does_not_wait_for_the_slowest(tmp_path):
    command = [*COMPARE, "--schemes", "none,letcc", *LOAD, *STRAGGLERS, "--out", str(tmp_path), "--json", "-"]
    done = subprocess.run(command, capture_output=True, timeout=280)
    assert done.returncode == 0, done.stderr.decode()
    none, letcc = orjson.loads(done.stdout)["rows"]
    for row in (none, letcc):
        assert (row["requests"], row["errors"], row["replicas"]) == (60, 0, 12)
    assert letcc["p50_ms"] < 900.0 <= none["p50_ms"]
    assert none["accuracy"] == none["base_accuracy"] >= 0.97
    assert letcc["rel_accuracy"] >= 0.85
    assert letcc["replica_calls"] > none["replica_calls"] > 60
    assert none["replica_seconds"] > 60 * 0.9 / 2
    assert (letcc["replicas_used"], none["replicas_used"]) == (pytest.approx(10, abs=0.5), 1.0)
    obtained = {line["obtained"] for line in _records(tmp_path) if line["scheme"] == "letcc"}
    assert obtained == {"decoded"}


def _records(folder):
    return [orjson.loads(line) for line in (folder / "records.jsonl").read_bytes().splitlines()]
