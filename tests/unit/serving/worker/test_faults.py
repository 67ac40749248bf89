"""Fault injection: reproducible draws with the promised distributions, and delays in the loop's time."""

import asyncio

import numpy as np
import pytest

from serving.config.faults import (
    BimodalDelay,
    ConstantDelay,
    ExponentialDelay,
    FaultSettings,
    InferenceTraceDelay,
    LognormalDelay,
    NoDelay,
    NoiseCorruption,
    ParetoDelay,
    SignFlipCorruption,
)
from serving.worker.faults import Fault, FaultInjector, InjectedError, draw

DRAWS = 4_000


def settings(**changes):
    return FaultSettings(enabled=True, **changes)


def delays_ms(delay, seed=0, replica=0):
    chosen = settings(delay=delay, seed=seed)
    return np.array([draw(chosen, replica, call).delay_s * 1000 for call in range(DRAWS)])


QUANTILES = [
    pytest.param(ConstantDelay(ms=7), {0.0: 7, 1.0: 7}, id="constant"),
    pytest.param(
        ExponentialDelay(mean_ms=20, shift_ms=5),
        {0.5: 5 + 20 * np.log(2), 0.9: 5 + 20 * np.log(10), 0.99: 5 + 20 * np.log(100)},
        id="exponential",
    ),
    pytest.param(
        LognormalDelay(median_ms=50, sigma=0.5),
        {0.1587: 50 * np.exp(-0.5), 0.5: 50, 0.8413: 50 * np.exp(0.5)},
        id="lognormal",
    ),
    pytest.param(
        ParetoDelay(minimum_ms=10, shape=2), {0.0: 10, 0.5: 10 * 2**0.5, 0.9: 10 * 10**0.5}, id="pareto"
    ),
    pytest.param(
        BimodalDelay(fast_ms=1, slow_ms=100, slow_share=0.1), {0.0: 1, 0.88: 1, 0.92: 100}, id="bimodal"
    ),
    # 2 % of the calls are slow, at about 706/139 of the median; the body's median sits at 49 % of all calls.
    pytest.param(
        InferenceTraceDelay(median_ms=50),
        {0.49: 50, 0.98 * 0.8413: 50 * np.exp(0.226), 0.99: 50 * 706 / 139, 0.97: 50 * np.exp(0.226 * 2.32)},
        id="inference-trace",
    ),
]


@pytest.mark.parametrize(("delay", "quantiles"), QUANTILES)
def test_delays_have_the_promised_quantiles(delay, quantiles):
    drawn = np.quantile(delays_ms(delay), list(quantiles))
    assert drawn == pytest.approx(list(quantiles.values()), rel=0.06)


def test_the_trace_has_a_slow_mode_apart_from_its_body():
    drawn = delays_ms(InferenceTraceDelay(median_ms=139))
    slow = drawn[drawn > 450]
    assert slow.size / DRAWS == pytest.approx(0.02, abs=0.005)
    assert slow.mean() == pytest.approx(706, rel=0.02)
    assert slow.std() == pytest.approx(40, rel=0.2)
    body = drawn[drawn <= 450]
    assert np.median(body) == pytest.approx(139, rel=0.02)
    assert np.log(body).std() == pytest.approx(0.226, rel=0.05)


def test_a_draw_depends_on_seed_replica_and_call_alone():
    chosen = settings(delay=LognormalDelay(median_ms=50, sigma=1), seed=3, error_share=0.5)
    forwards = [draw(chosen, 5, call) for call in range(100)]
    backwards = [draw(chosen, 5, call) for call in reversed(range(100))]
    assert forwards == backwards[::-1]


@pytest.mark.parametrize("other", [{"seed": 1}, {"replica": 1}])
def test_replicas_and_seeds_are_independent(other):
    delay = LognormalDelay(median_ms=50, sigma=1)
    pair = np.log([delays_ms(delay), delays_ms(delay, **other)])
    assert abs(np.corrcoef(pair)[0, 1]) < 0.05


def test_calls_are_independent():
    drawn = np.log(delays_ms(LognormalDelay(median_ms=50, sigma=1)))
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.05


def test_the_same_calls_fail_whatever_the_delays():
    slow, none = (
        [draw(settings(error_share=0.3, delay=delay), 2, call).error for call in range(DRAWS)]
        for delay in (ParetoDelay(minimum_ms=1, shape=1), NoDelay())
    )
    assert slow == none
    assert np.mean(slow) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    "spared",
    [
        FaultSettings(delay=ConstantDelay(ms=9), error_share=1),
        settings(delay=ConstantDelay(ms=9), error_share=1, replicas=(0, 1)),
    ],
    ids=["off", "another replica"],
)
def test_nothing_happens_where_faults_are_off(spared):
    assert draw(spared, 2, 0) == Fault(delay_s=0, error=False)


def test_noise_has_the_promised_size_and_is_the_same_for_the_same_call():
    noisy = settings(corruption=NoiseCorruption(sigma=3), seed=5)
    outputs = np.full((200, 10), 7, np.float32)
    first = draw(noisy, 2, 0).corrupted(outputs)
    assert first.dtype == np.float32
    assert (first - 7).std() == pytest.approx(3, rel=0.05)
    assert (first - 7).mean() == pytest.approx(0, abs=0.3)
    np.testing.assert_array_equal(draw(noisy, 2, 0).corrupted(outputs), first)
    for replica, call in ((1, 0), (2, 1)):
        assert (draw(noisy, replica, call).corrupted(outputs) != first).mean() > 0.9


def test_a_lie_changes_neither_delays_nor_errors():
    delay = LognormalDelay(median_ms=50, sigma=1)
    lying = [
        draw(settings(delay=delay, error_share=0.5, corruption=NoiseCorruption()), 0, j) for j in range(50)
    ]
    honest = [draw(settings(delay=delay, error_share=0.5), 0, j) for j in range(50)]
    assert [(f.delay_s, f.error) for f in lying] == [(f.delay_s, f.error) for f in honest]


def test_signs_flip_only_at_the_replicas_that_lie():
    lying = settings(corruption=SignFlipCorruption(), replicas=(1,))
    outputs = np.array([[1.0, -2.0]], np.float32)
    np.testing.assert_array_equal(draw(lying, 1, 0).corrupted(outputs), [[-1.0, 2.0]])
    assert draw(lying, 0, 0).corrupted(outputs) is outputs


@pytest.mark.looptime
async def test_delays_and_errors_happen_in_this_order(looptime):
    injector = FaultInjector(settings(delay=ConstantDelay(ms=250), error_share=1), replica=0)
    with pytest.raises(InjectedError):
        await injector.undergo(injector.next_fault())
    assert looptime == pytest.approx(0.25)


@pytest.mark.looptime
async def test_the_injector_follows_the_draws():
    chosen = settings(delay=LognormalDelay(median_ms=50, sigma=1), seed=8)
    injector = FaultInjector(chosen, replica=4)
    assert [injector.next_fault() for _ in range(5)] == [draw(chosen, 4, call) for call in range(5)]


async def test_new_settings_number_the_calls_anew():
    chosen = settings(delay=LognormalDelay(median_ms=50, sigma=1))
    injector = FaultInjector(chosen, replica=0)
    first = injector.next_fault()
    injector.replace(chosen)
    assert injector.next_fault() == first


@pytest.mark.looptime
async def test_stop_holds_calls_until_it_is_off(looptime):
    injector = FaultInjector(settings(stop=True), replica=0)
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(injector.undergo(injector.next_fault()))
        await asyncio.sleep(3600)
        assert not held.done()
        injector.replace(settings())
        await held
    assert looptime == pytest.approx(3600)


@pytest.mark.looptime
async def test_stop_spares_the_other_replicas(looptime):
    injector = FaultInjector(settings(stop=True, replicas=(1,)), replica=0)
    await injector.undergo(injector.next_fault())
    assert looptime == 0
