"""The V2 and V1 routes, called without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import numpy as np
import pytest
from edge_service import METADATA, PATH, Doubler, build_app, client_of

from serving.errors import DeadlineExceeded, QueueFull, TooFewReplicas
from serving.protocol import HEADER_LENGTH, decode_infer_response, encode_infer_request
from serving.types import InferRequest, NamedTensor

ROWS = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [[1, 2, 3], [4, 5, 6]]}


@pytest.fixture
def service() -> Doubler:
    return Doubler()


@pytest.fixture
async def client(service: Doubler) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(service)) as client:
        yield client


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
async def test_server_metadata(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path)
    assert reply.status_code == 200
    assert reply.json() == {
        "name": "unstraggle",
        "version": "0.1.0",
        "extensions": ["binary_tensor_data", "parameters"],
    }


async def test_live_and_ready(client: httpx.AsyncClient, service: Doubler) -> None:
    for path, ready in (("/v2/health/live", {"live": True}), ("/v2/health/ready", {"ready": True})):
        reply = await client.get(path)
        assert (reply.status_code, reply.json()) == (200, ready)
        assert (await client.head(path)).status_code == 200
    service.is_ready = False
    assert (await client.get("/v2/health/live")).status_code == 200
    reply = await client.get("/v2/health/ready")
    assert (reply.status_code, reply.json()) == (503, {"ready": False, "error": "the server is not ready"})


@pytest.mark.parametrize("version", ["", "/versions/1", "/versions/2"])
async def test_a_model_is_found_by_name_and_version(
    client: httpx.AsyncClient, service: Doubler, version: str
) -> None:
    metadata = await client.get(f"{PATH}{version}")
    assert metadata.status_code == 200
    assert metadata.json()["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    ready = await client.get(f"{PATH}{version}/ready")
    assert (ready.status_code, ready.json()) == (200, {"name": "my model", "ready": True})
    service.is_ready = False
    ready = await client.get(f"{PATH}{version}/ready")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert ready.json()["error"] == 'model "my model" is not ready'
    answer = await client.post(f"{PATH}{version}/infer", json={"inputs": [ROWS]})
    assert answer.status_code == 200


async def test_the_models_are_listed(client: httpx.AsyncClient) -> None:
    for path in ("/v2/models", "/v1/models"):
        assert (await client.get(path)).json() == {"models": ["my model"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/models/other"),
        ("GET", "/v2/models/other/ready"),
        ("POST", "/v2/models/other/infer"),
        ("GET", "/v1/models/other"),
        ("POST", "/v1/models/other:predict"),
    ],
)
async def test_an_unknown_model_is_refused_with_what_is_served(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    reply = await client.request(method, path)
    assert reply.status_code == 404
    assert reply.json() == {"error": 'unknown model "other"; this server serves "my model"'}


async def test_an_unknown_version_is_refused_with_what_is_served(
    client: httpx.AsyncClient, service: Doubler
) -> None:
    reply = await client.get(f"{PATH}/versions/3")
    assert reply.status_code == 404
    assert reply.json() == {"error": 'model "my model" has no version "3"; versions served: 1, 2'}
    service.known = replace(METADATA, versions=())
    assert "versions served: none" in (await client.get(f"{PATH}/versions/3")).json()["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", PATH),
        ("GET", f"{PATH}/ready"),
        ("POST", f"{PATH}/infer"),
        ("GET", "/v2/models"),
        ("GET", "/v1/models/my%20model"),
        ("POST", "/v1/models/my%20model:predict"),
    ],
)
async def test_before_the_model_is_known_the_server_is_unavailable(
    client: httpx.AsyncClient, service: Doubler, method: str, path: str
) -> None:
    service.known = None
    reply = await client.request(method, path)
    assert (reply.status_code, reply.json()) == (503, {"error": "no replica has answered yet"})


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream", "text/plain", None])
async def test_json_in_json_out_whatever_the_content_type(
    client: httpx.AsyncClient, content_type: str | None
) -> None:
    request = client.build_request("POST", f"{PATH}/infer", json={"id": "7", "inputs": [ROWS]})
    del request.headers["content-type"]
    if content_type:
        request.headers["content-type"] = content_type
    reply = await client.send(request)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert HEADER_LENGTH not in reply.headers
    assert reply.json() == {
        "model_name": "my model",
        "model_version": "1",
        "id": "7",
        "parameters": {
            "obtained": "decoded",
            "replicas_used": 10,
            "replicas_missing": "replica-2",
            "degraded": False,
            "error_estimate": 0.25,
        },
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [2, 4, 6, 8, 10, 12]},
            {"name": "sums", "datatype": "INT64", "shape": [2], "data": [6, 15]},
        ],
    }


async def test_binary_in_binary_out(client: httpx.AsyncClient, service: Doubler) -> None:
    x = np.arange(6, dtype="f4").reshape(2, 3)
    encoded = encode_infer_request(InferRequest((NamedTensor("x", "FP32", x),), parameters={"timeout": 5}))
    reply = await client.post(f"{PATH}/infer", content=encoded.body, headers=encoded.headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/octet-stream")
    response = decode_infer_response(reply.content, int(reply.headers[HEADER_LENGTH]))
    assert response.outputs[0].data.tolist() == (2 * x).tolist()
    assert dict(service.requests[0].parameters) == {"timeout": 5}


async def test_a_body_without_json(client: httpx.AsyncClient) -> None:
    raw = np.array([1, 2, 3], dtype="<f4").tobytes()
    reply = await client.post(f"{PATH}/infer", content=raw, headers={HEADER_LENGTH: "0"})
    response = decode_infer_response(reply.content, int(reply.headers[HEADER_LENGTH]))
    assert response.outputs[0].data.tolist() == [[2, 4, 6]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": [2, 2], "data": [1, 2, 3, 4]}, 'inputs[0] "x": expected shape [-1, 3], got [2, 2]'),
        ({"shape": [0, 3], "data": []}, 'inputs[0] "x": has 0 rows, at least 1 is needed'),
        ({"datatype": "INT8"}, 'inputs[0] "x": expected datatype FP32, got INT8'),
        ({"name": "z"}, 'inputs[0] "z": not an input of my model, which takes "x"'),
        ({"data": [1]}, 'inputs[0] "x": data has 1 values, shape [2, 3] needs 6'),
    ],
)
async def test_a_bad_tensor_never_reaches_the_service(
    client: httpx.AsyncClient, service: Doubler, changes: dict[str, object], message: str
) -> None:
    reply = await client.post(f"{PATH}/infer", json={"inputs": [{**ROWS, **changes}]})
    assert (reply.status_code, reply.json()) == (400, {"error": message})
    assert not service.requests


@pytest.mark.parametrize(
    ("failure", "status", "headers"),
    [
        (QueueFull("256 rows are waiting", retry_after_s=0.2), 503, {"retry-after": "1"}),
        (TooFewReplicas("5 of 12 replicas failed"), 503, {}),
        (DeadlineExceeded("no answer in 1000 ms"), 504, {}),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"),
    [(f"{PATH}/infer", {"inputs": [ROWS]}), ("/v1/models/my%20model:predict", {"instances": [[1, 2, 3]]})],
    ids=["v2", "v1"],
)
async def test_failures_of_the_service_are_rendered(
    client: httpx.AsyncClient,
    service: Doubler,
    path: str,
    body: object,
    failure: Exception,
    status: int,
    headers: dict[str, str],
) -> None:
    service.failure = failure
    reply = await client.post(path, json=body)
    assert (reply.status_code, reply.json()) == (status, {"error": str(failure)})
    assert headers.items() <= dict(reply.headers).items()


async def test_v1_predict_by_rows_and_by_columns(client: httpx.AsyncClient) -> None:
    rows = await client.post("/v1/models/my%20model:predict", json={"instances": [[1, 2, 3]]})
    assert rows.json() == {"predictions": [{"y": [2, 4, 6], "sums": 6}]}
    columns = await client.post(
        "/v1/models/my%20model/versions/2:predict", json={"inputs": {"x": [[1, 2, 3]]}}
    )
    assert columns.json() == {"outputs": {"y": [[2, 4, 6]], "sums": [6]}}
    for reply in (rows, columns):
        assert reply.headers["unstraggle-obtained"] == "decoded"
        assert reply.headers["unstraggle-replicas-used"] == "10"
        assert reply.headers["unstraggle-replicas-missing"] == "replica-2"
        assert reply.headers["unstraggle-degraded"] == "false"
        assert reply.headers["unstraggle-error-estimate"] == "0.25"


async def test_v1_refuses_bad_rows(client: httpx.AsyncClient, service: Doubler) -> None:
    for body, message in (({"instances": []}, "has 0 rows"), ({"instances": [[1]]}, "data has 1 values")):
        reply = await client.post("/v1/models/my%20model:predict", json=body)
        assert reply.status_code == 400
        assert message in reply.json()["error"]
    assert not service.requests


async def test_v1_model_status_serves_both_conventions(client: httpx.AsyncClient, service: Doubler) -> None:
    reply = await client.get("/v1/models/my%20model")
    assert reply.status_code == 200
    assert (reply.json()["name"], reply.json()["ready"]) == ("my model", True)
    assert [(entry["version"], entry["state"]) for entry in reply.json()["model_version_status"]] == [
        ("1", "AVAILABLE"),
        ("2", "AVAILABLE"),
    ]
    service.is_ready = False
    reply = await client.get("/v1/models/my%20model")
    assert reply.status_code == 503
    assert reply.json()["ready"] is False
    assert reply.json()["error"] == 'model "my model" is not ready'
