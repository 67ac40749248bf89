"""Whole servers, started as a user starts them: the command line, real workers, real digits."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

REPOSITORY = Path(__file__).parents[2]
START_TIMEOUT_S = 60


class Server:
    """A running `unstraggle serve`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=10, trust_env=False)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def replicas(self) -> list[dict]:
        return self.http.get("/replicas").json()["replicas"]

    def pid_of(self, number: int) -> int:
        return self.replicas()[number]["pid"]

    def signal_replica(self, number: int, what: signal.Signals) -> int:
        pid = self.pid_of(number)
        os.kill(pid, what)
        return pid

    def wait_for_states(self, wanted: Sequence[str], timeout_s: float) -> float:
        """Seconds until the replicas' states are these."""
        started = time.perf_counter()
        while (states := [row["state"] for row in self.replicas()]) != list(wanted):
            waited = time.perf_counter() - started
            assert waited < timeout_s, f"after {waited:.1f} s the states are {states}"
            time.sleep(0.05)
        return time.perf_counter() - started


@contextmanager
def serving(*overrides: str, **environment: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "unstraggle", "serve", "--set", "server.port=0"]
    for override in overrides:
        command += ["--set", override]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
        assert readable, f"not ready within {START_TIMEOUT_S} s"
        line = process.stdout.readline()
        assert line.startswith("unstraggle: serving"), line
        server = Server(process, line.split()[-1])
        with server.http:
            yield server
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def body_of(rows) -> bytes:
    """A V2 JSON body."""
    tensor = {
        "name": "input",
        "shape": list(rows.shape),
        "datatype": "FP32",
        "data": rows.ravel().tolist(),
    }
    return json.dumps({"inputs": [tensor]}).encode()
