import io
import math

import orjson
import pytest

from loadtest.records import Outcome, Record, write_records

ANSWERED = Record(
    3,
    1.0,
    1.002,
    1.062,
    8,
    Outcome(200, correct=7, obtained="decoded", replicas_used=10, error_estimate=0.25),
)
TIMED_OUT = Record(4, 1.1, 1.1, 7.1, 8, Outcome(error="no answer within the client's timeout"))
NEVER_SENT = Record(5, 1.2, None, 1.2, 8, Outcome(error="not sent"))


def test_latency_counts_from_the_intended_time_and_service_from_the_actual_send():
    assert ANSWERED.latency_s == pytest.approx(0.062)
    assert ANSWERED.service_s == pytest.approx(0.060)
    assert ANSWERED.lag_s == pytest.approx(0.002)


@pytest.mark.parametrize("record", [TIMED_OUT, NEVER_SENT])
def test_a_failed_request_takes_for_ever(record):
    assert record.failed
    assert record.latency_s == record.service_s == math.inf


def test_records_are_written_one_per_line():
    stream = io.BytesIO()
    write_records(stream, "none", [ANSWERED, TIMED_OUT])
    write_records(stream, "letcc", [NEVER_SENT])
    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["scheme"], line["index"]) for line in lines] == [("none", 3), ("none", 4), ("letcc", 5)]
    answered, timed_out, never_sent = lines
    assert answered["latency_ms"] == 62.0
    assert answered["service_ms"] == 60.0
    assert (answered["obtained"], answered["replicas_used"], answered["correct"]) == ("decoded", 10, 7)
    assert timed_out["latency_ms"] is None
    assert timed_out["error"] == "no answer within the client's timeout"
    assert never_sent["sent_s"] is None
