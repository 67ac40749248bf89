import numpy as np
import pytest

from coding.berrut import BerrutParams
from coding.code_size import CodeSize
from coding.error_estimate import ErrorOperators, interpolation_variance
from coding.errors import BadParameter, NotDecodable
from coding.letcc import LetccParams
from coding.linear_code import DecodeOperators, LinearCode
from coding.nodes import code_points
from coding.spline import SmoothingSpline

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
    operators = decoder.error_operators
    parts = (decoder.matrix, operators.probes, operators.weights, *decoder._error_forms)
    assert held * sum(part.nbytes for part in parts) < 32 * 2**20
    assert (
        LetccParams().build(8)._decoder.cache_info().maxsize > 300
    )  # every set of 8 to 12 of 12, twice over


def test_the_error_adds_up_weighted_squares_of_probes() -> None:
    code, _ = counting_code(2)
    arrivals = {0: np.array([[3.0, 4.0], [0.0, 1.0]]), 3: np.array([[12.0, 0.0], [2.0, 2.0]])}
    np.testing.assert_allclose(code.decode(arrivals).error, [[13, 3], [13, 3]])


def error_by_definition(code: LinearCode, nodes_name: str, arrivals: dict[int, np.ndarray]) -> np.ndarray:
    """e_k as the module docstring of `coding.error_estimate` has it, in float64 and group by group."""
    survivors = sorted(arrivals)
    targets, tasks = code_points(nodes_name, code.k, code.size.n)
    nodes = tasks[survivors]
    spline = SmoothingSpline(nodes, 0.0)
    values = np.stack([arrivals[task] for task in survivors]).astype(np.float64)
    units = {task: np.eye(len(survivors))[[row]] for row, task in enumerate(survivors)}
    answers = code.decode(units).outputs[:, 0]
    residuals = np.einsum("uv,vgd->ugd", spline.leave_one_out(), values)
    shift = np.einsum("kv,vgd->kgd", answers - spline.at(targets), values)
    strengths = (residuals**2).sum(axis=2) * spline.bending.diagonal()[:, None]
    weights = answers**2 / (answers**2).sum(axis=1, keepdims=True)
    variance = interpolation_variance(nodes, targets)[:, None] * (weights @ strengths)
    return np.sqrt((shift**2).sum(axis=2) + variance)


@pytest.mark.parametrize("params", KINDS)
@pytest.mark.parametrize("arrived", [range(12), (0, 1, 2, 4, 5, 6, 7, 8, 10, 11), (0, 3, 4, 9)], ids=len)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("scatter", [1.0, 1e-3])
def test_the_error_is_that_of_the_definition(params, arrived, groups: int, scatter: float) -> None:
    """To single precision, also where the arrivals nearly agree and their squares hardly differ."""
    code, rng = params().build(8), np.random.default_rng(0)
    common = rng.normal(size=(groups, 200))
    arrivals = {
        task: (common + scatter * rng.normal(size=(groups, 200))).astype(np.float32) for task in arrived
    }
    expected = error_by_definition(code, params().nodes, arrivals)
    np.testing.assert_allclose(code.decode(arrivals).error, expected, rtol=1e-6 / scatter**0.5)


@pytest.mark.parametrize("params", KINDS)
def test_arrivals_that_agree_leave_no_error_in_single_precision(params) -> None:
    arrival = np.random.default_rng(0).normal(size=(1, 1000)).astype(np.float32)
    error = params().build(8).decode(dict.fromkeys(range(10), arrival)).error
    assert error.max() < 1e-5 * np.linalg.norm(arrival)


def test_arrivals_may_be_views_and_of_several_dtypes() -> None:
    code, rng = LetccParams().build(8), np.random.default_rng(0)
    wide = {task: rng.normal(size=(2, 6)) for task in range(10)}
    strided = {task: np.repeat(arrival, 2, axis=1)[:, ::2] for task, arrival in wide.items()}
    np.testing.assert_array_equal(code.decode(strided).outputs, code.decode(wide).outputs)
    swapped = {task: arrival.astype(">f8") for task, arrival in wide.items()}
    np.testing.assert_allclose(code.decode(swapped).outputs, code.decode(wide).outputs, rtol=1e-12)
    mixed = wide | {0: wide[0].astype(np.float32)}
    decoded = code.decode(mixed)
    assert decoded.outputs.dtype == np.float64
    np.testing.assert_allclose(decoded.outputs, code.decode(wide).outputs, atol=1e-5)


def test_no_groups_at_all_are_decoded_to_none() -> None:
    decoded = LetccParams().build(8).decode(dict.fromkeys(range(10), np.zeros((0, 3), np.float32)))
    assert (decoded.outputs.shape, decoded.error.shape) == ((8, 0, 3), (8, 0))


def test_the_group_of_one_never_asks_for_operators() -> None:
    code, built = counting_code(1)
    decoded = code.decode({3: np.array([[5.0]]), 1: np.array([[7.0]])})
    assert (decoded.outputs.item(), decoded.error.item(), built) == (7.0, 0.0, [])
