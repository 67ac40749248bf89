"""Codes and what they compete with, at the same settings, on the same groups and the same stragglers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding.scheme import Scheme
from models.datasets import EvaluationSlice
from models.experiments.groups import CodeSetting, Draw, draw_groups
from models.experiments.measure import (
    Floats,
    Predict,
    Queries,
    Score,
    Variant,
    ask,
    coded_logits,
    decoded_answers,
    lost_to_stragglers,
    order_groups,
)

Row = dict[str, Any]

PAPER_VARIANTS = (Variant("berrut"), Variant("berrut", logits=True, nodes="approxifer"), Variant("letcc"))
"""BACC, ApproxIFER (points of its own; it decodes logits) and LeTCC, each as published."""
OUR_VARIANTS = (
    Variant("letcc", logits=True),
    Variant("letcc", ordered=True),
    Variant("letcc", logits=True, ordered=True),
    Variant("letcc", logits=True, ordered=True, nodes="equispaced"),
)
SYSTEMATIC = Variant("letcc", logits=True, ordered=True, nodes="equispaced", systematic=True)
ADAPTED = Variant("letcc", logits=True, ordered=True, nodes="equispaced", adapted=True)
"""What the networks that ship were fine-tuned for."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is measured on what.

    Attributes:
        model: the model.source string.
        predict: the model itself.
        data: labelled rows.
        groups: random groups per setting, G.
        seed: seed of groups and straggler sets.
        settings: the points (K, N, S).
        variants: the codes and levers.
        adapted: the model fine-tuned for a code of K and N, by (K, N). Adapted variants are left out elsewhere.
    """

    model: str
    predict: Predict
    data: EvaluationSlice
    groups: int
    seed: int
    settings: Sequence[CodeSetting]
    variants: Sequence[Variant]
    adapted: Mapping[tuple[int, int], Predict] = field(default_factory=dict)

    def variants_at(self, setting: CodeSetting) -> list[Variant]:
        """The variants that can be measured at a setting."""
        has_adapted = (setting.k, setting.n) in self.adapted
        return [variant for variant in self.variants if has_adapted or not variant.adapted]

    @property
    def steps(self) -> int:
        """Model calls on coded rows that `compare` will make: what its progress counts."""
        return self.groups * sum(
            setting.n * len({_encoding(variant) for variant in self.variants_at(setting)})
            for setting in self.settings
        )


def compare(experiment: Experiment, advance: Callable[[int], None] = lambda _: None) -> list[Row]:
    """Measure every variant at every setting, and the same N replicas without a code.

    Schemes without a code: `replication` with N / K copies of each query, of which those whose copies are all among
    the stragglers are lost; `hedged`, which sends a lost query once more, is exact and late; `default`, one copy each,
    which answers a lost query with equal probabilities and is right once in C times.

    Args:
        experiment: what to measure.
        advance: told the number of model calls done, batch by batch.

    Returns:
        Rows with model, dataset, scheme, variant, k, n, s, groups, mse, accuracy and the rest of `score_row`.
    """
    queries = ask(experiment.data.images, experiment.data.labels, experiment.predict)
    return [row for setting in experiment.settings for row in _rows(experiment, setting, queries, advance)]


def _rows(
    experiment: Experiment, setting: CodeSetting, queries: Queries, advance: Callable[[int], None]
) -> Iterator[Row]:
    images = experiment.data.images
    draw = draw_groups(setting, rows=len(images), groups=experiment.groups, seed=experiment.seed)
    for scheme, variant, score in uncoded_scores(queries, setting, draw):
        yield score_row(experiment, setting, scheme, variant, score)
    replies = _Replies(experiment, setting, draw, advance)
    for coded in experiment.variants_at(setting):
        code, groups, logits = replies.to(coded)
        answers = decoded_answers(coded, code, logits, draw.survivors)
        yield score_row(experiment, setting, coded.scheme, coded.name, queries.score(answers, groups))


def uncoded_scores(queries: Queries, setting: CodeSetting, draw: Draw) -> Iterator[tuple[str, str, Score]]:
    """Scheme, variant and score of what N replicas do without a code (see `compare`)."""
    exact = queries.probabilities[draw.groups]
    lost = lost_to_stragglers(setting, draw.survivors)
    yield "replication", "copies", queries.score(exact, draw.groups, lost)
    yield "hedged", "resend", queries.score(exact, draw.groups)
    alone = lost_to_stragglers(setting, draw.survivors, copies=False)
    yield "default", "one copy", queries.score(exact, draw.groups, alone, guess=True)


def _encoding(variant: Variant) -> Variant:
    """What the replicas' answers depend on: all but the domain in which they are decoded."""
    return replace(variant, logits=False)


class _Replies:
    """The replicas' answers to each code and order: asked for once, used by every variant that shares them."""

    def __init__(
        self, experiment: Experiment, setting: CodeSetting, draw: Draw, advance: Callable[[int], None]
    ) -> None:
        self._experiment = experiment
        self._setting = setting
        self._advance = advance
        images = experiment.data.images
        self._groups = {False: draw.groups, True: order_groups(images, draw.groups)}
        self._known: dict[Variant, Floats] = {}

    def to(self, variant: Variant) -> tuple[Scheme, NDArray[np.intp], Floats]:
        """The code, the groups in the order in which they were encoded, and the logits (N, G, C)."""
        experiment, setting = self._experiment, self._setting
        code = variant.code(setting)
        groups = self._groups[variant.ordered]
        key = _encoding(variant)
        if key not in self._known:
            self._known[key] = coded_logits(
                code,
                experiment.data.images,
                groups,
                experiment.adapted[setting.k, setting.n] if variant.adapted else experiment.predict,
                lambda done: self._advance(done * setting.n),
            )
        return code, groups, self._known[key]


def score_row(experiment: Experiment, setting: CodeSetting, scheme: str, variant: str, score: Score) -> Row:
    """One row of a result, with the keys that every accuracy row has."""
    return {
        "model": experiment.model,
        "dataset": experiment.data.name,
        "scheme": scheme,
        "variant": variant,
        "k": setting.k,
        "n": setting.n,
        "s": setting.s,
        "groups": experiment.groups,
        "mse": score.mse,
        "mse_sd": score.mse_sd,
        "accuracy": score.accuracy,
        "base_accuracy": score.base_accuracy,
        "rel_accuracy": score.accuracy / score.base_accuracy,
        "rel_accuracy_sd": score.accuracy_sd / score.base_accuracy,
    }


def comparison_settings(experiment: Experiment) -> dict[str, Any]:
    """The settings that a result records."""
    return {
        "groups": experiment.groups,
        "points": [asdict(setting) for setting in experiment.settings],
    }
