"""What fine-tuning on coded groups brought: plain and decoded answers, before and after, on rows not trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

import numpy as np
import safetensors.torch
from torch import Tensor, nn

from coding.letcc import LetccParams
from models.adapt import AdaptRecipe, RoundLog
from models.adapt_material import CodeParams, Material
from models.experiments.comparison import Experiment, Row, compare, score_row
from models.experiments.groups import CodeSetting
from models.experiments.measure import Predict, Variant, ask
from models.experiments.report import Result, with_circumstances
from models.files import log_beside, write_whole
from models.runner import forward

GROUPS = 300
"""Random groups that are judged by."""


def adapt_result(
    material: Material,
    adapted: nn.Module,
    params: CodeParams,
    recipe: AdaptRecipe,
    logs: Sequence[RoundLog],
) -> Result:
    """Measure the original and the adapted model, plain and through the code.

    Returns:
        The result object; scheme `none` is plain answers, `base_accuracy` the original model's on plain rows.
    """
    setting = CodeSetting(
        params.k,
        params.n,
        params.n - params.wait_for,
        lambda_dec=params.lambda_dec if isinstance(params, LetccParams) else 0.0,
        lambda_enc=params.lambda_enc if isinstance(params, LetccParams) else 0.0,
    )
    ordered = params.order == "nearest"
    experiment = Experiment(
        material.source,
        predictor(material.module),
        material.judged,
        groups=GROUPS,
        seed=recipe.seed,
        settings=(setting,),
        variants=tuple(Variant(params.kind, True, ordered, after, params.nodes) for after in (False, True)),
        adapted={(params.k, params.n): predictor(adapted)},
    )
    result = {
        "name": "adapt",
        "seed": recipe.seed,
        "settings": {
            "recipe": asdict(recipe),
            "code": asdict(params),
            "rounds": [asdict(log) for log in logs],
        },
        "rows": [*_plain_rows(experiment, setting), *compare(experiment)],
    }
    return with_circumstances(result)


def _plain_rows(experiment: Experiment, setting: CodeSetting) -> list[Row]:
    data = experiment.data
    everything = np.arange(len(data.images))[:, np.newaxis]
    original = ask(data.images, data.labels, experiment.predict)
    adapted = ask(data.images, data.labels, experiment.adapted[setting.k, setting.n])
    return [
        score_row(
            experiment, setting, "none", variant, original.score(some.probabilities[everything], everything)
        )
        for variant, some in (("original", original), ("adapted", adapted))
    ]


def predictor(module: nn.Module) -> Predict:
    """A module as a function of arrays."""
    return lambda rows: cast("Tensor", forward(module, rows)).numpy()


def save(adapted: nn.Module, result: Result, weights: Path) -> None:
    """Write the weights, and the result beside them as `.log.json`."""
    tensors = {name: tensor.contiguous() for name, tensor in adapted.state_dict().items()}
    write_whole(weights, safetensors.torch.save(tensors))
    write_whole(log_beside(weights), (json.dumps(result, indent=1) + "\n").encode())
