"""Wrong arrivals are left out, each group's own, and honest ones are not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding import wrong
from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from coding.linear_code import LinearCode
from coding.linear_params import LinearParams
from coding.nodes import task_places

KINDS = [LetccParams, BerrutParams]
SIZES = [(4, 12, 10, 2), (8, 12, 10, 1), (8, 16, 14, 3), (12, 20, 18, 3), (2, 8, 6, 2)]
"""K, N, wait_for and max_wrong."""

Arrivals = dict[int, np.ndarray]


def code_of(kind: type[LinearParams], size: tuple[int, int, int, int], **changes: object) -> LinearCode:
    k, n, wait_for, most = size
    return kind(k=k, n=n, wait_for=wait_for, **({"max_wrong": most} | changes)).build(k)


def honest(code: LinearCode, groups: int, seed: int) -> Arrivals:
    """A linear model's answers to queries of which neighbours are alike, from `wait_for` random replicas."""
    random = np.random.default_rng(seed)
    steps = random.normal(size=(groups, code.k, 20))
    queries = steps + np.roll(steps, 1, axis=1)
    answers = code.encode(queries) @ random.normal(size=(20, 10))
    arrived = random.choice(code.size.n, code.size.wait_for, replace=False)
    return {int(task): answers[task] for task in arrived}


def with_noise(arrivals: Arrivals, group: int, tasks: list[int], sigma: float, seed: int = 0) -> Arrivals:
    random = np.random.default_rng(seed)
    spoilt = {task: arrival.copy() for task, arrival in arrivals.items()}
    for task in tasks:
        spoilt[task][group] += sigma * random.normal(size=arrivals[task].shape[1:])
    return spoilt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_linear_model_that_is_honest_loses_next_to_nothing(kind, size) -> None:
    code = code_of(kind, size)
    found = [bool(tasks) for seed in range(20) for tasks in code.decode(honest(code, 20, seed)).wrong]
    assert len(found) == 400
    assert np.mean(found) <= 0.03


@pytest.mark.parametrize("kind", KINDS)
@given(st.sampled_from(SIZES), st.integers(0, 2**32), st.data())
@settings(deadline=None, max_examples=40)
def test_gross_errors_have_no_part_in_the_answers(kind, size, seed: int, data: st.DataObject) -> None:
    code = code_of(kind, size)
    arrivals = honest(code, 1, seed)
    bad = data.draw(st.sets(st.sampled_from(sorted(arrivals)), min_size=1, max_size=size[3]))
    spoilt = with_noise(arrivals, 0, sorted(bad), 3000.0, seed)
    decoded = code.decode(spoilt)
    (found,) = decoded.wrong
    assert bad <= found
    assert len(found) <= size[3]
    rest = {task: arrival for task, arrival in arrivals.items() if task not in found}
    believing = code_of(kind, size, max_wrong=0, floor=1)
    np.testing.assert_array_equal(decoded.outputs, believing.decode(rest).outputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_next_to_no_honest_arrival_is_left_out_with_the_wrong_ones(kind, size) -> None:
    code, too_many = code_of(kind, size), 0
    for seed in range(100):
        arrivals = honest(code, 1, seed)
        bad = sorted(arrivals)[seed % 4 : seed % 4 + size[3]]
        too_many += code.decode(with_noise(arrivals, 0, bad, 3000.0, seed)).wrong != (frozenset(bad),)
    assert too_many <= 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_where_nothing_is_found_the_answers_are_those_of_a_code_that_believes_everybody(kind, size) -> None:
    looking, believing = code_of(kind, size), code_of(kind, size, max_wrong=0)
    arrivals = {task: arrival.astype(np.float32) for task, arrival in honest(looking, 1, 0).items()}
    one, other = looking.decode(arrivals), believing.decode(arrivals)
    assert (one.wrong, other.wrong) == ((frozenset(),), ())
    np.testing.assert_array_equal(one.outputs, other.outputs)
    np.testing.assert_array_equal(one.error, other.error)


def test_groups_that_share_their_arrivals_lose_each_their_own() -> None:
    code = code_of(LetccParams, (4, 12, 10, 2))
    arrivals = honest(code, 5, 0)
    first, second, third = sorted(arrivals)[2:5]
    bad: list[list[int]] = [[], [first], [second, third], [], [first]]
    for group, tasks in enumerate(bad):
        arrivals = with_noise(arrivals, group, tasks, 3000.0, group)
    decoded = code.decode(arrivals)
    assert decoded.wrong == tuple(map(frozenset, bad))
    for group in range(5):
        alone = code.decode({task: arrival[[group]] for task, arrival in arrivals.items()})
        assert alone.wrong == (frozenset(bad[group]),)
        np.testing.assert_allclose(decoded.outputs[:, group], alone.outputs[:, 0], rtol=1e-12)
        np.testing.assert_allclose(decoded.error[:, group], alone.error[:, 0], rtol=1e-9)


@given(st.integers(0, 2**32), st.floats(1e-30, 1e30), st.floats(-1e3, 1e3))
@settings(deadline=None, max_examples=30)
def test_units_and_what_logits_have_in_common_do_not_matter(seed: int, scale: float, shift: float) -> None:
    code = code_of(LetccParams, (8, 16, 14, 3))
    arrivals = honest(code, 1, seed)
    spoilt = with_noise(arrivals, 0, sorted(arrivals)[3:5], 30.0, seed)
    found = code.decode(spoilt).wrong
    assert code.decode({task: scale * arrival for task, arrival in spoilt.items()}).wrong == found
    assert code.decode({task: arrival + shift * task for task, arrival in spoilt.items()}).wrong == found


def test_outputs_that_are_no_logits_may_be_wrong_in_all_alike() -> None:
    arrivals = {task: np.full((1, 3), 5.0) for task in range(10)}
    arrivals[4] = arrivals[4] + 100
    as_is = code_of(LetccParams, (4, 12, 10, 2), output_domain="as_is")
    assert as_is.decode(arrivals).wrong == (frozenset({4}),)
    assert code_of(LetccParams, (4, 12, 10, 2)).decode(arrivals).wrong == (frozenset(),)


def test_in_a_group_of_one_the_majority_is_right() -> None:
    lone = LetccParams(k=4, n=12, wait_for=10, max_wrong=2).build(1)
    assert not lone.answerable(frozenset(range(4)))
    assert lone.answerable(frozenset(range(5)))
    answer = np.random.default_rng(0).normal(size=(1, 10)).astype(np.float32)
    arrivals = {task: answer * np.float32(1 + 1e-6 * task) for task in range(5)}
    assert lone.decode(arrivals).wrong == (frozenset(),)
    decoded = lone.decode(arrivals | {0: -answer, 3: answer + answer[:, ::-1]})
    assert decoded.wrong == (frozenset({0, 3}),)
    np.testing.assert_array_equal(decoded.outputs[0], arrivals[1])


@pytest.mark.parametrize(("arrived", "most"), [(10, 2), (7, 1), (5, 0)])
def test_from_fewer_arrivals_fewer_are_left_out(arrived: int, most: int) -> None:
    code = code_of(LetccParams, (4, 12, 10, 2))
    arrivals = honest(code, 1, 0)
    some = {task: arrivals[task] for task in sorted(arrivals)[:arrived]}
    decoded = code.decode(with_noise(some, 0, sorted(some)[1:4:2], 3000.0))
    if most:
        assert len(decoded.wrong[0]) <= most
    else:
        assert decoded.wrong == ()


def test_arrivals_that_are_not_finite_are_left_alone() -> None:
    code = code_of(LetccParams, (4, 12, 10, 2))
    arrivals = with_noise(honest(code, 2, 0), 1, [], 0.0)
    bad = sorted(arrivals)[1]
    arrivals[bad][0] = np.inf
    arrivals = with_noise(arrivals, 1, [bad], 3000.0)
    with np.errstate(invalid="ignore"):
        assert code.decode(arrivals).wrong == (frozenset(), frozenset({bad}))


@pytest.mark.parametrize("outputs", [0.0, 1.0])
def test_arrivals_that_agree_are_all_right(outputs: float) -> None:
    for size in SIZES:
        code = code_of(LetccParams, size, output_domain="as_is")
        decoded = code.decode(dict.fromkeys(range(size[2]), np.full((1, 3), outputs, np.float32)))
        assert decoded.wrong == (frozenset(),)


def test_growing_sets_find_gross_errors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong, "MOST_SETS", 0)
    finder = LetccParams(k=8, n=16, wait_for=14, max_wrong=3)
    size = finder.size
    code = LetccParams(k=8, n=16, wait_for=14).build(8)
    nodes = np.cos(np.pi * np.arange(16)[::-1] / 15)
    looking = finder.wrong_arrivals(size, code._encoding, nodes)
    assert looking is not None
    agreed = 0
    for seed in range(20):
        arrivals = honest(code, 1, seed)
        tasks = tuple(sorted(arrivals))
        bad = list(tasks[seed % 8 : seed % 8 + 6 : 2])
        spoilt = with_noise(arrivals, 0, bad, 3000.0, seed)
        agreed += looking.find(tasks, np.stack([spoilt[task] for task in tasks])) == (frozenset(bad),)
    assert agreed >= 18


def test_the_covariance_is_positive_definite_for_every_code() -> None:
    for kind in KINDS:
        for k in range(1, 13):
            for n in (k, k + 1, 2 * k, 3 * k + 1):
                code = kind(k=k, n=n, wait_for=n).build(k)
                for nodes in ("chebyshev", "equispaced"):
                    places = task_places(nodes, k, n)
                    assert np.linalg.eigvalsh(wrong.covariance(code._encoding, places)).min() > 0
