"""How the frontend and the workers listen: the same uvicorn, set up the same way."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

KEEP_ALIVE_S = 75
"""Longer than load balancers and our own transport keep idle connections: they close first, so that no request
meets a connection that is being closed."""
BACKLOG = 2048


def uvicorn_config(app: ASGIApp, *, grace_s: float) -> uvicorn.Config:
    """Settings for a server whose sockets, signals and logs its caller provides.

    Args:
        app: the application.
        grace_s: seconds that requests in hand get to finish when the server stops.
    """
    return uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
