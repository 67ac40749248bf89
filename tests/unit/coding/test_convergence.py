"""The published rates: how the error falls as tasks are added."""

import numpy as np
import pytest

from coding.letcc import LetccParams

TASKS = np.array([16, 24, 32, 48, 64, 96])


def mean_squared_error(n: int, stragglers: int) -> float:
    """LeTCC on f(x) = x sin x over 20 random groups of 8, each without `stragglers` random tasks."""
    code = LetccParams(n=n, wait_for=n - stragglers, nodes="chebyshev", lambda_enc=0.0, lambda_dec=0.0).build(
        8
    )
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        queries = np.sort(rng.uniform(-3, 3, size=(1, 8, 1)), axis=1)
        payloads = code.encode(queries)
        outputs = payloads * np.sin(payloads)
        survivors = rng.choice(n, n - stragglers, replace=False)
        decoded = code.decode({int(task): outputs[task] for task in survivors})
        errors.append(((decoded.outputs[:, 0] - queries[0] * np.sin(queries[0])) ** 2).mean())
    return float(np.mean(errors))


@pytest.mark.parametrize("stragglers", [0, 1, 3])
def test_the_error_falls_at_least_with_the_third_power_of_n(stragglers: int) -> None:
    errors = [mean_squared_error(int(n), stragglers) for n in TASKS]
    slope = np.polyfit(np.log(TASKS), np.log(errors), 1)[0]
    assert slope <= -3


def test_the_error_grows_with_the_stragglers() -> None:
    errors = [mean_squared_error(32, stragglers) for stragglers in (0, 4, 8, 16)]
    assert errors == sorted(errors)
