"""LinearCode: a code whose encode and decode are matrices. Berrut, LeTCC and Lagrange are ways to build them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from coding.checks import require_floating, require_one_shape, require_slots
from coding.code_size import CodeSize
from coding.error_estimate import ErrorOperators
from coding.errors import BadParameter, NotDecodable
from coding.products import gram, multiply, product
from coding.scheme import Array, Decoded, TaskSpec
from coding.wrong import WrongArrivals

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CACHE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DecodeOperators:
    """How to read one set F of arrivals.

    Attributes:
        answers: D_F, shape (K, |F|): arrivals to answers. Rows sum to 1.
        error: how far the answers may be from the model's own.
    """

    answers: NDArray[np.float64]
    error: ErrorOperators


OperatorBuilder = Callable[[NDArray[np.intp]], DecodeOperators]
"""From the indices of the tasks that arrived, ascending, to the operators that read them."""


class LinearCode:
    """N payloads, each a weighted sum of the K queries; K answers, each a weighted sum of the arrivals.

    Implements `coding.scheme.Scheme`. All slots become answerable together: at `wait_for` arrivals, at the
    deadline at `floor`. The matrices are built in float64 and applied in the dtype of the data (float32 for
    half precision, which is rounded at the end).

    No set F of arrivals amplifies: the sum of absolute values in each row of D_F is at most (S + 2)^2 + ln N,
    S = N - |F|, for the matrices of LeTCC and Berrut, every lambda and every F, down to one arrival. This is observed
    over the points of `coding.nodes`, not proved; the worst F lack a run next to an end. `coding.lagrange` has a bound
    of its own.

    The error estimates (`coding.error_estimate`) come from a second such product of r rows, r <= |F|, and from
    the inner products between these; both are left until somebody asks. A group of one is exact: every payload
    is the query itself, the first arrival is the answer, and its error is 0.

    Where wrong arrivals are looked for (`coding.wrong`), each group is decoded from those of its arrivals that are
    not found wrong, so that groups which share their arrivals may be read by different matrices.
    """

    def __init__(
        self,
        size: CodeSize,
        encoding: Array,
        operators: OperatorBuilder,
        ranks: Sequence[int],
        wrong_arrivals: WrongArrivals | None = None,
    ) -> None:
        """Combine a code's numbers with its matrices.

        Args:
            size: K, N, wait_for and floor.
            encoding: E, shape (N, K): queries to payloads.
            operators: builds the decode operators of a set of arrivals; called once for each set that is
                not in the cache.
            ranks: how well a group can do without each task's arrival (`coding.need`).
            wrong_arrivals: finds arrivals to leave out; None believes them all.
        """
        self._size = size
        self._encoding = encoding
        self._operators = operators
        self._wrong_arrivals = wrong_arrivals
        slots = frozenset(range(size.k))
        self._slots = slots
        self._slot_order = tuple(range(size.k))
        exact = slots if size.k == 1 else frozenset[int]()
        self._tasks = tuple(
            TaskSpec(index, slots, rank=rank, exact=exact) for index, rank in enumerate(ranks)
        )
        self._indices = frozenset(range(size.n))
        bytes_each = 8 * size.n * (size.n + size.k + size.n * size.k)
        self._decoder = lru_cache(maxsize=max(16, _CACHE_BYTES // bytes_each))(self._build_decoder)

    @property
    def k(self) -> int:
        """Number of query slots in a group, K."""
        return self._size.k

    @property
    def size(self) -> CodeSize:
        """K, N, wait_for and floor."""
        return self._size

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """N tasks, each of which helps to answer every slot."""
        return self._tasks

    def encode(self, queries: Array) -> Array:
        """Turn g groups into payloads: payload n of a group is sum_k E[n, k] * query k.

        Args:
            queries: shape (g, K, ...), floating point.

        Returns:
            Shape (N, g, ...), in the dtype of `queries`, C-contiguous.

        Raises:
            BadShape: the second axis is not K.
            BadParameter: the queries are not floating point.
        """
        require_slots(queries, self.k)
        require_floating("queries", queries.dtype)
        groups, _, *item = queries.shape
        working = np.promote_types(queries.dtype, np.float32)
        columns = queries.astype(working, copy=False).reshape(groups, self.k, math.prod(item))
        payloads = np.empty((self._size.n, groups, columns.shape[2]), working)
        multiply(self._encoding.astype(working), columns, payloads.transpose(1, 0, 2))
        return payloads.reshape(self._size.n, groups, *item).astype(queries.dtype, copy=False)

    def answerable(self, arrived: Set[int], *, at_deadline: bool = False) -> frozenset[int]:
        """Every slot once enough tasks have arrived, none before."""
        needed = self._size.floor if at_deadline else self._size.wait_for
        return self._slots if len(self._indices & arrived) >= needed else frozenset()

    def decode(self, outputs: Mapping[int, Array], wanted: Set[int] | None = None) -> Decoded:  # noqa: ARG002
        """Answer all K slots: answer k is sum_v D_F[k, v] * arrival v, added up in index order.

        Args:
            outputs: task index to that task's arrival, each of shape (g, ...), floating point.
            wanted: of no use here: all slots cost as much as one.

        Returns:
            All slots, with outputs of shape (K, g, ...) and errors of shape (K, g), in the arrivals' dtype, and
            which arrivals of each group were found wrong.

        Raises:
            NotDecodable: fewer arrivals than the floor.
            BadShape: the arrivals differ in shape.
            BadParameter: an index is none of the tasks', or the arrivals are not floating point.
        """
        survivors = tuple(sorted(outputs))
        if len(survivors) < self._size.floor:
            raise NotDecodable(f"{len(survivors)} arrivals are fewer than the floor of {self._size.floor}")
        arrivals = [outputs[index] for index in survivors]
        shape = require_one_shape(arrivals)
        columns = _concatenated(arrivals).reshape(len(survivors), arrivals[0].size)
        if self._wrong_arrivals is None:
            return self._decode_all(survivors, columns, shape)
        groups = shape[0]
        values = columns.reshape(len(survivors), groups, math.prod(shape[1:]))
        require_floating("arrivals", values.dtype)
        wrong = self._wrong_arrivals.find(survivors, values)
        if not wrong:
            return self._decode_all(survivors, columns, shape)
        if len(set(wrong)) == 1:
            right = [row for row, task in enumerate(survivors) if task not in wrong[0]]
            believed = tuple(survivors[row] for row in right)
            return replace(self._decode_all(believed, columns[right], shape), wrong=wrong)
        return self._decode_apart(survivors, values, shape, wrong)

    def _decode_all(self, survivors: tuple[int, ...], columns: Array, shape: tuple[int, ...]) -> Decoded:
        """Decode groups from all of these arrivals, shape (|F|, g * width)."""
        decoder = self._decoder(survivors, columns.dtype)
        answers = decoder.answers(columns).reshape(self._size.k, *shape)
        return Decoded(self._slot_order, answers, partial(decoder.error, columns, shape[0]))

    def _decode_apart(
        self,
        survivors: tuple[int, ...],
        values: Array,
        shape: tuple[int, ...],
        wrong: tuple[frozenset[int], ...],
    ) -> Decoded:
        """Decode groups of which different arrivals are wrong, those with the same ones together.

        Args:
            survivors: the arrivals' tasks, ascending.
            values: shape (|F|, g, width).
            shape: (g, ...).
            wrong: which tasks to leave out, for each group.
        """
        answers = np.empty((self._size.k, *shape), values.dtype)
        parts: list[tuple[list[int], Decoded]] = []
        for dropped in sorted(set(wrong), key=sorted):
            members = [group for group, found in enumerate(wrong) if found == dropped]
            right = [row for row, task in enumerate(survivors) if task not in dropped]
            some = np.ascontiguousarray(values[np.ix_(right, members)]).reshape(len(right), -1)
            believed = tuple(survivors[row] for row in right)
            part = self._decode_all(believed, some, (len(members), *shape[1:]))
            answers[:, members] = part.outputs
            parts.append((members, part))
        return Decoded(self._slot_order, answers, partial(self._joined_errors, parts, shape[0]), wrong)

    def _joined_errors(self, parts: Sequence[tuple[list[int], Decoded]], groups: int) -> Array:
        """Errors of g groups, shape (K, g), from those of the parts that they were decoded in."""
        errors = np.empty((self._size.k, groups), parts[0][1].outputs.dtype)
        for members, part in parts:
            errors[:, members] = part.error
        return errors

    def _build_decoder(self, survivors: tuple[int, ...], dtype: np.dtype[np.floating]) -> _Decoder:
        require_floating("arrivals", dtype)
        for index in (survivors[0], survivors[-1]):
            if index not in self._indices:
                raise BadParameter(
                    f"outputs must be keyed by task indices 0 to {self._size.n - 1}, got {index}"
                )
        operators = _first_arrival(len(survivors)) if self.k == 1 else self._operators(np.array(survivors))
        working = np.promote_types(dtype, np.float32)
        return _Decoder(matrix=operators.answers.astype(working, order="F"), error_operators=operators.error)


@dataclass(frozen=True)
class _Decoder:
    """A set's operators, ready for arrivals of one dtype; half precision is computed in single.

    Attributes:
        matrix: D_F, shape (K, |F|), in column order, in which BLAS is a tenth quicker.
        error_operators: what tells the errors.
    """

    matrix: Array
    error_operators: ErrorOperators

    def answers(self, columns: Array) -> Array:
        """Read arrivals of g groups, shape (|F|, g * width).

        Returns:
            Shape (K, g * width), in the arrivals' dtype.
        """
        working = self.matrix.dtype
        if columns.dtype == working:
            return product(self.matrix, columns)
        return product(self.matrix, columns.astype(working)).astype(columns.dtype)

    def error(self, columns: Array, groups: int) -> Array:
        """Estimate the errors of what `answers` gives for arrivals of g groups.

        Returns:
            Shape (K, g), in the arrivals' dtype.
        """
        maps, forms = self._error_forms
        mapped = product(maps, columns.astype(maps.dtype, copy=False))
        r, width = mapped.shape
        if groups != 1:
            mapped = mapped.reshape(r, groups, width // max(1, groups)).swapaxes(0, 1)
        squares = forms.dot(gram(mapped).reshape(groups, r * r).T)
        error: Array = np.sqrt(np.abs(squares))  # rounding may leave a square just below 0
        return error.astype(columns.dtype, copy=False)

    @cached_property
    def _error_forms(self) -> tuple[Array, Array]:
        """The maps, shape (r, |F|), and the quadratic forms, shape (K, r * r), of what is mapped."""
        condensed = self.error_operators.condensed()
        working = self.matrix.dtype
        return condensed.maps.astype(working, order="F"), condensed.forms.astype(working)


def _concatenated(arrivals: Sequence[Array]) -> Array:
    """Arrivals of one shape, one after the other; to be read only."""
    dtype = arrivals[0].dtype
    if all([arrival.dtype is dtype for arrival in arrivals]):  # noqa: C419 (a list is quicker)
        # Half the time of numpy's own, which is a seventh of a decode; refused where memory has gaps.
        with suppress(TypeError, ValueError):
            joined: Array = np.frombuffer(b"".join(cast("Sequence[Buffer]", arrivals)), dtype)
            return joined
    return np.concatenate(arrivals)


def _first_arrival(arrivals: int) -> DecodeOperators:
    """Read a group of one: all arrivals are answers to the same query."""
    answers = np.zeros((1, arrivals))
    answers[0, 0] = 1.0
    error = ErrorOperators(probes=np.zeros((0, arrivals)), weights=np.zeros((1, 0)))
    return DecodeOperators(answers=answers, error=error)
