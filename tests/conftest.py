import asyncio


def pytest_configure() -> None:
    # looptime asks for the current event loop around every test. Without this, asyncio would make one for the first
    # synchronous test, nobody would close it, and its ResourceWarning would fail whichever test collects garbage.
    asyncio.set_event_loop(None)
