"""The server below the routes, on a real socket: what is not HTTP, what comes slowly, and how replies leave."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from edge_service import Doubler, build_app, live_server

pytestmark = pytest.mark.live

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v2/models/my%20model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
TIMEOUT_S = 0.3


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with live_server(build_app(Doubler()), receive_timeout_s=TIMEOUT_S) as port:
        yield port


@pytest.fixture
def connection(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        yield connection


@pytest.fixture(scope="module")
def patient_port() -> Iterator[int]:
    with live_server(build_app(Doubler())) as port:
        yield port


@pytest.fixture
def patient(patient_port: int) -> Iterator[socket.socket]:
    """A connection to a server that waits long: for what must not depend on the machine's speed."""
    with socket.create_connection(("127.0.0.1", patient_port), timeout=30) as connection:
        yield connection


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(1 << 16):
        received += chunk
    return received


def refusal(reply: bytes) -> tuple[int, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"content-type: application/json" in head
    assert f"content-length: {len(body)}".encode() in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize("nonsense", [b"\x16\x03\x01\x02\x00", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_is_refused_in_the_shape_of_every_error(
    patient: socket.socket, nonsense: bytes
) -> None:
    patient.sendall(nonsense)
    status, message = refusal(until_closed(patient))
    assert status == 400
    assert "not valid HTTP" in message


@pytest.mark.parametrize("part", [GET[:-2], POST[:40], POST, POST + b"x" * 999])
def test_a_request_that_does_not_come_to_its_end_is_timed_out(connection: socket.socket, part: bytes) -> None:
    started = time.perf_counter()
    connection.sendall(part)
    status, message = refusal(until_closed(connection))
    assert status == 408
    assert "server.receive_timeout_s" in message
    assert TIMEOUT_S * 0.9 <= time.perf_counter() - started < TIMEOUT_S + 5


def test_a_trickle_does_not_extend_the_time(connection: socket.socket) -> None:
    connection.settimeout(0.05)
    sent, received = 0, b""
    while not received:
        connection.sendall(GET[sent : sent + 1])
        sent += 1
        assert sent < len(GET) - 1, "it went on waiting"
        try:
            received = connection.recv(1 << 16)
        except TimeoutError:
            continue
    assert b" 408 " in received.partition(b"\r\n")[0]


def test_a_head_without_end_is_refused(patient: socket.socket) -> None:
    patient.sendall(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(70):
        patient.sendall(b"x" * 1024)
    status, message = refusal(until_closed(patient))
    assert status == 431
    assert "65536 bytes" in message


@pytest.mark.parametrize(
    "head",
    [
        GET[:-2] + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
        GET[:-2] + b"X: yyyy\r\n" * 20_000 + b"\r\n",
        GET.replace(b"live", b"l" * 70_000),
    ],
    ids=["one header", "many headers", "path"],
)
def test_a_head_that_is_too_large_is_refused_though_it_comes_at_once(
    patient: socket.socket, head: bytes
) -> None:
    patient.sendall(head)
    assert refusal(until_closed(patient))[0] == 431


@pytest.mark.parametrize("piece", [100_000, 700])
def test_a_head_just_within_the_limit_is_served(patient: socket.socket, piece: int) -> None:
    head = GET[:-2] + b"X: yyyyyyyy\r\n" * 4_900 + b"\r\n"
    assert 63_000 < len(head) < 65_536
    for start in range(0, len(head), piece):
        patient.sendall(head[start : start + piece])
    assert b" 200 " in patient.recv(1 << 16)


def test_a_large_body_before_the_next_head_does_not_count_for_it(patient: socket.socket) -> None:
    body = b'{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}'
    body += b" " * (90_000 - len(body))
    head = POST.replace(b"1000", b"90000")
    patient.sendall(head + body + GET[:10])
    time.sleep(TIMEOUT_S / 3)
    patient.sendall(GET[10:])
    received = b""
    while not received.endswith(b'{"live":true}'):
        received += patient.recv(1 << 16)
    assert received.count(b"HTTP/1.1 200 OK") == 2


def test_several_requests_on_one_connection_each_have_their_time(connection: socket.socket) -> None:
    for _ in range(3):
        time.sleep(TIMEOUT_S * 0.7)
        connection.sendall(GET)
        assert b" 200 " in connection.recv(1 << 16)


def test_pipelined_requests_are_answered_in_turn(patient: socket.socket) -> None:
    patient.sendall(GET * 3)
    received = b""
    while received.count(b'{"live":true}') < 3:
        received += patient.recv(1 << 16)
    assert received.count(b"HTTP/1.1 200 OK") == 3


def test_head_and_body_of_a_reply_come_in_one_piece(patient: socket.socket) -> None:
    patient.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(20):
        patient.sendall(GET)
        reply = patient.recv(1 << 16)
        assert reply.startswith(b"HTTP/1.1 200")
        assert reply.endswith(b'{"live":true}')


def test_a_reply_without_body_comes_too(patient: socket.socket) -> None:
    patient.sendall(GET.replace(b"GET", b"HEAD"))
    assert patient.recv(1 << 16).startswith(b"HTTP/1.1 ")


def test_what_is_half_received_does_not_hold_up_the_end() -> None:
    with live_server(build_app(Doubler())) as port:
        half = socket.create_connection(("127.0.0.1", port), timeout=10)
        half.sendall(POST + b"ab")
        time.sleep(0.1)
        started = time.perf_counter()
    assert time.perf_counter() - started < 3
    with half:
        status, message = refusal(until_closed(half))
    assert status == 503
    assert "shutting down" in message
