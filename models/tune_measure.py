"""How far coded answers are from a model's own, group by group, on unlabelled rows: what `models.tune` compares by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coding.letcc import LetccParams
from coding.output_domain import OutputDomain, OutputDomainName
from models.adapt import decoding_matrix
from models.adapt_material import CodeParams
from models.errors import TuningError
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import Floats, Predict, order_groups
from models.output_kind import are_probabilities

_BATCH_ROWS = 500
_BATCH_BYTES = 64 * 1024 * 1024
_ROUNDING = 1e-10
"""Share of an answer's squared length below which a squared distance is single precision's, and counts as 0."""
_NOT_FINITE = 1e30
"""Stands for the squared distance of an answer that is not finite: large, and still fit for a mean."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One choice of parameters, measured on a bench.

    Attributes:
        distances: shape (G,), per group the mean over its queries of the squared L2 distance between the answer that
            the client gets and the one that the uncoded model would have given.
        agreement: share of the answers whose largest element is the uncoded model's.
    """

    distances: NDArray[np.float64]
    agreement: float

    @property
    def mse(self) -> float:
        """The mean distance over the groups."""
        return float(self.distances.mean())

    def gain_over(self, other: Measured) -> Gain:
        """How much closer this is than another choice on the same groups."""
        closer = other.distances - self.distances
        return Gain(float(closer.mean()), float(closer.std(ddof=1) / math.sqrt(closer.size)))


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired difference: mean over the groups of how much the squared distance fell, and its standard error.

    Groups may share rows, so that the standard error is a little smaller than it should be.
    """

    mean: float
    standard_error: float

    def exceeds(self, errors: float) -> bool:
        """Whether the mean is positive, and more than so many standard errors."""
        return self.mean > max(0.0, errors * self.standard_error)


@dataclass(frozen=True, slots=True)
class Domains:
    """What a model answers, as far as its outputs tell.

    Attributes:
        target: the domain that turns the uncoded outputs into what the client should get.
        candidates: the output domains under which a client gets just that from uncoded outputs.
    """

    target: OutputDomain
    candidates: tuple[OutputDomainName, ...]


def domains_of(outputs: Floats, configured: OutputDomainName) -> Domains:
    """Read the possible output domains off uncoded outputs.

    Rows that are probabilities can be decoded as their logarithms or as they are; either way the client gets
    probabilities. Softmax on top of them would be a mistake in the configuration, and is not among the candidates.
    Other outputs are what the configuration says: `as_is`, or else logits.

    Args:
        outputs: shape (rows, ..., classes).
        configured: `scheme.output_domain`.

    Raises:
        TuningError: the configuration promises scores of classes, and there are fewer than two.
    """
    classes = outputs.shape[-1] if outputs.ndim > 1 else 1
    if are_probabilities(outputs):
        return Domains(OutputDomain.AS_IS, ("probabilities", "as_is"))
    if configured == "as_is":
        return Domains(OutputDomain.AS_IS, ("as_is",))
    if classes < 2:
        raise TuningError(
            f"scheme.output_domain {configured} needs scores of at least 2 classes, but the model answers rows of "
            f"shape {list(outputs.shape[1:])}; set scheme.output_domain: as_is"
        )
    return Domains(OutputDomain.LOGITS, ("logits",))


class Bench:
    """Groups of rows, who answers each, and what the uncoded model says: every choice is measured on the same.

    A group's stragglers are drawn once, N - wait_for of its N tasks. Only the others' payloads reach the model.
    """

    def __init__(
        self,
        predict: Predict,
        inputs: Floats,
        params: CodeParams,
        *,
        groups: int,
        seed: int,
        advance: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Draw the groups and ask the uncoded model.

        Args:
            predict: the model.
            inputs: shape (rows, ...), float32; at least K rows.
            params: its k, n, wait_for and order count here.
            groups: G, at least 2.
            seed: seed of groups and straggler sets.
            advance: told the number of coded rows that the model has answered, batch by batch.

        Raises:
            TuningError: the uncoded model's answers are not finite, so that nothing can be close to them.
        """
        self._predict = predict
        self._inputs = inputs
        self._advance = advance
        setting = CodeSetting(params.k, params.n, params.n - params.wait_for)
        draw = draw_groups(setting, rows=len(inputs), groups=groups, seed=seed)
        self._groups = order_groups(inputs, draw.groups) if params.order == "nearest" else draw.groups
        self._survivors = draw.survivors
        used, where = np.unique(self._groups, return_inverse=True)
        self.uncoded: Floats = self._ask(inputs[used])
        """The uncoded model's outputs on the rows that are in any group, shape (used, ...)."""
        finite = np.isfinite(self.uncoded.reshape(len(used), -1)).all(axis=1)
        if not finite.all():
            raise TuningError(
                f"the model's own answers must be finite; {int((~finite).sum())} of {len(used)} to --inputs are not: "
                "look at the range of --inputs, and at the weights of model.source"
            )
        self._own = where.reshape(self._groups.shape)
        self._replies: tuple[CodeParams, Floats] | None = None
        self._matrices: dict[CodeParams, Floats] = {}

    @property
    def calls(self) -> int:
        """Coded rows that the model answers for one encoding."""
        return int(self._survivors.size)

    def measure(self, params: CodeParams, target: OutputDomain) -> Measured:
        """Encode, ask, decode and compare. Choices that encode alike should come one after the other.

        Args:
            params: what to measure; k, n, wait_for and order as in the constructor.
            target: turns the uncoded outputs into what the client should get.
        """
        domain = OutputDomain(params.output_domain)
        item = self.uncoded.shape[1:]
        with np.errstate(over="ignore", invalid="ignore"):
            expected = target.to_client(self.uncoded)[self._own]
            coded = domain.to_coding(self._replies_to(params))
            decoded = self._decoders(params) @ coded.reshape(*coded.shape[:2], math.prod(item))
            answers = domain.to_client(decoded.reshape(*self._groups.shape, *item))
            squares = np.square(answers - expected, dtype=np.float64).sum(axis=-1)
            squares[squares < _ROUNDING * np.square(expected).sum(axis=-1)] = 0.0
        distances = np.nan_to_num(
            squares.reshape(len(squares), -1).mean(axis=1), nan=_NOT_FINITE, posinf=_NOT_FINITE
        )
        agreement = float((answers.argmax(axis=-1) == expected.argmax(axis=-1)).mean())
        return Measured(distances, agreement)

    def _replies_to(self, params: CodeParams) -> Floats:
        """What arrives for each group, shape (G, N - S, ...); only the latest encoding's are kept."""
        encoding = encoding_of(params)
        if self._replies is None or self._replies[0] != encoding:
            self._replies = None  # lets go of the former ones before there are new ones
            self._replies = (encoding, self._ask_coded(encoding))
        return self._replies[1]

    def _ask_coded(self, encoding: CodeParams) -> Floats:
        code = encoding.build(encoding.k)
        replies = np.empty((*self._survivors.shape, *self.uncoded.shape[1:]), np.float32)
        step = max(1, self._batch_rows // self._survivors.shape[1])
        for at in range(0, len(replies), step):
            tasks = self._survivors[at : at + step]
            payloads = code.encode(self._inputs[self._groups[at : at + step]])
            arrivals = payloads[tasks, np.arange(len(tasks))[:, np.newaxis]]
            outputs = self._ask(arrivals.reshape(-1, *self._inputs.shape[1:]))
            replies[at : at + step] = outputs.reshape(*tasks.shape, *outputs.shape[1:])
            self._advance(tasks.size)
        return replies

    def _decoders(self, params: CodeParams) -> Floats:
        """Each group's D_F, shape (G, K, N - S). Building one costs more than using it, and many encodings share it."""
        decoding = decoding_of(params)
        if decoding not in self._matrices:
            code = decoding.build(decoding.k)
            sets, membership = np.unique(self._survivors, axis=0, return_inverse=True)
            matrices = np.stack([decoding_matrix(code, tuple(some.tolist())) for some in sets])
            self._matrices[decoding] = matrices.astype(np.float32)[membership.reshape(-1)]
        return self._matrices[decoding]

    @property
    def _batch_rows(self) -> int:
        """Rows that the model is asked at once: few where they are large."""
        return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, self._inputs[0].nbytes))))

    def _ask(self, rows: Floats) -> Floats:
        step = self._batch_rows
        return np.concatenate([self._predict(rows[at : at + step]) for at in range(0, len(rows), step)])


def encoding_of(params: CodeParams) -> CodeParams:
    """The same parameters with everything that only decoding reads brought to one value."""
    if isinstance(params, LetccParams):
        return replace(params, lambda_dec=0.0, output_domain="logits")
    return replace(params, output_domain="logits")


def decoding_of(params: CodeParams) -> CodeParams:
    """The same parameters with everything that the decode matrices do not depend on brought to one value."""
    if isinstance(params, LetccParams):
        return replace(params, lambda_enc=0.0, output_domain="logits")
    return replace(params, output_domain="logits")
