"""How a reply says how it was obtained."""

from __future__ import annotations

import math

from serving.protocol import provenance_headers, provenance_parameters
from serving.types import Provenance


def test_one_way_for_all_rows() -> None:
    rows = [Provenance("decoded", 10, ("replica-3", "replica-7"), error_estimate=0.12345678)] * 8
    assert provenance_parameters(rows) == {
        "obtained": "decoded",
        "replicas_used": 10,
        "replicas_missing": "replica-3,replica-7",
        "degraded": False,
        "error_estimate": 0.123457,
    }


def test_rows_that_differ() -> None:
    rows = [
        Provenance("direct", 1),
        Provenance("decoded", 8, ("b",), degraded=True, error_estimate=2.5),
        Provenance("decoded", 10, ("c", "a"), ("e", "d"), error_estimate=0.5),
        Provenance("decoded", 8, ("b",), degraded=True, error_estimate=1234567.8),
    ]
    assert provenance_parameters(rows) == {
        "obtained": "decoded,direct",
        "replicas_used": 1,
        "replicas_missing": "a,b,c",
        "replicas_wrong": "d,e",
        "degraded": True,
        "degraded_rows": 2,
        "error_estimate": 1234570.0,
    }


def test_nothing_to_say_without_rows() -> None:
    assert provenance_parameters([]) == {}


def test_an_estimate_that_is_no_number_is_left_out() -> None:
    for estimate in (math.inf, math.nan):
        parameters = provenance_parameters(
            [Provenance("direct", 1), Provenance("decoded", 2, error_estimate=estimate)]
        )
        assert parameters == {"obtained": "decoded,direct", "replicas_used": 1, "degraded": False}


def test_headers_say_the_same() -> None:
    parameters = provenance_parameters([Provenance("decoded", 10, ("http://127.0.0.1:9001",), degraded=True)])
    assert provenance_headers(parameters) == {
        "Unstraggle-Obtained": "decoded",
        "Unstraggle-Replicas-Used": "10",
        "Unstraggle-Replicas-Missing": "http://127.0.0.1:9001",
        "Unstraggle-Degraded": "true",
        "Unstraggle-Error-Estimate": "0.0",
    }
    assert provenance_headers({"other": 1}) == {}


def test_a_replicas_name_cannot_break_the_headers() -> None:
    headers = provenance_headers({"replicas_missing": "é\r\nSet-Cookie: a=b"})
    assert headers == {"Unstraggle-Replicas-Missing": "%C3%A9%0D%0ASet-Cookie: a=b"}
