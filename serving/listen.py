"""How the frontend and the workers listen: the same uvicorn, set up the same way."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from serving.http_protocol import HttpProtocol

KEEP_ALIVE_S = 75
"""Longer than load balancers and our own transport keep idle connections: they close first, so that no request
meets a connection that is being closed."""
BACKLOG = 2048
RECEIVE_TIMEOUT_S = 60.0
"""For requests from our own frontend."""


def uvicorn_config(
    app: ASGIApp, *, grace_s: float, receive_timeout_s: float = RECEIVE_TIMEOUT_S
) -> uvicorn.Config:
    """Settings for a server whose sockets, signals and logs its caller provides.

    Args:
        app: the application.
        grace_s: seconds that requests in hand get to finish when the server stops.
        receive_timeout_s: longest time that a request may take to come.
    """
    return uvicorn.Config(
        app,
        loop="none",
        # uvicorn calls this with its own arguments, and asks nothing else of it.
        http=cast(Any, partial(HttpProtocol, receive_timeout_s=receive_timeout_s)),
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
