import numpy as np
import pytest

from coding.copies import Copies, HedgedParams, NoneParams, ReplicationParams
from coding.errors import BadParameter, NotDecodable


def test_only_the_first_copy_of_a_hedge_goes_at_once() -> None:
    hedged = HedgedParams(copies=3, delay_ms=250).build(1)
    assert [task.delay_s for task in hedged.tasks] == [0.0, 0.25, 0.25]


def test_replication_sends_all_at_once_and_none_sends_one() -> None:
    assert [task.delay_s for task in ReplicationParams(copies=3).build(1).tasks] == [0.0] * 3
    assert len(NoneParams().build(1).tasks) == 1


def test_the_lowest_index_among_the_arrivals_answers() -> None:
    arrivals = {2: np.array([[1.0, 2.0]]), 1: np.array([[3.0, 4.0]])}
    decoded = Copies(3).decode(arrivals)
    np.testing.assert_array_equal(decoded.outputs, [[[3.0, 4.0]]])
    np.testing.assert_array_equal(decoded.error, [[0.0]])


def test_any_dtype_passes() -> None:
    classes = np.array([[7], [9]])
    decoded = Copies(2).decode({1: classes})
    assert decoded.outputs.dtype == classes.dtype
    np.testing.assert_array_equal(decoded.outputs[0], classes)


def test_payloads_do_not_share_memory_with_the_query() -> None:
    query = np.ones((1, 1, 3))
    payloads = Copies(2).encode(query)
    payloads[0] = 5
    assert (query == 1).all()
    assert (payloads[1] == 1).all()


def test_an_unknown_copy_is_refused_and_none_cannot_answer() -> None:
    with pytest.raises(BadParameter, match="task indices 0 to 1, got 2"):
        Copies(2).decode({2: np.zeros((1, 1))})
    with pytest.raises(NotDecodable, match="no copy"):
        Copies(2).decode({})
    assert Copies(2).answerable({5}) == frozenset()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"percentile": 0.0}, "percentile must be above 0 and below 100, got 0.0"),
        ({"percentile": 100.0}, "percentile must be above 0 and below 100, got 100.0"),
        ({"percentile": float("nan")}, "percentile must be above 0 and below 100, got nan"),
        ({"budget": -0.1}, "budget must be .*got -0.1"),
        ({"delay_ms": float("inf")}, "delay_ms must be .*got inf"),
    ],
)
def test_bad_numbers_of_a_hedge_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        HedgedParams(**fields)
