"""The choice of lambda_dec for the experiments, on training digits, so that the evaluation slice stays unseen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import (
    LAMBDA_ENC,
    Variant,
    ask,
    coded_logits,
    decoded_answers,
    order_groups,
)
from models.experiments.quick import Experiment, score_row

CANDIDATES = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
TRAINING_ROWS = 4000
"""The first so many training digits are drawn from."""
VARIANTS = (Variant("letcc"), Variant("letcc", logits=True, ordered=True))


def steps(experiment: Experiment) -> int:
    """Model calls on coded rows that `run_lambdas` will make: what its progress counts."""
    return len(VARIANTS) * experiment.groups * sum(setting.n for setting in experiment.settings)


def run_lambdas(
    experiment: Experiment,
    candidates: Sequence[float] = CANDIDATES,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure LeTCC, as in the paper and with logits and order, over lambda_dec.

    Args:
        experiment: what to measure; its data should be digits that no result is reported on.
        candidates: values of lambda_dec, in the sum-of-squares convention.
        advance: told the number of model calls done, batch by batch.

    Returns:
        The result object; its rows are those of `run_quick` with `lambda_dec` beside them. The choice for a setting
        is the value with the least mse of variant `paper`: the baseline's interest, not ours.
    """
    rows = [row for setting in experiment.settings for row in _rows(experiment, setting, candidates, advance)]
    return {
        "name": "lambdas",
        "seed": experiment.seed,
        "settings": {
            "groups": experiment.groups,
            "lambda_enc": LAMBDA_ENC,
            "candidates": list(candidates),
            "points": [asdict(setting) for setting in experiment.settings],
        },
        "rows": rows,
    }


def _rows(
    experiment: Experiment, setting: CodeSetting, candidates: Sequence[float], advance: Callable[[int], None]
) -> list[dict[str, Any]]:
    images = experiment.data.images
    queries = ask(images, experiment.data.labels, experiment.predict)
    draw = draw_groups(setting, rows=len(images), groups=experiment.groups, seed=experiment.seed)
    rows = []
    for variant in VARIANTS:
        groups = order_groups(images, draw.groups) if variant.ordered else draw.groups
        logits = coded_logits(
            variant.code(setting), images, groups, experiment.predict, lambda done: advance(done * setting.n)
        )
        for lambda_dec in candidates:
            code = variant.code(replace(setting, lambda_dec=lambda_dec))
            score = queries.score(decoded_answers(variant, code, logits, draw.survivors), groups)
            row = score_row(experiment, setting, variant.scheme, variant.name, score)
            rows.append(row | {"lambda_dec": lambda_dec})
    return rows
