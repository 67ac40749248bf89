"""HTTP routes of the V2 and V1 protocols over an `InferenceService`, whichever that is.

They read raw bodies themselves: public V2 clients send no Content-Type, and a body may be mostly tensors.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving.errors import NotFound
from serving.http_edge import json_response, read_body, while_connected
from serving.protocol import (
    HEADER_LENGTH,
    check_against,
    decode_infer_request,
    decode_predict_request,
    encode_infer_response,
    encode_model_metadata,
    encode_predict_response,
    parse_header_length,
    provenance_headers,
)
from serving.types import InferenceService, ModelMetadata

_JSON = "application/json"


def v2_routes(
    service: InferenceService,
    *,
    max_body_bytes: int,
    server_name: str,
    server_version: str,
    extensions: tuple[str, ...],
) -> list[Route]:
    """The routes of the V2 protocol, and KServe's list of models.

    Args:
        service: what answers.
        max_body_bytes: the largest body accepted, also after decompression.
        server_name: as `GET /v2` reports it.
        server_version: as `GET /v2` reports it.
        extensions: names of the protocol extensions that `GET /v2` advertises.
    """
    server: dict[str, object] = {"name": server_name, "version": server_version, "extensions": extensions}
    v2 = _V2(service, max_body_bytes, server)
    routes = [
        Route("/v2", v2.server_metadata),
        Route("/v2/", v2.server_metadata),
        Route("/v2/health/live", v2.live),
        Route("/v2/health/ready", v2.ready),
        Route("/v2/models", v2.models),
    ]
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [
            Route(f"{model}/infer", v2.infer, methods=["POST"]),
            Route(model, v2.model_metadata),
            Route(f"{model}/ready", v2.model_ready),
        ]
    return routes


def v1_routes(service: InferenceService, *, max_body_bytes: int) -> list[Route]:
    """The routes of the V1 predict protocol of TensorFlow Serving and KServe.

    Args:
        service: what answers.
        max_body_bytes: the largest body accepted, also after decompression.
    """
    v1 = _V1(service, max_body_bytes)
    return [
        Route("/v1/models", v1.models),
        Route("/v1/models/{model}:predict", v1.predict, methods=["POST"]),
        Route("/v1/models/{model}/versions/{version}:predict", v1.predict, methods=["POST"]),
        Route("/v1/models/{model}", v1.model_status),
        Route("/v1/models/{model}/versions/{version}", v1.model_status),
    ]


def _addressed(service: InferenceService, request: Request) -> ModelMetadata:
    """The metadata of the model that the path names.

    Raises:
        NotFound: no such model or version; the message says what is served.
        NotReady: the served model is not known yet.
    """
    metadata = service.metadata()
    name = request.path_params["model"]
    version = request.path_params.get("version")
    if name != metadata.name:
        raise NotFound(f'unknown model "{name[:100]}"; this server serves "{metadata.name}"')
    if version is not None and version not in metadata.versions:
        known = ", ".join(metadata.versions) or "none"
        raise NotFound(f'model "{name}" has no version "{version[:100]}"; versions served: {known}')
    return metadata


class _V2:
    def __init__(self, service: InferenceService, max_body_bytes: int, server: dict[str, object]) -> None:
        self._service = service
        self._max_body_bytes = max_body_bytes
        self._server = server

    async def server_metadata(self, _: Request) -> Response:
        return json_response(self._server)

    async def live(self, _: Request) -> Response:
        return json_response({"live": True})

    async def ready(self, _: Request) -> Response:
        if self._service.ready():
            return json_response({"ready": True})
        return json_response({"ready": False, "error": "the server is not ready"}, 503)

    async def models(self, _: Request) -> Response:
        return json_response({"models": [self._service.metadata().name]})

    async def model_metadata(self, request: Request) -> Response:
        return Response(encode_model_metadata(_addressed(self._service, request)), media_type=_JSON)

    async def model_ready(self, request: Request) -> Response:
        name = _addressed(self._service, request).name
        if self._service.ready():
            return json_response({"name": name, "ready": True})
        return json_response({"name": name, "ready": False, "error": f'model "{name}" is not ready'}, 503)

    async def infer(self, request: Request) -> Response:
        metadata = _addressed(self._service, request)
        header_length = parse_header_length(request.headers.get(HEADER_LENGTH))
        body = await read_body(request, self._max_body_bytes)
        infer_request = decode_infer_request(body, header_length, metadata)
        check_against(metadata, infer_request)
        response = await while_connected(request.receive, self._service.infer(infer_request))
        encoded = encode_infer_response(response, infer_request)
        return Response(encoded.body, headers=encoded.headers)


class _V1:
    def __init__(self, service: InferenceService, max_body_bytes: int) -> None:
        self._service = service
        self._max_body_bytes = max_body_bytes

    async def models(self, _: Request) -> Response:
        return json_response({"models": [self._service.metadata().name]})

    async def model_status(self, request: Request) -> Response:
        """One body for two conventions: KServe's `name` and `ready`, TensorFlow Serving's version list."""
        if request.path_params["model"].endswith(":predict"):
            raise HTTPException(405, headers={"Allow": "POST"})
        metadata = _addressed(self._service, request)
        ready = self._service.ready()
        status = {"error_code": "OK", "error_message": ""}
        state = "AVAILABLE" if ready else "LOADING"
        content: dict[str, object] = {
            "name": metadata.name,
            "ready": ready,
            "model_version_status": [
                {"version": version, "state": state, "status": status} for version in metadata.versions
            ],
        }
        if ready:
            return json_response(content)
        return json_response({**content, "error": f'model "{metadata.name}" is not ready'}, 503)

    async def predict(self, request: Request) -> Response:
        metadata = _addressed(self._service, request)
        body = await read_body(request, self._max_body_bytes)
        predict = decode_predict_request(body, metadata)
        check_against(metadata, predict.infer)
        response = await while_connected(request.receive, self._service.infer(predict.infer))
        content = encode_predict_response(response, columns=predict.columns)
        return Response(content, headers=provenance_headers(response.parameters), media_type=_JSON)
