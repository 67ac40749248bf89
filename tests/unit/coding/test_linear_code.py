import numpy as np
import pytest

from coding.berrut import BerrutParams
from coding.code_size import CodeSize
from coding.error_estimate import ErrorOperators
from coding.errors import BadParameter, NotDecodable
from coding.letcc import LetccParams
from coding.linear_code import DecodeOperators, LinearCode

KINDS = [LetccParams, BerrutParams]


def coded_cubic(
    code: LinearCode, width: int = 3, dtype=np.float64
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Answers of a smooth function, and what its replicas say of a group's payloads."""
    rng = np.random.default_rng(0)
    queries = np.linspace(-1, 1, code.k)[None, :, None] * rng.normal(size=width) + rng.normal(size=width)
    queries = queries.astype(dtype)
    payloads = code.encode(queries)
    return (queries**3)[0], {index: payload**3 for index, payload in enumerate(payloads)}


@pytest.mark.parametrize(("params", "tolerance"), [(LetccParams, 0.01), (BerrutParams, 0.1)])
def test_a_smooth_function_is_decoded_from_what_arrived(params, tolerance: float) -> None:
    code = params(k=8, n=24, wait_for=20).build(8)
    answers, outputs = coded_cubic(code)
    for missing in (3, 7, 11, 16):
        del outputs[missing]
    decoded = code.decode(outputs)
    assert decoded.slots == tuple(range(8))
    np.testing.assert_allclose(decoded.outputs[:, 0], answers, atol=tolerance * np.abs(answers).max())


@pytest.mark.parametrize("params", KINDS)
def test_every_slot_becomes_answerable_together(params) -> None:
    code = params(k=4, n=8, wait_for=6, floor=3).build(4)
    for arrivals in range(9):
        arrived = set(range(arrivals))
        assert code.answerable(arrived) == (set(range(4)) if arrivals >= 6 else set())
        assert code.answerable(arrived, at_deadline=True) == (set(range(4)) if arrivals >= 3 else set())


def test_tasks_that_are_none_of_the_codes_do_not_count_as_arrivals() -> None:
    code = LetccParams(k=2, n=4, wait_for=2).build(2)
    assert code.answerable({0, 17}) == set()
    assert code.answerable({0: "as keys", 1: "too"}.keys()) == {0, 1}


def test_fewer_arrivals_than_the_floor_are_not_decoded() -> None:
    code = LetccParams(k=4, n=8, wait_for=6, floor=3).build(4)
    with pytest.raises(NotDecodable, match="2 arrivals are fewer than the floor of 3"):
        code.decode({0: np.zeros((1, 2)), 5: np.zeros((1, 2))})


@pytest.mark.parametrize("stranger", [-1, 8])
def test_an_index_that_is_none_of_the_tasks_is_refused(stranger: int) -> None:
    code = LetccParams(k=4, n=8, wait_for=2).build(4)
    with pytest.raises(BadParameter, match=f"task indices 0 to 7, got {stranger}"):
        code.decode({0: np.zeros((1, 2)), 1: np.zeros((1, 2)), stranger: np.zeros((1, 2))})


def test_whole_numbers_are_refused() -> None:
    code = LetccParams(k=4, n=8, wait_for=6).build(4)
    with pytest.raises(BadParameter, match="queries must be floating point, got int64"):
        code.encode(np.zeros((1, 4, 2), np.int64))
    with pytest.raises(BadParameter, match="arrivals must be floating point, got int32"):
        code.decode({task: np.zeros((1, 2), np.int32) for task in range(6)})


@pytest.mark.parametrize("params", KINDS)
def test_float32_is_as_good_as_its_rounding(params) -> None:
    code = params().build(8)
    _, precise = coded_cubic(code)
    rounded = {index: output.astype(np.float32) for index, output in precise.items()}
    np.testing.assert_allclose(code.decode(rounded).outputs, code.decode(precise).outputs, atol=1e-4)


def test_half_precision_is_summed_in_single() -> None:
    code = LetccParams().build(8)
    queries = np.random.default_rng(0).normal(size=(1, 8, 50)).astype(np.float16)
    exact = code.encode(queries.astype(np.float64))
    np.testing.assert_array_equal(code.encode(queries), exact.astype(np.float16))


def test_a_view_of_a_larger_array_encodes_like_a_copy() -> None:
    code = LetccParams(k=4, n=6, wait_for=5).build(4)
    batch = np.random.default_rng(0).normal(size=(3, 5, 6, 8))
    view = batch[::2, 1:, :, ::2]
    np.testing.assert_allclose(code.encode(view), code.encode(np.ascontiguousarray(view)), rtol=1e-12)


def counting_code(k: int) -> tuple[LinearCode, list[tuple[int, ...]]]:
    built: list[tuple[int, ...]] = []

    def operators(survivors: np.ndarray) -> DecodeOperators:
        built.append(tuple(survivors.tolist()))
        answers = np.full((k, survivors.size), 1.0 / survivors.size)
        error = ErrorOperators(probes=np.eye(survivors.size), weights=np.ones((k, survivors.size)))
        return DecodeOperators(answers=answers, error=error)

    return LinearCode(CodeSize(k, 4, 2, 1), np.full((4, k), 1.0 / k), operators, range(4)), built


def test_decoders_are_built_once_for_each_set_of_arrivals() -> None:
    code, built = counting_code(2)
    arrival = np.ones((1, 3))
    for arrived in ([2, 0], [0, 2], [1, 2], [0, 2]):
        code.decode(dict.fromkeys(arrived, arrival))
    assert built == [(0, 2), (1, 2)]


def test_decoders_do_not_pile_up_without_bound() -> None:
    code = LetccParams(k=20, n=100, wait_for=40).build(20)
    cache = code._decoder
    held = cache.cache_info().maxsize
    decoder = cache(tuple(range(40)), np.dtype(np.float64))
    assert held * (decoder.stacked.nbytes + decoder.weights.nbytes) < 32 * 2**20
    assert (
        LetccParams().build(8)._decoder.cache_info().maxsize > 300
    )  # every set of 8 to 12 of 12, twice over


def test_the_error_adds_up_weighted_squares_of_probes() -> None:
    code, _ = counting_code(2)
    arrivals = {0: np.array([[3.0, 4.0], [0.0, 1.0]]), 3: np.array([[12.0, 0.0], [2.0, 2.0]])}
    np.testing.assert_allclose(code.decode(arrivals).error, [[13, 3], [13, 3]])


def test_the_group_of_one_never_asks_for_operators() -> None:
    code, built = counting_code(1)
    decoded = code.decode({3: np.array([[5.0]]), 1: np.array([[7.0]])})
    assert (decoded.outputs.item(), decoded.error.item(), built) == (7.0, 0.0, [])
