"""The edge on a real socket, with the public V2 client."""

from __future__ import annotations

import json
import socket
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from edge_service import PATH, Doubler, build_app, live_server, wait_until

from serving.errors import QueueFull

pytestmark = pytest.mark.live
LIMIT = 1_000_000


@pytest.fixture(scope="module")
def service() -> Doubler:
    return Doubler()


@pytest.fixture(scope="module")
def port(service: Doubler) -> Iterator[int]:
    with live_server(build_app(service, max_body_bytes=LIMIT)) as port:
        yield port


@pytest.fixture(scope="module")
def triton() -> Any:
    with warnings.catch_warnings():
        # gevent, below this client, may warn as it is imported.
        warnings.simplefilter("ignore")
        return pytest.importorskip("tritonclient.http")


@pytest.fixture
def client(triton: Any, port: int) -> Iterator[Any]:
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    yield client
    client.close()


def inputs_of(triton: Any, x: np.ndarray, *, binary: bool, datatype: str = "FP32") -> list[Any]:
    tensor = triton.InferInput("x", list(x.shape), datatype)
    tensor.set_data_from_numpy(x, binary_data=binary)
    return [tensor]


def test_the_public_client_finds_the_server(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("my model")
    assert client.is_model_ready("my model", "2")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "parameters"]
    assert client.get_model_metadata("my model")["outputs"][0] == {
        "name": "y",
        "datatype": "FP32",
        "shape": [-1, 3],
    }


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("rows", [1, 8])
def test_the_public_client_infers(
    client: Any, triton: Any, binary_in: bool, binary_out: bool | None, rows: int
) -> None:
    x = np.random.default_rng(rows).random((rows, 3), dtype=np.float32)
    outputs = None
    if binary_out is not None:
        outputs = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    result = client.infer(
        "my model", inputs_of(triton, x, binary=binary_in), outputs=outputs, request_id="42", timeout=500_000
    )
    np.testing.assert_array_equal(result.as_numpy("y"), 2 * x)
    assert (result.as_numpy("sums") is None) == (outputs is not None)
    assert result.get_response()["id"] == "42"
    assert result.get_response()["parameters"]["obtained"] == "decoded"


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_the_public_client_may_compress(client: Any, triton: Any, compression: str) -> None:
    x = np.ones((8, 3), dtype=np.float32)
    result = client.infer(
        "my model", inputs_of(triton, x, binary=True), request_compression_algorithm=compression
    )
    np.testing.assert_array_equal(result.as_numpy("y"), 2 * x)


def test_the_tokens_of_the_public_client_are_read(client: Any, triton: Any) -> None:
    x = np.array([[np.nan, np.inf, 1]], dtype=np.float32)
    wanted = [triton.InferRequestedOutput("y", binary_data=True)]
    result = client.infer("my model", inputs_of(triton, x, binary=False), outputs=wanted)
    np.testing.assert_array_equal(result.as_numpy("y"), 2 * x)


@pytest.mark.parametrize("binary", [True, False])
def test_the_public_client_shows_readable_errors(
    client: Any, triton: Any, service: Doubler, binary: bool
) -> None:
    def refusal(model: str, x: np.ndarray, datatype: str = "FP32") -> tuple[str, str]:
        with pytest.raises(Exception, match=r"^\[") as caught:
            client.infer(model, inputs_of(triton, x, binary=binary, datatype=datatype))
        error: Any = caught.value
        assert type(error).__name__ == "InferenceServerException"
        return error.status(), error.message()

    good = np.ones((1, 3), dtype=np.float32)
    assert refusal("other", good) == ("404", 'unknown model "other"; this server serves "my model"')
    wrong_shape = ("400", 'inputs[0] "x": expected shape [-1, 3], got [1, 4]')
    assert refusal("my model", np.ones((1, 4), dtype=np.float32)) == wrong_shape
    wrong_type = ("400", 'inputs[0] "x": expected datatype FP32, got INT64')
    assert refusal("my model", np.ones((1, 3), dtype=np.int64), "INT64") == wrong_type
    service.failure = QueueFull("256 rows are waiting", retry_after_s=1)
    try:
        assert refusal("my model", good) == ("503", "256 rows are waiting")
    finally:
        service.failure = None


def test_the_public_client_is_told_of_an_oversize_body(client: Any, triton: Any) -> None:
    x = np.zeros((LIMIT // 12 + 1, 3), dtype=np.float32)
    with pytest.raises(Exception, match=r"over the limit of 1000000 bytes \(server\.max_body_bytes\)"):
        client.infer("my model", inputs_of(triton, x, binary=True))
    assert client.is_server_live()


def raw_request(body: bytes, *headers: str) -> bytes:
    lines = [f"POST {PATH}/infer HTTP/1.1", "Host: edge", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_an_oversize_announcement_is_answered_before_the_body_is_sent(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(raw_request(b"", f"Content-Length: {2**40}", "Expect: 100-continue"))
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"server.max_body_bytes" in answer


def test_an_oversize_stream_is_answered_while_it_is_sent(port: int) -> None:
    piece = b"%x\r\n%s\r\n" % (100_000, bytes(100_000))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(raw_request(b"", "Transfer-Encoding: chunked"))
        for _ in range(11):
            connection.sendall(piece)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"the body is over the limit of 1000000 bytes (server.max_body_bytes)" in answer


def test_a_client_that_closes_its_connection_cancels_its_inference(service: Doubler, port: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    body = json.dumps({"inputs": [tensor]}).encode()
    service.started.clear()
    service.cancelled.clear()
    service.hangs = True
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(raw_request(body, f"Content-Length: {len(body)}"))
            wait_until(service.started.is_set)
            assert not service.cancelled.is_set()
        wait_until(service.cancelled.is_set)
    finally:
        service.hangs = False
