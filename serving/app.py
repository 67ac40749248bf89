"""The ASGI application: routes and error shapes around a service. No decisions, no state of its own."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.compose import Engine
from serving.config.schema import Settings
from serving.endpoints import v1_routes, v2_routes
from serving.http_edge import ErrorLayer, error_handlers, handle_validation_error

EXTENSIONS = ("binary_tensor_data", "parameters")
"""V2 extensions that this server really speaks."""


def create_app(settings: Settings, engine: Engine) -> ASGIApp:
    """The frontend's application.

    The inference protocols are plain routes that read the raw body, in front of all else: FastAPI's layers would cost
    each request a quarter of a millisecond. FastAPI serves the rest, and documents it at /docs.
    """
    operations = _operations(engine)
    limit = settings.server.max_body_bytes
    router = Router(
        [
            *v2_routes(
                engine.service,
                max_body_bytes=limit,
                server_name="unstraggle",
                server_version=version("unstraggle"),
                extensions=EXTENSIONS,
            ),
            *v1_routes(engine.service, max_body_bytes=limit),
        ],
        redirect_slashes=False,
        default=operations,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Routes raise their 405 only where they know that they are inside an application.
        scope["app"] = operations
        await router(scope, receive, send)

    return ErrorLayer(app)


def _operations(engine: Engine) -> FastAPI:
    """The routes for people and tools that watch the server."""
    app = FastAPI(
        title="Unstraggle",
        version=version("unstraggle"),
        description="A prediction server whose answers never wait for the slowest replica.",
        exception_handlers={**error_handlers(), RequestValidationError: handle_validation_error},
    )
    app.add_middleware(ErrorLayer)

    @app.get("/metrics", response_class=Response, summary="Prometheus metrics")
    def metrics() -> Response:
        return Response(engine.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/replicas", summary="Each replica: name, state, calls in flight and, if local, process number")
    def replicas() -> JSONResponse:
        return JSONResponse({"replicas": engine.describe_replicas()})

    return app
