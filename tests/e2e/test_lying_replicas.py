"""A server of which two replicas lie: its answers stay right, and the liars are found, counted and ejected."""

from __future__ import annotations

import time

import numpy as np
import pytest
from live_server import Server, body_of, serving

pytestmark = pytest.mark.live

LIARS = (3, 8)
CODE = "scheme={kind: letcc, k: 4, n: 12, wait_for: 10, max_wrong: 2}"
LIES = f"replicas.faults={{enabled: true, replicas: {list(LIARS)}, corruption: {{kind: noise, sigma: 20}}}}"


def ask(server: Server, rows: np.ndarray) -> tuple[np.ndarray, dict]:
    """Predicted classes, and how they were obtained."""
    reply = server.http.post("/v2/models/lenet5/infer", content=body_of(rows))
    assert reply.status_code == 200, reply.text
    document = reply.json()
    (output,) = document["outputs"]
    return np.reshape(output["data"], output["shape"]).argmax(axis=1), document["parameters"]


def wrong_arrivals(server: Server) -> dict[str, float]:
    lines = server.http.get("/metrics").text.splitlines()
    counts = (line.split() for line in lines if line.startswith("unstraggle_replica_wrong_arrivals_total{"))
    return {series.split('"')[1]: float(count) for series, count in counts}


def test_two_liars_of_twelve_cost_next_to_no_accuracy_and_are_ejected(digits) -> None:
    with serving(CODE, LIES, "replicas.wrong_ejection_s=300", "log.level=error") as server:
        names = {f"replica-{number}" for number in LIARS}
        wanted = ["ejected" if number in LIARS else "healthy" for number in range(12)]
        right = rows = named = 0
        give_up = time.perf_counter() + 60
        while [row["state"] for row in server.replicas()] != wanted:
            assert time.perf_counter() < give_up, (server.replicas(), wrong_arrivals(server))
            images = digits.images[rows % 2000 : rows % 2000 + 4]
            classes, parameters = ask(server, images)
            right += int((classes == digits.labels[rows % 2000 : rows % 2000 + 4]).sum())
            rows += 4
            named += bool(names & set(parameters.get("replicas_wrong", "").split(",")))
        assert named >= 2  # of the three times that it takes, the group of the warm-up may have been one
        counts = wrong_arrivals(server)
        assert all(counts[name] >= 3 for name in names)
        assert sum(counts[name] for name in counts.keys() - names) <= 3

        for start in range(0, 400, 4):
            classes, parameters = ask(server, digits.images[start : start + 4])
            right += int((classes == digits.labels[start : start + 4]).sum())
            rows += 4
            assert not names & set(parameters.get("replicas_wrong", "").split(","))
        assert right / rows >= 0.96
        # They answer every probe, and that does not bring them back.
        assert [server.replicas()[number]["state"] for number in LIARS] == ["ejected", "ejected"]
