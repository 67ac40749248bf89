"""The public V2 client against the whole server, with all replicas up and with two of them stopped."""

import itertools
import os
import signal
import time

import numpy as np
import pytest
import tritonclient.http as triton
from live_server import Server, serving
from tritonclient.utils import InferenceServerException

ROWS = 8
pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Run:
    """What a pass over the slice came to."""

    def __init__(self, accuracy: float, slowest_s: float, answered: int, last) -> None:
        self.accuracy = accuracy
        self.slowest_s = slowest_s
        self.answered = answered
        self.parameters = last.get_response()["parameters"]


def classify(server: Server, digits, *, requests: int, binary: bool = True) -> Run:
    right = answered = 0
    slowest = 0.0
    with triton.InferenceServerClient(server.address) as client:
        for number in range(requests):
            where = slice(number * ROWS, (number + 1) * ROWS)
            tensor = triton.InferInput("input", [ROWS, 1, 28, 28], "FP32")
            tensor.set_data_from_numpy(digits.images[where], binary_data=binary)
            wanted = triton.InferRequestedOutput("output", binary_data=binary)
            started = time.perf_counter()
            result = client.infer("lenet5", [tensor], outputs=[wanted])
            slowest = max(slowest, time.perf_counter() - started)
            scores = result.as_numpy("output")
            np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-4)
            right += int((scores.argmax(axis=1) == digits.labels[where]).sum())
            answered += len(scores)
    return Run(right / answered, slowest, answered, result)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_the_whole_slice_through_ten_of_twelve(server: Server, digits, binary: bool) -> None:
    run = classify(server, digits, requests=250, binary=binary)
    assert run.answered == 2000
    assert run.accuracy >= 0.90
    assert run.parameters["obtained"] == "decoded"
    assert run.parameters["replicas_used"] >= 10


def test_any_two_replicas_may_be_stopped(digits) -> None:
    with serving("log.level=warning") as server:
        for pair in [(0, 11), (4, 5), (2, 9)]:
            pids = [server.signal_replica(number, signal.SIGSTOP) for number in pair]
            run = classify(server, digits, requests=250)
            states = [row["state"] for row in server.replicas()]
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            assert run.answered == 2000
            assert run.slowest_s < 1.0
            assert run.accuracy >= 0.88, pair
            assert [states[number] for number in pair] == ["ejected"] * 2
            server.wait_for_states(["healthy"] * 12, timeout_s=5)


def test_metadata_and_health(server: Server) -> None:
    with triton.InferenceServerClient(server.address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("lenet5")
        metadata = client.get_model_metadata("lenet5")
        assert metadata["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 1, 28, 28]}]
        assert metadata["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1, 10]}]
        with pytest.raises(InferenceServerException, match="unknown model"):
            client.get_model_metadata("resnet")


@pytest.mark.parametrize("rows", [1, 3, 20, 64])
def test_requests_of_any_size_get_an_answer_per_row_in_their_order(server: Server, digits, rows: int) -> None:
    # The same digit once per class, repeated: a mixed-up order would show at once.
    first = {int(label): index for index, label in reversed(list(enumerate(digits.labels)))}
    chosen = list(itertools.islice(itertools.cycle([first[3], first[3], first[7], first[7]]), rows))
    answers = []
    with triton.InferenceServerClient(server.address) as client:
        tensor = triton.InferInput("input", [rows, 1, 28, 28], "FP32")
        tensor.set_data_from_numpy(digits.images[chosen])
        for _ in range(25):
            scores = client.infer("lenet5", [tensor]).as_numpy("output")
            assert scores.shape == (rows, 10)
            answers.append(scores.argmax(axis=1))
    # Decoding errs now and then, in one request of three rows at once in a third; orders mixed up err in half.
    assert (np.stack(answers) == digits.labels[chosen]).mean() >= 0.8
