import asyncio
import socket

from loadtest.loop import precise_loop


def test_a_reply_wakes_the_loop_before_its_next_timer():
    async def receive():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.send(b"reply")
            loop = asyncio.get_running_loop()
            far_timer = loop.call_later(3600.0, loop.stop)
            received = await loop.sock_recv(ours, 16)
            far_timer.cancel()
            return received

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        assert runner.run(receive()) == b"reply"


def test_timers_fire_in_order_and_never_early():
    async def fire():
        loop = asyncio.get_running_loop()
        start = loop.time()
        fired = []
        for delay in (0.003, 0.0005, 0.0015):
            loop.call_later(delay, lambda delay=delay: fired.append((delay, loop.time() - start)))
        await asyncio.sleep(0.004)
        return fired

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        fired = runner.run(fire())
    assert [delay for delay, _ in fired] == [0.0005, 0.0015, 0.003]
    assert all(elapsed >= delay - 1e-6 for delay, elapsed in fired)
