"""The test for wrong arrivals on what it was set for: LeNet5's answers to coded digits."""

import numpy as np
import pytest

from coding.letcc import LetccParams
from coding.linear_code import LinearCode
from models.datasets import EvaluationSlice, load_slice
from models.experiments.measure import coded_logits, order_groups
from models.runner import ModelRunner

GROUPS = 200
PARAMS = LetccParams(k=4, n=12, wait_for=10, max_wrong=2)


@pytest.fixture(scope="module")
def digits() -> EvaluationSlice:
    return load_slice("mnist")


@pytest.fixture(scope="module")
def groups(digits: EvaluationSlice) -> np.ndarray:
    random = np.random.default_rng(0)
    drawn = np.stack([random.choice(len(digits.images), PARAMS.k, replace=False) for _ in range(GROUPS)])
    return order_groups(digits.images, drawn)


@pytest.fixture(scope="module")
def logits(digits: EvaluationSlice, groups: np.ndarray) -> np.ndarray:
    """Shape (N, G, C)."""
    runner = ModelRunner("builtin:lenet5-mnist")
    return coded_logits(PARAMS.build(PARAMS.k), digits.images, groups, runner.predict)


def decoded(logits: np.ndarray, labels: np.ndarray, code: LinearCode) -> tuple[float, list[frozenset[int]]]:
    """Accuracy, and what was left out of each group; two of the replicas are never heard of."""
    result = code.decode({task: logits[task] for task in range(12) if task not in (4, 9)})
    classes = result.outputs.argmax(axis=2).T
    return float((classes == labels).mean()), list(result.wrong)


def test_honest_groups_lose_no_accuracy_and_hardly_ever_an_arrival(digits, groups, logits) -> None:
    labels = digits.labels[groups]
    believing = LetccParams(k=4, n=12, wait_for=10).build(4)
    before, _ = decoded(logits, labels, believing)
    after, found = decoded(logits, labels, PARAMS.build(4))
    assert np.mean([bool(tasks) for tasks in found]) <= 0.025
    assert after >= before - 0.003


@pytest.mark.parametrize(("kind", "share", "accuracy"), [("noise", 0.82, 0.95), ("sign flip", 0.6, 0.88)])
def test_wrong_arrivals_are_found_and_accuracy_is_kept(
    digits, groups, logits, kind: str, share: float, accuracy: float
) -> None:
    random, spoilt = np.random.default_rng(1), logits.copy()
    bad = [frozenset(random.choice([0, 1, 2, 3, 5, 6, 7, 8, 10, 11], 2, replace=False)) for _ in groups]
    for group, tasks in enumerate(bad):
        for task in tasks:
            honest = logits[task, group]
            spoilt[task, group] = -honest if kind == "sign flip" else honest + random.normal(0, 10, 10)
    reached, found = decoded(spoilt, digits.labels[groups], PARAMS.build(4))
    assert np.mean([len(tasks & named) / 2 for tasks, named in zip(bad, found, strict=True)]) >= share
    assert reached >= accuracy
