"""The supervisor with real processes: they come back when they die, and none is left behind on any path."""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest

from serving import supervisor as supervisor_module
from serving.config.faults import ConstantDelay, FaultSettings
from serving.config.schema import LocalReplicas, ModelSettings
from serving.errors import ConfigError
from serving.supervisor import Supervisor
from serving.transport.http_v2 import HttpV2Transport
from serving.types import InferRequest, NamedTensor
from serving.worker import launcher

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

HERE = Path(__file__).parent
STUBS = "supervisor_stubs"
PATIENCE_S = 10.0


class Recorder:
    """Remembers what it is told, deaths with the loop's time."""

    def __init__(self):
        self.starts = []
        self.deaths = []
        self.death_times = []

    def started(self, number, base_url):
        self.starts.append((number, base_url))

    def died(self, number, exitcode, reason):
        self.deaths.append((number, exitcode, reason))
        self.death_times.append(asyncio.get_running_loop().time())


def supervise(source, observer=None, count=2, program=STUBS, **settings):
    replicas = LocalReplicas(count=count, restart_backoff_s=0.05, **settings)
    model = ModelSettings(name="m", source=source)
    return Supervisor(replicas, model, observer or Recorder(), program=program)


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110, processes do not tell
            await asyncio.sleep(0.01)


def is_reaped(pid):
    return not psutil.pid_exists(pid)


def is_over(pid):
    """Gone, or a zombie that only its new parent can reap."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_open(url):
    with socket.socket() as probe:
        return probe.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) == 0


@pytest.fixture(autouse=True)
def no_process_left():
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_every_worker_is_reported_and_stopped():
    watch = Recorder()
    async with supervise("serves", watch, count=3) as supervisor:
        pids = {*supervisor.pids.values(), supervisor.fork_server_pid}
        assert sorted(number for number, _ in watch.starts) == [0, 1, 2]
        assert len({url for _, url in watch.starts}) == 3
        assert all(is_open(url) for _, url in watch.starts)
    assert all(map(is_reaped, pids))
    assert not any(is_open(url) for _, url in watch.starts)
    assert watch.deaths == []
    assert supervisor.pids == {}
    assert supervisor.fork_server_pid is None
    await supervisor.aclose()


@pytest.mark.parametrize(
    ("number", "exitcode", "word"), [(signal.SIGKILL, -9, "Killed"), (signal.SIGTERM, 0, "code 0")]
)
async def test_a_worker_that_dies_comes_back_elsewhere(number, exitcode, word):
    watch = Recorder()
    async with supervise("serves", watch) as supervisor:
        first_url = dict(watch.starts)[1]
        victim, other = supervisor.pids[1], supervisor.pids[0]
        os.kill(victim, number)
        await until(lambda: len(watch.starts) == 3)
        assert [(who, code) for who, code, _ in watch.deaths] == [(1, exitcode)]
        assert word in watch.deaths[0][2]
        assert not is_open(first_url)
        assert is_open(watch.starts[-1][1])
        assert is_reaped(victim)
        assert supervisor.pids[0] == other
        assert supervisor.pids[1] != victim


async def test_quick_deaths_are_met_with_growing_patience():
    watch = Recorder()
    async with supervise("dies_young", watch, count=1, restart_backoff_max_s=0.2):
        await until(lambda: len(watch.deaths) == 7)
    waits = [later - earlier for earlier, later in itertools.pairwise(watch.death_times)]
    assert all(wait >= least for wait, least in zip(waits, [0.05, 0.1, 0.2, 0.2, 0.2, 0.2], strict=True))
    # Without a limit this would be 1.6 s.
    assert waits[-1] < 1.2
    assert {exitcode for _, exitcode, _ in watch.deaths} == {7}


async def test_all_come_back_after_the_fork_server_is_killed():
    watch = Recorder()
    async with supervise("serves", watch) as supervisor:
        pids, fork_server = set(supervisor.pids.values()), supervisor.fork_server_pid
        os.kill(fork_server, signal.SIGKILL)
        await until(lambda: len(watch.starts) == 4)
        assert sorted(number for number, _, _ in watch.deaths) == [0, 1]
        assert all(map(is_over, pids))
        assert is_reaped(fork_server)


@pytest.mark.parametrize("who", ["worker", "fork server"])
async def test_stopped_processes_are_stopped_for_good(who, monkeypatch):
    monkeypatch.setattr(supervisor_module, "STOP_GRACE_S", 0.3)
    monkeypatch.setattr(launcher, "EXIT_TIMEOUT_S", 0.5)
    async with supervise("serves") as supervisor:
        pids = {*supervisor.pids.values(), supervisor.fork_server_pid}
        os.kill(supervisor.pids[0] if who == "worker" else supervisor.fork_server_pid, signal.SIGSTOP)
    await until(lambda: all(map(is_over, pids)))


async def test_a_worker_deaf_to_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(supervisor_module, "STOP_GRACE_S", 0.2)
    async with supervise("is_deaf") as supervisor:
        pids = set(supervisor.pids.values())
    assert all(map(is_reaped, pids))


@pytest.mark.parametrize(
    ("source", "patience_s", "message"),
    [
        ("cannot_load", 30, "cannot_load has no weights"),
        ("crashes", 30, "Segmentation fault"),
        ("raises", 30, "code 1"),
        ("never_loads", 1, "start_timeout_s = 1"),
    ],
)
async def test_a_failed_first_start_is_one_readable_error(source, patience_s, message):
    watch = Recorder()
    with pytest.raises(ConfigError, match=message) as caught:
        await supervise(source, watch, start_timeout_s=patience_s).start()
    assert "\n" not in str(caught.value)
    assert "replica-" in str(caught.value)
    assert watch.starts == []


async def test_a_worker_that_cannot_be_imported_is_a_readable_error():
    with pytest.raises(ConfigError, match="No module named 'no_such_module'"):
        await supervise("serves", program="no_such_module").start()


async def test_a_model_that_does_not_exist_is_a_readable_error():
    with pytest.raises(ConfigError, match="builtin:no-such-model"):
        await supervise("builtin:no-such-model", program=launcher.WORKER).start()


async def test_sigterm_lets_a_worker_finish_its_call():
    watch = Recorder()
    slow = FaultSettings(enabled=True, delay=ConstantDelay(ms=500))
    row = NamedTensor("input", "FP32", np.zeros((1, 1, 28, 28), np.float32))
    supervisor = supervise("builtin:lenet5-mnist", watch, count=1, program=launcher.WORKER, faults=slow)
    async with supervisor, aclosing(HttpV2Transport(watch.starts[0][1], "m")) as transport:
        await transport.metadata()
        call = asyncio.create_task(transport.infer(InferRequest((row,))))
        await asyncio.sleep(0.2)
        os.kill(supervisor.pids[0], signal.SIGTERM)
        assert (await call).outputs[0].data.shape == (1, 10)
        await until(lambda: watch.deaths)
    assert watch.deaths == [(0, 0, "exited with code 0")]


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3, 1.0])
async def test_cancelling_the_start_leaves_nothing(after_s):
    supervisor = supervise("never_loads")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(after_s):
            await supervisor.start()
    assert supervisor.fork_server_pid is None


async def test_closing_before_the_start_is_over_ends_it():
    supervisor = supervise("never_loads")
    starting = asyncio.create_task(supervisor.start())
    await asyncio.sleep(0.3)
    await supervisor.aclose()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_closing_what_was_never_started_is_fine():
    await supervise("serves").aclose()


def test_no_worker_outlives_a_killed_frontend():
    path = os.pathsep.join([str(HERE), *sys.path])
    frontend = subprocess.Popen(
        [sys.executable, str(HERE / "supervisor_frontend.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    )
    pids = json.loads(frontend.stdout.readline())
    # Not even one that cannot notice.
    os.kill(pids[-1], signal.SIGSTOP)
    frontend.kill()
    frontend.communicate()
    deadline = time.perf_counter() + PATIENCE_S
    while not all(map(is_over, pids)):
        assert time.perf_counter() < deadline, "a process outlived its frontend"
        time.sleep(0.01)


async def test_only_the_workers_get_the_thread_settings():
    before = dict(os.environ)
    async with supervise("serves", threads=3) as supervisor:
        environment = psutil.Process(supervisor.fork_server_pid).environ()
    assert environment["OMP_NUM_THREADS"] == "3"
    assert dict(os.environ) == before


def test_the_frontend_stays_free_of_torch():
    check = "import sys, serving.supervisor; sys.exit(any(m in sys.modules for m in ('torch', 'models')))"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
