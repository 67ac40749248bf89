"""How close coded answers come to the uncoded model's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from coding.nodes import BerrutNodesName, SplineNodesName
from coding.ordering import nearest_order
from coding.output_domain import softmax
from coding.scheme import Scheme
from models.experiments.groups import CodeSetting

Floats: TypeAlias = NDArray[np.float32]
Predict: TypeAlias = Callable[[Floats], Floats]
"""From rows (b, ...) to logits (b, C)."""

_BATCH_ROWS = 500


@dataclass(frozen=True, slots=True)
class Variant:
    """A code and the levers that are pulled.

    Attributes:
        scheme: "berrut" or "letcc".
        logits: decode logits and apply softmax afterwards; else decode softmax outputs and leave them as they are.
        ordered: put similar queries next to each other.
        adapted: ask the model that was fine-tuned for the code.
        nodes: where queries and tasks sit.
        systematic: send every query as it is too (LeTCC alone).
    """

    scheme: Literal["berrut", "letcc"]
    logits: bool = False
    ordered: bool = False
    adapted: bool = False
    nodes: BerrutNodesName = "chebyshev"
    systematic: bool = False

    @property
    def name(self) -> str:
        """`paper`, or the levers joined by a plus sign."""
        levers = (
            ("logits", self.logits),
            ("order", self.ordered),
            (self.nodes, self.nodes != "chebyshev"),
            ("systematic", self.systematic),
            ("adapted", self.adapted),
        )
        return "+".join(name for name, on in levers if on) or "paper"

    def code(self, setting: CodeSetting) -> Scheme:
        """The code itself, waiting for all but the stragglers."""
        wait_for = setting.n - setting.s
        if self.scheme == "berrut":
            return BerrutParams(k=setting.k, n=setting.n, wait_for=wait_for, nodes=self.nodes).build(
                setting.k
            )
        return LetccParams(
            k=setting.k,
            n=setting.n,
            wait_for=wait_for,
            nodes=cast("SplineNodesName", self.nodes),
            lambda_enc=setting.lambda_enc,
            lambda_dec=setting.lambda_dec,
            systematic=self.systematic,
        ).build(setting.k)


@dataclass(frozen=True, slots=True)
class Score:
    """Answers against the uncoded model's and against the labels.

    Attributes:
        mse: mean over the queries of the squared L2 distance to the uncoded model's softmax vector.
        mse_sd: standard deviation of the groups' own means.
        accuracy: share of the queries answered with the right label.
        accuracy_sd: standard deviation of the groups' own shares.
        base_accuracy: the accuracy of the uncoded model, on the same queries.
    """

    mse: float
    mse_sd: float
    accuracy: float
    accuracy_sd: float
    base_accuracy: float


@dataclass(frozen=True, slots=True)
class Queries:
    """What is asked, and what the uncoded model answers.

    Attributes:
        images: shape (n, ...), float32.
        labels: shape (n,), int64.
        probabilities: shape (n, C), the uncoded model's softmax outputs.
    """

    images: Floats
    labels: NDArray[np.int64]
    probabilities: Floats

    def score(
        self,
        answers: Floats,
        groups: NDArray[np.intp],
        lost: NDArray[np.bool_] | None = None,
        *,
        guess: bool = False,
    ) -> Score:
        """Compare answers with the uncoded model's.

        Args:
            answers: shape (G, K, C).
            groups: shape (G, K), the queries that were asked.
            lost: shape (G, K), queries without an answer.
            guess: whether lost queries count as answered with equal probabilities, and as right once in C times; else
                as a vector of zeros, and as wrong.
        """
        uncoded, labels = self.probabilities[groups], self.labels[groups]
        right = (answers.argmax(axis=-1) == labels).astype(np.float64)
        if lost is not None:
            chance = 1.0 / answers.shape[-1] if guess else 0.0
            answers = np.where(lost[..., np.newaxis], np.float32(chance), answers)
            right[lost] = chance
        squares = np.square(answers - uncoded).sum(axis=-1, dtype=np.float64).mean(axis=1)
        return Score(
            mse=float(squares.mean()),
            mse_sd=float(squares.std()),
            accuracy=float(right.mean()),
            accuracy_sd=float(right.mean(axis=1).std()),
            base_accuracy=float((uncoded.argmax(axis=-1) == labels).mean()),
        )


def ask(images: Floats, labels: NDArray[np.int64], predict: Predict) -> Queries:
    """Let the uncoded model answer every query."""
    batches = [predict(images[at : at + _BATCH_ROWS]) for at in range(0, len(images), _BATCH_ROWS)]
    return Queries(images, labels, softmax(np.concatenate(batches)))


def order_groups(images: Floats, groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """Put similar queries of every group, shape (G, K), next to each other."""
    return np.stack([group[nearest_order(images[group])] for group in groups])


def coded_logits(
    code: Scheme,
    images: Floats,
    groups: NDArray[np.intp],
    predict: Predict,
    advance: Callable[[int], None] = lambda _: None,
) -> Floats:
    """What the N replicas answer to the coded queries of G groups.

    Args:
        code: a code for groups of K.
        images: the queries.
        groups: shape (G, K), indices into `images`.
        predict: the model.
        advance: told the number of groups done, batch by batch.

    Returns:
        Logits, shape (N, G, C).
    """
    tasks = len(code.tasks)
    step = max(1, _BATCH_ROWS // tasks)
    parts = []
    for at in range(0, len(groups), step):
        some = groups[at : at + step]
        payloads = code.encode(images[some])
        answers = predict(payloads.reshape(-1, *images.shape[1:]))
        parts.append(answers.reshape(tasks, len(some), -1))
        advance(len(some))
    return np.concatenate(parts, axis=1)


def decode_groups(code: Scheme, outputs: Floats, survivors: NDArray[np.intp]) -> Floats:
    """Decode every group from its own survivors; groups that share them are decoded together.

    Args:
        code: the code that made the payloads.
        outputs: shape (N, G, C), the answers of all replicas.
        survivors: shape (G, N - S), whose answers may be used.

    Returns:
        Shape (G, K, C).
    """
    sets, membership = np.unique(survivors, axis=0, return_inverse=True)
    answers = np.empty((outputs.shape[1], code.k, outputs.shape[2]), outputs.dtype)
    for number, survivor_set in enumerate(sets):
        members = np.flatnonzero(membership.reshape(-1) == number)
        decoded = code.decode({int(task): outputs[task, members] for task in survivor_set})
        answers[members] = decoded.outputs.swapaxes(0, 1)
    return answers


def decoded_answers(variant: Variant, code: Scheme, logits: Floats, survivors: NDArray[np.intp]) -> Floats:
    """Decode in the variant's domain.

    Args:
        variant: says whether logits or softmax outputs are decoded.
        code: the code that made the payloads.
        logits: shape (N, G, C), from `coded_logits`.
        survivors: shape (G, N - S).

    Returns:
        Shape (G, K, C): probabilities after logits; sums of softmax outputs, which may leave [0, 1], otherwise.
    """
    if variant.logits:
        return softmax(decode_groups(code, logits, survivors))
    return decode_groups(code, softmax(logits), survivors)


def lost_to_stragglers(
    setting: CodeSetting, survivors: NDArray[np.intp], *, copies: bool = True
) -> NDArray[np.bool_]:
    """Which queries the same N replicas would have lost without a code.

    Replica n runs query n modulo K, so that every query has N / K copies, rounded up or down; it is lost when all of
    them straggle, and gets the model's own answer otherwise.

    Args:
        setting: K and N.
        survivors: shape (G, N - S).
        copies: whether the replicas beyond the first K run anything.

    Returns:
        Shape (G, K).
    """
    alive = np.zeros((len(survivors), setting.n), np.bool_)
    np.put_along_axis(alive, survivors, values=True, axis=1)
    first = alive[:, : setting.k].copy()
    if copies:
        for replica in range(setting.k, setting.n):
            first[:, replica % setting.k] |= alive[:, replica]
    return ~first
