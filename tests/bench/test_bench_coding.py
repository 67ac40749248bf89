"""What coding costs, as ratios: against copying the same bytes, and against fitting scipy's spline each time."""

from __future__ import annotations

import timeit
from collections.abc import Callable

import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline

from coding.letcc import LetccParams
from coding.linear_code import LinearCode
from coding.nodes import code_points
from coding.ordering import nearest_order

OUTPUTS = 1000
SURVIVORS = (0, 1, 2, 4, 5, 6, 7, 8, 10, 11)


def arrivals(groups: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    return {task: rng.normal(size=(groups, OUTPUTS)).astype(np.float32) for task in SURVIVORS}


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, 3, 224, 224)).astype(np.float32)


def best_of(run: Callable[[], object], times: int) -> float:
    """Seconds that one call takes at best: other processes only ever make it slower."""
    return min(timeit.repeat(run, number=1, repeat=times))


def in_turns(one: Callable[[], object], other: Callable[[], object], turns: int) -> tuple[float, float]:
    """Seconds that one call of each takes, in the median over turns: a slow phase of the machine slows both."""
    times = [(best_of(one, 10), best_of(other, 1)) for _ in range(turns)]
    first, second = np.median(times, axis=0)
    return float(first), float(second)


def after(one: Callable[[], object], other: Callable[[], object], turns: int) -> float:
    """Seconds that a call of `other` takes, in the median, when `one` has just had the caches."""
    return float(np.median(timeit.repeat(other, setup=one, number=1, repeat=turns)))


@pytest.fixture
def code() -> LinearCode:
    return LetccParams().build(8)


@pytest.fixture
def report(benchmark, capsys) -> Callable[..., None]:
    """Print one line, and keep its figures with the benchmark's own."""

    def line(text: str, **figures: float) -> None:
        benchmark.extra_info.update(figures)
        with capsys.disabled():
            print(f"\n{text.format(**figures)}")

    return line


def test_bench_encode(benchmark, code: LinearCode, report) -> None:
    queries = images(8)[None]
    payloads = benchmark(code.encode, queries)
    np.testing.assert_allclose(payloads.mean(), queries.mean(), atol=0.1)
    if benchmark.enabled:
        source = np.ones(queries.size + payloads.size, np.float32)
        target = np.empty_like(source)
        copy = best_of(lambda: np.copyto(target, source), 50)
        report(
            "encode 8->12 of 3x224x224: {ratio:.2f} copies of the bytes", ratio=benchmark.stats["min"] / copy
        )


@pytest.mark.parametrize("groups", [1, 8])
def test_bench_decode_with_a_cached_matrix(benchmark, code: LinearCode, report, groups: int) -> None:
    outputs = arrivals(groups)
    decoded = benchmark(code.decode, outputs)
    alpha, tasks = code_points("equispaced", 8, 12)
    beta = tasks[list(SURVIVORS)]
    one_group = np.stack([outputs[task][0] for task in SURVIVORS])

    def refit() -> np.ndarray:
        return make_smoothing_spline(beta, one_group, lam=1e-6)(alpha)

    np.testing.assert_allclose(decoded.outputs[:, 0], refit(), atol=1e-4)
    if benchmark.enabled:
        ours, scipys = in_turns(lambda: code.decode(outputs), refit, 300)
        more, _ = in_turns(lambda: code.decode(outputs).error, refit, 300)
        report(
            "decode 10->8 of 1,000 outputs, {groups} group(s) at once: {microseconds:.0f} us per group, "
            "{estimated:.0f} with error estimates; scipy's fit takes {ratio:.0f} times as long",
            groups=groups,
            microseconds=1e6 * ours / groups,
            estimated=1e6 * more / groups,
            ratio=scipys / (ours / groups),
        )


def test_bench_decode_at_a_cache_miss(benchmark, code: LinearCode, report) -> None:
    outputs = arrivals(1)

    def decode_afresh() -> None:
        code._decoder.cache_clear()
        code.decode(outputs)

    def estimate_afresh() -> None:
        code._decoder.cache_clear()
        _ = code.decode(outputs).error

    benchmark(decode_afresh)
    if benchmark.enabled:
        report(
            "decode at a cache miss: {microseconds:.0f} us, {estimated:.0f} with error estimates",
            microseconds=1e6 * benchmark.stats["min"],
            estimated=1e6 * best_of(estimate_afresh, 500),
        )


def test_bench_order(benchmark, code: LinearCode, report) -> None:
    rows = images(8)
    order = benchmark(nearest_order, rows)
    assert sorted(order.tolist()) == list(range(8))
    if benchmark.enabled:
        ordering, encoding = in_turns(lambda: nearest_order(rows), lambda: code.encode(rows[None]), 50)
        report(
            "order 8 rows of 3x224x224: {microseconds:.0f} us, {percent:.1f} % of encoding them; "
            "right after encoding others, with cold caches, {cold_percent:.1f} %",
            microseconds=1e6 * ordering,
            percent=100 * ordering / encoding,
            cold_percent=100
            * after(lambda: code.encode(rows[None]), lambda: nearest_order(rows), 50)
            / encoding,
        )
