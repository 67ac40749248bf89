import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import psutil
import pytest

from loadtest.errors import StackError, TargetError
from loadtest.stack import running_stack

pytestmark = pytest.mark.live

STAND_IN = Path(__file__).parent / "loadtest_stand_in_server.py"


def command(behaviour):
    return [sys.executable, str(STAND_IN), behaviour, "--set", "scheme.kind=none"]


async def test_a_server_is_ready_inside_the_block_and_gone_after_it(tmp_path):
    async with running_stack(command("good"), name="good", log_directory=tmp_path) as stack:
        assert stack.model == "lenet5"
        pid = stack.process.pid
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{stack.url}/v2/health/ready") as response,
        ):
            assert response.status == 200
    assert not psutil.pid_exists(pid)
    assert stack.process.exit_status == -signal.SIGTERM


async def test_a_server_that_dies_at_start_is_quoted(tmp_path):
    with pytest.raises(StackError) as caught:
        async with running_stack(command("dies"), name="letcc", log_directory=tmp_path):
            pytest.fail("it was not ready")
    message = str(caught.value)
    for part in ("the server letcc", "status 1", "before it was ready", str(tmp_path / "letcc.log")):
        assert part in message
    assert message.endswith("stand-in: there is no model here")


@pytest.mark.parametrize("behaviour", ["silent", "unready"])
async def test_a_server_that_is_not_ready_in_time_is_stopped(tmp_path, behaviour):
    with pytest.raises(StackError, match=r"the server slow was not ready within 0\.5 s"):
        async with running_stack(
            command(behaviour), name="slow", log_directory=tmp_path, start_timeout_s=0.5
        ):
            pytest.fail("it was not ready")


async def test_a_command_that_does_not_exist_is_an_error_that_names_it(tmp_path):
    with pytest.raises(StackError, match="no-such-command"):
        async with running_stack(["no-such-command"], name="x", log_directory=tmp_path):
            pytest.fail("it was not started")


async def test_a_server_that_ignores_sigterm_is_killed(tmp_path):
    async with running_stack(
        command("stubborn"), name="stubborn", log_directory=tmp_path, stop_grace_s=0.2
    ) as stack:
        pass
    assert stack.process.exit_status == -signal.SIGKILL


async def test_what_is_left_of_the_servers_process_group_is_killed(tmp_path):
    # A server that leaves a worker behind, as one does that is killed itself.
    script = f"""
import subprocess, sys, runpy
worker = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"])
print(worker.pid, flush=True)
sys.argv = ["stand_in", "good"]
runpy.run_path({str(STAND_IN)!r}, run_name="__main__")
"""
    async with running_stack([sys.executable, "-c", script], name="family", log_directory=tmp_path):
        worker = int((tmp_path / "family.out").read_text().splitlines()[0])
        assert psutil.pid_exists(worker)
    assert await _ends(worker)


async def _ends(pid):
    """Whether a process ends within 2 s; one that is dead and not reaped yet has ended."""
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize("behaviour", ["silent", "unready", "good"])
async def test_cancelling_leaves_no_process_behind(tmp_path, behaviour):
    ready = asyncio.Event()

    async def use():
        async with running_stack(command(behaviour), name="cancelled", log_directory=tmp_path):
            ready.set()
            await asyncio.sleep(60)

    before = _children()
    using = asyncio.ensure_future(use())
    with suppress(TimeoutError):
        await asyncio.wait_for(ready.wait(), 10.0 if behaviour == "good" else 0.3)
    assert len(_children()) == len(before) + 1
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert _children() == before


def _children():
    return {child.pid for child in psutil.Process().children()}


async def test_a_server_that_died_during_its_run_ends_the_run(tmp_path):
    given_up = asyncio.Event()

    async def work():
        try:
            os.kill(stack.process.pid, signal.SIGKILL)
            await asyncio.sleep(60)
        finally:
            given_up.set()

    async with running_stack(command("good"), name="mortal", log_directory=tmp_path) as stack:
        assert await stack.process.while_alive(asyncio.sleep(0, result="done")) == "done"
        with pytest.raises(StackError, match="the server mortal exited with status -9 during its run"):
            await stack.process.while_alive(work())
        assert given_up.is_set()


async def test_an_error_in_the_work_comes_out_as_it_is(tmp_path):
    async def fail():
        raise TargetError("no such model")

    async with running_stack(command("good"), name="good", log_directory=tmp_path) as stack:
        with pytest.raises(TargetError, match="no such model"):
            await stack.process.while_alive(fail())
