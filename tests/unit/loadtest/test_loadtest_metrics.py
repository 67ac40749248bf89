import pytest

from loadtest.metrics import ReplicaCost, parse_replica_cost

EXPOSITION = """\
# TYPE unstraggle_replica_calls counter
unstraggle_replica_calls_total{replica="0",outcome="answered"} 10.0
unstraggle_replica_calls_total{replica="0",outcome="cancelled"} 2.0
unstraggle_replica_calls_total{replica="1",outcome="answered"} 11.0
# TYPE unstraggle_replica_call_seconds histogram
unstraggle_replica_call_seconds_bucket{replica="0",outcome="answered",le="0.1"} 9.0
unstraggle_replica_call_seconds_bucket{replica="0",outcome="answered",le="+Inf"} 10.0
unstraggle_replica_call_seconds_count{replica="0",outcome="answered"} 10.0
unstraggle_replica_call_seconds_sum{replica="0",outcome="answered"} 0.6
unstraggle_replica_call_seconds_count{replica="0",outcome="cancelled"} 2.0
unstraggle_replica_call_seconds_sum{replica="0",outcome="cancelled"} 0.15
"""


def test_costs_are_summed_over_replicas_and_outcomes():
    cost = parse_replica_cost(EXPOSITION)
    assert cost is not None
    assert cost.calls == 23
    assert cost.seconds == pytest.approx(0.75)


def test_a_server_without_these_counters_has_no_known_cost():
    assert parse_replica_cost("# TYPE other counter\nother_total 3\n") is None


def test_a_cost_since_an_earlier_reading():
    assert ReplicaCost(30, 2.5).since(ReplicaCost(10, 0.5)) == ReplicaCost(20, 2.0)
