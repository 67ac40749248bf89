"""The coded queries themselves, as pictures: LeTCC's beside BACC's (LeTCC's Figure 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from models.datasets import EvaluationSlice
from models.experiments.comparison import Row
from models.experiments.figure import new_figure
from models.experiments.groups import CodeSetting, draw_groups
from models.experiments.measure import Floats, Variant, order_groups
from models.experiments.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTING = CodeSetting(k=8, n=12, s=0)
_VARIANTS = (
    ("BACC", Variant("berrut")),
    ("LeTCC", Variant("letcc")),
    ("LeTCC, ordered", Variant("letcc", ordered=True)),
)

COLUMNS = ("dataset", "scheme", "variant", "outside", "nearest", "weight")

_ABOUT = """One group of K = 8 test images, and the N = 12 coded queries that replicas get in its place. The
picture shows the first group; the table is over all. **outside** is the share of coded pixels beyond [0, 1] by more
than 1 %, **nearest** the root mean square difference of a coded query from the image nearest to it, over that
between two images of a group: 0 is an image of the group itself. **weight** is the mean over coded queries of the
summed absolute weights of the blend: 1 is an average, and what lies above is cancelled out again, which amplifies
whatever the network adds."""


@dataclass(frozen=True, slots=True)
class CodedPointsExperiment:
    """What is shown.

    Attributes:
        data: datasets whose images are encoded.
        groups: random groups, of which the first is drawn.
        seed: seed of the groups.
    """

    data: Sequence[EvaluationSlice]
    groups: int = 100
    seed: int = 0

    @property
    def steps(self) -> int:
        """Rows of the table."""
        return len(self.data) * len(_VARIANTS)


def run_coded_points(
    experiment: CodedPointsExperiment, advance: Callable[[int], None] = lambda _: None
) -> Report:
    """Encode, and describe the blends."""
    rows = []
    for data in experiment.data:
        for label, variant, groups in _encodings(experiment, data):
            rows.append(_row(data, label, variant, groups, experiment))
            advance(1)
    result = {
        "name": "coded-points",
        "seed": experiment.seed,
        "settings": {"groups": experiment.groups, "datasets": [data.name for data in experiment.data]},
        "rows": rows,
    }
    return Report(
        result, "what the replicas get to see", _ABOUT, COLUMNS, lambda _: draw_coded_points(experiment)
    )


def _encodings(
    experiment: CodedPointsExperiment, data: EvaluationSlice
) -> list[tuple[str, Variant, NDArray[np.intp]]]:
    groups = draw_groups(
        SETTING, rows=len(data.images), groups=experiment.groups, seed=experiment.seed
    ).groups
    ordered = order_groups(data.images, groups)
    return [(label, variant, ordered if variant.ordered else groups) for label, variant in _VARIANTS]


def _row(
    data: EvaluationSlice,
    label: str,
    variant: Variant,
    groups: NDArray[np.intp],
    experiment: CodedPointsExperiment,
) -> Row:
    code = variant.code(SETTING)
    images = data.images[groups]
    coded = code.encode(images)
    weights = code.encode(np.eye(SETTING.k)[np.newaxis])[:, 0]
    between = _distances(images, images.swapaxes(0, 1))
    off_diagonal = ~np.eye(SETTING.k, dtype=np.bool_)
    return {
        "dataset": data.name,
        "scheme": label,
        "variant": variant.name,
        "k": SETTING.k,
        "n": SETTING.n,
        "s": SETTING.s,
        "groups": experiment.groups,
        "outside": float(((coded < -0.01) | (coded > 1.01)).mean()),
        "nearest": float(_distances(images, coded).min(axis=2).mean() / between[:, off_diagonal].mean()),
        "weight": float(np.abs(weights).sum(axis=1).mean()),
    }


def _distances(images: Floats, points: Floats) -> NDArray[np.float64]:
    """Root mean square differences, shape (G, M, K), of points (M, G, ...) from images (G, K, ...)."""
    flat = images.reshape(*images.shape[:2], -1)
    return np.stack(
        [np.sqrt(np.square(flat - point.reshape(len(flat), 1, -1)).mean(axis=2)) for point in points], axis=1
    )


def draw_coded_points(experiment: CodedPointsExperiment) -> Figure:
    """For each dataset a row with the first group's images, and one with the coded queries of each code."""
    lines = [line for data in experiment.data for line in _lines(experiment, data)]
    figure, grid = new_figure(
        "Coded queries",
        "A group of K = 8 images and the N = 12 blends that replicas get instead, one each, from beta = -1 on the left "
        f"to +1 on the right; pixels beyond [0, 1] are clipped in print only. Seed {experiment.seed}.",
        rows=len(lines),
        columns=SETTING.n,
        width=12.0,
        height=0.9 + 1.08 * len(lines),
    )
    for axes_row, (label, pictures) in zip(grid, lines, strict=True):
        for number, axes in enumerate(axes_row):
            _show(axes, pictures[number] if number < len(pictures) else None)
        axes_row[0].set_ylabel(label, fontsize=9, rotation=0, ha="right", va="center")
    return figure


def _lines(experiment: CodedPointsExperiment, data: EvaluationSlice) -> list[tuple[str, Floats]]:
    encodings = _encodings(experiment, data)
    ordered = encodings[-1][2]
    lines = [
        (f"{data.name}:\nthe group", data.images[encodings[0][2][0]]),
        ("the group,\nordered", data.images[ordered[0]]),
    ]
    for label, variant, groups in encodings:
        lines.append((label, variant.code(SETTING).encode(data.images[groups[:1]])[:, 0]))
    return lines


def _show(axes: Axes, picture: Floats | None) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if picture is None:
        return
    pixels = np.clip(picture, 0, 1).transpose(1, 2, 0)
    axes.imshow(pixels if pixels.shape[2] == 3 else pixels[:, :, 0], cmap="gray", vmin=0, vmax=1)
