"""Replicas that are killed under load, shutdown under load, and configurations that cannot be served."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from live_server import REPOSITORY, Server, body_of, serving

pytestmark = pytest.mark.live


async def load(
    server: Server, rows: np.ndarray, *, rate: float, seconds: float, meanwhile
) -> list[int | str]:
    """Send requests at a fixed rate; for each 200, or what went wrong."""
    body = body_of(rows)

    async def one(session: aiohttp.ClientSession) -> int | str:
        try:
            async with session.post(f"{server.url}/v2/models/lenet5/infer", data=body) as response:
                text = await response.text()
                return 200 if response.status == 200 else f"{response.status}: {text}"
        except aiohttp.ClientError as error:
            return type(error).__name__

    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        started = loop.time()
        extra = tasks.create_task(asyncio.to_thread(meanwhile))
        requests = []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - loop.time()))
            requests.append(tasks.create_task(one(session)))
        await extra
    return [request.result() for request in requests]


async def test_killing_any_two_replicas_under_load_fails_no_request_and_both_come_back(digits) -> None:
    with serving("log.level=warning") as server:

        def kill_two() -> None:
            time.sleep(1)
            killed = [server.signal_replica(number, signal.SIGKILL) for number in (1, 7)]
            give_up = time.perf_counter() + 10
            while True:
                replicas = server.replicas()
                fresh = not {row["pid"] for row in replicas} & {None, *killed}
                if fresh and all(row["state"] == "healthy" for row in replicas):
                    return
                assert time.perf_counter() < give_up, replicas
                time.sleep(0.05)

        statuses = await load(server, digits.images[:8], rate=20, seconds=8, meanwhile=kill_two)
        assert [status for status in statuses if status != 200] == []


async def test_sigterm_answers_what_is_in_hand_and_exits_with_zero(digits) -> None:
    slow = "replicas.faults={enabled: true, delay: {kind: constant, ms: 400}}"
    with serving(slow, "replicas.concurrency=0", "log.level=error") as server:

        def stop() -> None:
            time.sleep(0.6)
            server.process.send_signal(signal.SIGTERM)

        statuses = await load(server, digits.images[:8], rate=20, seconds=0.5, meanwhile=stop)
        assert [status for status in statuses if status != 200] == []
        assert server.process.wait(timeout=15) == 0


def test_a_killed_frontend_leaves_no_worker_behind() -> None:
    with serving("replicas.count=3", "scheme={kind: replication}", "log.level=error") as server:
        pids = [row["pid"] for row in server.replicas()]
        os.kill(pids[0], signal.SIGSTOP)
        server.process.kill()
        server.process.wait()
        deadline = time.perf_counter() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            assert time.perf_counter() < deadline, "workers outlive their frontend"
            time.sleep(0.05)


def run_serve(*overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unstraggle", "serve", "--set", "server.port=0"]
    for override in overrides:
        command += ["--set", override]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("override", "fragments"),
    [
        ("scheme.wait_fro=3", ["unknown key scheme.wait_fro", "did you mean scheme.wait_for?"]),
        ("scheme.n=20", ["scheme.n must be at most replicas.count (12), got 20"]),
        ("server.port=-1", ["server.port", "got -1"]),
        ("model.source=builtin:nothing", ["builtin:nothing"]),
        ("model.source=torchscript:/nowhere.pt", ["/nowhere.pt"]),
    ],
)
def test_a_bad_configuration_fails_at_start_with_one_readable_message(
    override: str, fragments: list[str]
) -> None:
    done = run_serve(override, "log.level=error")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("unstraggle: ")
    assert len(done.stderr.strip().splitlines()) == 1
    for fragment in fragments:
        assert fragment in done.stderr


def test_a_taken_port_is_one_readable_message(server: Server) -> None:
    done = run_serve(f"server.port={server.url.rsplit(':', 1)[1]}")
    assert done.returncode == 2
    assert "cannot listen on 127.0.0.1" in done.stderr.splitlines()[-1]


def test_config_show_prints_values_with_their_sources() -> None:
    command = [sys.executable, "-m", "unstraggle", "config", "show", "--set", "scheme.kind=none"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=True)
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in done.stdout.splitlines()}
    assert lines["scheme.kind"] == "none command line --set scheme.kind"
    assert lines["deadline_ms"] == "1000.0 file config.yaml"
    assert lines["server.max_body_bytes"] == "67108864 default"
    assert "scheme.wait_for" not in lines


def test_the_configuration_reference_is_up_to_date() -> None:
    command = [sys.executable, "-m", "unstraggle", "config", "reference"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=True)
    assert (REPOSITORY / "docs" / "config.md").read_text() == done.stdout, "run `make docs`"


def test_the_frontend_never_imports_torch() -> None:
    script = "import sys, serving.cli; print(json.dumps([m for m in ('torch', 'timm', 'models') if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import json; {script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == []
