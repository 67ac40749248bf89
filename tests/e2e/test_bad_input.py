"""Bad requests get a clear 4xx that names field, rule and value, and their neighbours in the group are answered."""

import json
import threading

import numpy as np
import pytest
from live_server import Server, body_of, serving

pytestmark = pytest.mark.live
INFER = "/v2/models/lenet5/infer"


def tensor(**changes) -> bytes:
    base = {"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.0] * 784}
    return json.dumps({"inputs": [{**base, **changes}]}).encode()


NAN_ROW = np.zeros((2, 1, 28, 28), np.float32)
NAN_ROW[1, 0, 3, 4] = np.nan

CASES = {
    "wrong datatype": (tensor(datatype="INT32", data=[0] * 784), ["input", "FP32", "INT32"]),
    "unknown datatype": (tensor(datatype="FLOAT"), ["datatype", "FLOAT"]),
    "wrong shape": (tensor(shape=[1, 28, 28]), ["input", "[-1, 1, 28, 28]", "[1, 28, 28]"]),
    "wrong count": (tensor(data=[0.0] * 783), ["input", "783", "784"]),
    "wrong name": (tensor(name="image"), ["image", "input"]),
    "no rows": (tensor(shape=[0, 1, 28, 28], data=[]), ["input", "0"]),
    "text among numbers": (tensor(data=["a"] * 784), ["data"]),
    "negative dimension": (tensor(shape=[-1, 1, 28, 28]), ["shape", "-1"]),
    "no inputs": (b'{"inputs": []}', ["input"]),
    "not an object": (b"[1]", ["object"]),
    "malformed JSON": (b'{"inputs": [', ["JSON"]),
    "empty body": (b"", ["JSON"]),
    "NaN row": (body_of(NAN_ROW), ["input", "finite", "nan", "row 1", "element 88"]),
    "bad timeout": (
        json.dumps({**json.loads(tensor()), "parameters": {"timeout": -1}}).encode(),
        ["timeout", "-1"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_request_is_refused_with_its_field_rule_and_value(server: Server, case: str) -> None:
    body, fragments = CASES[case]
    response = server.http.post(INFER, content=body)
    assert response.status_code == 400
    assert set(response.json()) == {"error"}
    for fragment in fragments:
        assert fragment in response.json()["error"]


def binary(size: int, declared: int, header: str | None) -> tuple[bytes, dict[str, str]]:
    entry = {
        "name": "input",
        "shape": [1, 1, 28, 28],
        "datatype": "FP32",
        "parameters": {"binary_data_size": declared},
    }
    text = json.dumps({"inputs": [entry]}).encode()
    headers = {"Inference-Header-Content-Length": header or str(len(text))}
    return text + b"\0" * size, headers


@pytest.mark.parametrize(
    ("size", "declared", "header", "fragment"),
    [
        (3136, 3136, "x", "Inference-Header-Content-Length"),
        (3136, 3136, "99999", "99999"),
        (3000, 3136, None, "3136"),
        (3140, 3136, None, "4"),
        (3132, 3132, None, "3132"),
    ],
)
def test_bad_byte_counts(server: Server, size: int, declared: int, header: str | None, fragment: str) -> None:
    body, headers = binary(size, declared, header)
    response = server.http.post(INFER, content=body, headers=headers)
    assert response.status_code == 400
    assert fragment in response.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v2/models/resnet", 404),
        ("POST", "/v2/models/resnet/infer", 404),
        ("POST", "/v2/models/lenet5/versions/9/infer", 404),
        ("GET", INFER, 405),
        ("POST", "/v2", 405),
        ("DELETE", "/metrics", 405),
    ],
)
def test_unknown_paths_and_methods_have_the_v2_error_shape(
    server: Server, method: str, path: str, status: int
) -> None:
    response = server.http.request(method, path)
    assert response.status_code == status
    assert set(response.json()) == {"error"}


def test_an_oversize_body_is_refused_before_it_is_buffered() -> None:
    small = "server.max_body_bytes=100000"
    with serving(small, "replicas.count=1", "scheme={kind: none}", "log.level=error") as server:
        refused = server.http.post(INFER, content=b"x" * 100_001)
        assert refused.status_code == 413
        assert "100000" in refused.json()["error"]
        assert "server.max_body_bytes" in refused.json()["error"]

        def endless():
            for _ in range(1000):
                yield b"x" * 10_000

        chunked = server.http.post(INFER, content=endless())
        assert chunked.status_code == 413
        assert server.http.post(INFER, content=body_of(np.zeros((1, 1, 28, 28)))).status_code == 200


def test_bad_requests_harm_no_neighbour(server: Server, digits) -> None:
    good = body_of(digits.images[:3])
    answers: list[tuple[int, int]] = []

    def send_good() -> None:
        for _ in range(20):
            response = server.http.post(INFER, content=good)
            outputs = response.json()["outputs"][0]
            answers.append((response.status_code, len(outputs["data"])))

    def send_bad() -> None:
        for body, _ in CASES.values():
            server.http.post(INFER, content=body)

    threads = [threading.Thread(target=send) for send in (send_good, send_bad, send_good, send_bad)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(200, 30)] * 40


def test_a_row_that_is_not_finite_can_be_answered_by_itself(digits) -> None:
    uncoded = "grouping.non_finite_rows=uncoded"
    with serving(uncoded, "log.level=error") as server:
        rows = digits.images[:4].copy()
        rows[2] = np.inf
        response = server.http.post(INFER, content=body_of(rows))
        # LeNet answers NaN to it, which JSON cannot carry: the error says so, and binary carries it.
        assert "binary" in response.json()["error"]
        good = server.http.post(INFER, content=body_of(digits.images[:4])).json()["outputs"][0]
        assert np.isfinite(good["data"]).all()


def test_v1_predicts_and_says_how_in_headers(server: Server, digits) -> None:
    body = json.dumps({"instances": digits.images[:8].tolist()})
    response = server.http.post("/v1/models/lenet5:predict", content=body)
    assert response.status_code == 200
    assert np.array(response.json()["predictions"]).shape == (8, 10)
    assert response.headers["Unstraggle-Obtained"] == "decoded"
    assert int(response.headers["Unstraggle-Replicas-Used"]) >= 10
    bad = server.http.post("/v1/models/lenet5:predict", content=b'{"instance": []}')
    assert bad.status_code == 400
    assert "instances" in bad.json()["error"]


def test_metrics_count_what_happened(server: Server, digits) -> None:
    server.http.post(INFER, content=body_of(digits.images[:8]))
    text = server.http.get("/metrics").text
    for name in (
        'unstraggle_requests_total{outcome="ok"}',
        'unstraggle_rows_total{degraded="false",obtained="decoded"}',
        'unstraggle_groups_total{reason="full"}',
        'unstraggle_replica_calls_total{outcome="answered",replica="replica-0"}',
        'unstraggle_replica_state{replica="replica-0",state="healthy"} 1.0',
    ):
        assert name in text
