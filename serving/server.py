"""Runs the frontend: uvicorn and the engine side by side, from the first byte to a clean end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import uvicorn

from serving.app import create_app
from serving.compose import Engine
from serving.config.schema import Settings
from serving.errors import ConfigError
from serving.listen import BACKLOG, uvicorn_config

_log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """Leaves the signals to us: readiness must fall before the listener does."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends at once.

    Args:
        settings: the configuration.
        announce: called with the server's address once it is ready.

    Raises:
        ConfigError: the configuration cannot be served.
    """
    engine = Engine(settings)
    listener = _bind(settings)
    server = _Server(
        uvicorn_config(
            create_app(settings, engine),
            grace_s=settings.server.shutdown_grace_s,
            receive_timeout_s=settings.server.receive_timeout_s,
        )
    )
    stop = asyncio.Event()
    _on_signals(stop)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(engine.run(lambda: _on_ready(announce, _url(listener))))
            listening = tasks.create_task(server.serve(sockets=[listener]))
            await stop.wait()
            await _drain(engine, settings)
            server.should_exit = True
            await listening
            running.cancel()
    except ExceptionGroup as failures:
        found = failures.subgroup(ConfigError)
        if found is None:
            raise
        raise _first(found) from None
    finally:
        listener.close()


def _on_ready(announce: Callable[[str], None], url: str) -> None:
    # What is there now stays: keeping it out of collections makes each of them, and so the tail, shorter.
    gc.collect()
    gc.freeze()
    announce(url)


def _bind(settings: Settings) -> socket.socket:
    """A listening socket, so that the port is known and taken before the replicas start.

    Raises:
        ConfigError: the address cannot be had.
    """
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"server.host and server.port: cannot listen on {host}:{port}: {error.strerror}"
        ) from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _drain(engine: Engine, settings: Settings) -> None:
    """Say no to readiness, go on serving for the drain delay, refuse the new, finish what is in hand."""
    _log.info("draining", pending_rows=engine.service.pending)
    engine.service.draining = True
    await asyncio.sleep(settings.server.drain_delay_s)
    engine.service.close()


def _on_signals(stop: asyncio.Event) -> None:
    def on_signal() -> None:
        if stop.is_set():
            # The workers notice that we are gone and end by themselves.
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _first(group: BaseExceptionGroup[ConfigError]) -> ConfigError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, ConfigError):
        raise TypeError(f"expected a ConfigError, got {error!r}")
    return error
