"""The laws that every scheme keeps, over random legal parameters of every registered kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding.berrut import BerrutParams
from coding.copies import HedgedParams, NoneParams, ReplicationParams
from coding.errors import BadParameter, BadShape, NotDecodable
from coding.lagrange import MOST_AMPLIFICATION, LagrangeParams
from coding.layered import LayeredParams
from coding.letcc import LetccParams
from coding.nodes import BERRUT_NODES, SPLINE_NODES
from coding.registry import PARAMS_BY_KIND, AnySchemeParams
from coding.scheme import Scheme

Lambda = st.just(0.0) | st.floats(1e-9, 1.0)


@st.composite
def code_numbers(draw: st.DrawFn) -> dict[str, int | None]:
    k = draw(st.integers(1, 9))
    n = draw(st.integers(k, k + 7))
    wait_for = draw(st.integers(1, n))
    floor = draw(st.none() | st.integers(1, wait_for))
    max_wrong = draw(st.integers(0, max(0, (wait_for - k) // 2)))
    return {"k": k, "n": n, "wait_for": wait_for, "floor": floor, "max_wrong": max_wrong}


PARAMS: dict[str, st.SearchStrategy[AnySchemeParams]] = {
    "none": st.just(NoneParams()),
    "replication": st.builds(ReplicationParams, copies=st.integers(1, 4)),
    "hedged": st.builds(HedgedParams, copies=st.integers(1, 4), delay_ms=st.floats(0, 1000)),
}
PARAMS |= {
    f"berrut {nodes}": code_numbers().map(lambda numbers, nodes=nodes: BerrutParams(nodes=nodes, **numbers))
    for nodes in BERRUT_NODES
}
PARAMS |= {
    f"letcc {nodes}": st.builds(
        lambda numbers, enc, dec, nodes=nodes: LetccParams(
            lambda_enc=enc, lambda_dec=dec, nodes=nodes, **numbers
        ),
        code_numbers(),
        Lambda,
        Lambda,
    )
    for nodes in SPLINE_NODES
}
PARAMS |= {
    f"letcc systematic {nodes}": st.builds(
        lambda numbers, enc, dec, nodes=nodes: LetccParams(
            lambda_enc=enc, lambda_dec=dec, nodes=nodes, systematic=True, **(numbers | {"max_wrong": 0})
        ),
        code_numbers(),
        Lambda,
        Lambda,
    )
    for nodes in SPLINE_NODES
}

PARAMS |= {
    f"layered {nodes}": st.builds(
        lambda numbers, enc, dec, nodes=nodes: LayeredParams(
            lambda_enc=enc, lambda_dec=dec, nodes=nodes, **(numbers | {"max_wrong": 0})
        ),
        code_numbers(),
        Lambda,
        Lambda,
    )
    for nodes in SPLINE_NODES
}


@st.composite
def lagrange_params(draw: st.DrawFn, *, systematic: bool) -> LagrangeParams:
    k, degree = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    spare = draw(st.integers(0, 3))
    n = max(k, degree * (k - 1) + 1 + spare)
    try:
        return LagrangeParams(k=k, n=n, degree=degree, systematic=systematic)
    except BadParameter:  # rounding errors would grow too much
        return LagrangeParams(k=min(k, 4), n=8, degree=min(degree, 2), systematic=systematic)


PARAMS |= {
    "lagrange": lagrange_params(systematic=False),
    "lagrange systematic": lagrange_params(systematic=True),
}


@dataclass(frozen=True)
class Case:
    """A scheme, a set of arrivals, and a source of numbers."""

    kind: str
    scheme: Scheme
    arrived: frozenset[int]
    rng: np.random.Generator

    @property
    def answers_at_deadline(self) -> bool:
        return bool(self.scheme.answerable(self.arrived, at_deadline=True))


@st.composite
def cases(draw: st.DrawFn, variant: str) -> Case:
    params = draw(PARAMS[variant])
    scheme = params.build(draw(st.integers(1, params.k)))
    arrived = draw(st.sets(st.integers(0, len(scheme.tasks) - 1)))
    return Case(params.kind, scheme, frozenset(arrived), np.random.default_rng(draw(st.integers(0, 2**32))))


def law(check: Callable[[Case], None]) -> Callable[[str], None]:
    """Check a law over every registered kind, and over all nodes of the linear codes."""

    @pytest.mark.parametrize("variant", sorted(PARAMS))
    def test(variant: str) -> None:
        settings(deadline=None, max_examples=25)(given(cases(variant))(check))()

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def decode_matrix(scheme: Scheme, arrived: frozenset[int]) -> np.ndarray:
    """D_F, read off a decode of unit vectors."""
    units = np.eye(len(arrived))
    outputs = {task: units[[row]] for row, task in enumerate(sorted(arrived))}
    return scheme.decode(outputs).outputs[:, 0]


def test_every_registered_kind_is_put_to_the_laws() -> None:
    assert {variant.split()[0] for variant in PARAMS} == PARAMS_BY_KIND.keys()


@law
def test_tasks_are_numbered_and_ranked_and_serve_slots_that_exist(case: Case) -> None:
    assert [task.index for task in case.scheme.tasks] == list(range(len(case.scheme.tasks)))
    assert sorted(task.rank for task in case.scheme.tasks) == list(range(len(case.scheme.tasks)))
    for task in case.scheme.tasks:
        assert task.serves
        assert task.serves <= set(range(case.scheme.k))
        assert task.delay_s >= 0


@law
def test_what_a_task_is_exact_for_is_its_arrival(case: Case) -> None:
    outputs = {task: case.rng.normal(size=(2, 3)) for task in case.arrived}
    for task in case.arrived:
        for slot in case.scheme.tasks[task].exact:
            assert slot in case.scheme.answerable({task}, at_deadline=True)
            decoded = case.scheme.decode({task: outputs[task]}, {slot})
            np.testing.assert_array_equal(decoded.outputs[decoded.slots.index(slot)], outputs[task])
            assert not decoded.error[decoded.slots.index(slot)].any()
            queries = case.rng.normal(size=(2, case.scheme.k, 3))
            np.testing.assert_array_equal(case.scheme.encode(queries)[task], queries[:, slot])


@law
def test_wanted_slots_are_the_same_alone(case: Case) -> None:
    if not case.answers_at_deadline:
        return
    outputs = {task: case.rng.normal(size=(2, 3)) for task in case.arrived}
    decoded = case.scheme.decode(outputs)
    for slot in case.scheme.answerable(case.arrived, at_deadline=True):
        alone = case.scheme.decode(outputs, {slot})
        np.testing.assert_array_equal(
            alone.outputs[alone.slots.index(slot)], decoded.outputs[decoded.slots.index(slot)]
        )


@law
def test_nothing_answers_from_nothing(case: Case) -> None:
    assert case.scheme.answerable(frozenset()) == frozenset()
    assert case.scheme.answerable(frozenset(), at_deadline=True) == frozenset()
    with pytest.raises(NotDecodable):
        case.scheme.decode({})


@law
def test_everything_answers_from_everything(case: Case) -> None:
    everything = frozenset(range(len(case.scheme.tasks)))
    assert case.scheme.answerable(everything) == set(range(case.scheme.k))


@law
def test_more_arrivals_never_answer_less(case: Case) -> None:
    for at_deadline in (False, True):
        full = case.scheme.answerable(case.arrived, at_deadline=at_deadline)
        for task in case.arrived:
            assert case.scheme.answerable(case.arrived - {task}, at_deadline=at_deadline) <= full


@law
def test_the_deadline_never_answers_less(case: Case) -> None:
    assert case.scheme.answerable(case.arrived) <= case.scheme.answerable(case.arrived, at_deadline=True)


@law
def test_decode_covers_what_is_answerable_at_the_deadline_and_refuses_the_rest(case: Case) -> None:
    outputs = {task: case.rng.normal(size=(2, 3)) for task in case.arrived}
    if not case.answers_at_deadline:
        with pytest.raises(NotDecodable):
            case.scheme.decode(outputs)
        return
    decoded = case.scheme.decode(outputs)
    assert set(decoded.slots) >= case.scheme.answerable(case.arrived, at_deadline=True)
    assert list(decoded.slots) == sorted(set(decoded.slots))
    assert decoded.outputs.shape == (len(decoded.slots), 2, 3)
    assert decoded.error.shape == (len(decoded.slots), 2)
    assert np.isfinite(decoded.error).all()
    assert (decoded.error >= 0).all()


@law
def test_decode_ignores_the_order_of_arrival_bit_for_bit(case: Case) -> None:
    if not case.answers_at_deadline:
        return
    outputs = {task: case.rng.normal(size=(2, 7)).astype(np.float32) for task in case.arrived}
    shuffled = {int(task): outputs[int(task)] for task in case.rng.permutation(sorted(case.arrived))}
    one, other = case.scheme.decode(outputs), case.scheme.decode(shuffled)
    assert one.slots == other.slots
    np.testing.assert_array_equal(one.outputs, other.outputs)
    np.testing.assert_array_equal(one.error, other.error)
    assert one.wrong == other.wrong


@law
def test_a_constant_group_through_the_identity_comes_back(case: Case) -> None:
    if not case.answers_at_deadline:
        return
    row = case.rng.normal(size=(3, 1, 5))
    payloads = case.scheme.encode(np.repeat(row, case.scheme.k, axis=1))
    decoded = case.scheme.decode({task: payloads[task] for task in case.arrived})
    for answer in decoded.outputs:
        np.testing.assert_allclose(answer, row[:, 0], rtol=0, atol=1e-10)
    if len(case.arrived) > 1:
        np.testing.assert_allclose(decoded.error, 0, atol=1e-8)


@law
def test_a_group_of_one_is_exact(case: Case) -> None:
    if case.scheme.k > 1:
        return
    row = case.rng.normal(size=(2, 1, 4)).astype(np.float32)
    payloads = case.scheme.encode(row)
    for task in range(len(case.scheme.tasks)):
        assert case.scheme.answerable({task}, at_deadline=True) == {0}
        np.testing.assert_array_equal(payloads[task], row[:, 0])
        decoded = case.scheme.decode({task: payloads[task]})
        np.testing.assert_array_equal(decoded.outputs, row.transpose(1, 0, 2))
        assert (decoded.error == 0).all()


@law
def test_encode_and_decode_never_change_their_inputs(case: Case) -> None:
    queries = case.rng.normal(size=(2, case.scheme.k, 3)).astype(np.float32)
    before = queries.copy()
    payloads = case.scheme.encode(queries)
    payloads += 1  # a worker may do this
    np.testing.assert_array_equal(queries, before)
    if case.answers_at_deadline:
        payloads.flags.writeable = False
        case.scheme.decode({task: payloads[task] for task in case.arrived})


@law
def test_dtype_and_item_shape_survive(case: Case) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        for item in ((), (3,), (2, 3, 4), (0,)):
            queries = case.rng.normal(size=(2, case.scheme.k, *item)).astype(dtype)
            payloads = case.scheme.encode(queries)
            assert payloads.shape == (len(case.scheme.tasks), 2, *item)
            assert payloads.dtype == dtype
            if case.answers_at_deadline:
                decoded = case.scheme.decode({task: payloads[task] for task in case.arrived})
                assert decoded.outputs.shape == (len(decoded.slots), 2, *item)
                assert decoded.outputs.dtype == dtype


@law
def test_groups_do_not_mix(case: Case) -> None:
    queries = case.rng.normal(size=(3, case.scheme.k, 4))
    together = case.scheme.encode(queries)
    for group in range(3):
        alone = case.scheme.encode(queries[[group]])
        np.testing.assert_allclose(together[:, group], alone[:, 0], rtol=1e-12, atol=1e-12)
    if case.answers_at_deadline:
        decoded = case.scheme.decode({task: together[task] for task in case.arrived})
        for group in range(3):
            alone = case.scheme.decode({task: together[task, [group]] for task in case.arrived})
            np.testing.assert_allclose(decoded.outputs[:, group], alone.outputs[:, 0], rtol=0, atol=1e-9)
            np.testing.assert_allclose(decoded.error[:, group], alone.error[:, 0], rtol=1e-6, atol=1e-9)


@law
def test_the_decode_matrix_stays_under_its_bound(case: Case) -> None:
    """What `coding.linear_code.LinearCode` documents for every set of arrivals, and `coding.lagrange` enforces."""
    if not case.answers_at_deadline:
        return
    matrix = decode_matrix(case.scheme, case.arrived)
    n = len(case.scheme.tasks)
    stragglers = n - len(case.arrived)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-9)
    bound = (stragglers + 2) ** 2 + math.log(n)
    if case.kind == "lagrange":
        bound = MOST_AMPLIFICATION
    assert np.abs(matrix).sum(axis=1).max() <= bound + 1e-9


@law
def test_wrong_shapes_are_refused(case: Case) -> None:
    with pytest.raises(BadShape, match=r"queries must have shape"):
        case.scheme.encode(np.zeros((2, case.scheme.k + 1, 3)))
    everything = {task.index: np.zeros((2, 3)) for task in case.scheme.tasks}
    if len(everything) > 1:
        with pytest.raises(BadShape, match=r"one shape"):
            case.scheme.decode(everything | {0: np.zeros((1, 3))})
    with pytest.raises(BadShape, match=r"\(g, \.\.\.\)"):
        case.scheme.decode({task.index: np.zeros(()) for task in case.scheme.tasks})
