"""What the experiments' pictures have in common."""

from __future__ import annotations

import textwrap
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from models.errors import BadOption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
"""The Okabe-Ito palette with grey for its yellow: told apart under every common colour blindness, and on white."""

_CHARACTERS_PER_INCH = 12.5
"""Of a subtitle."""


def require_matplotlib() -> None:
    """Find out before a long run whether its picture can be drawn.

    Raises:
        BadOption: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise BadOption('--out draws a picture, which needs matplotlib: pip install "unstraggle[lab]"')


def new_figure(
    title: str, subtitle: str, *, rows: int = 1, columns: int = 1, width: float = 9.0, height: float = 5.8
) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure with a heading, of 200 dots per inch.

    Args:
        title: what was measured.
        subtitle: the set-up.
        rows: rows of axes.
        columns: axes in a row.
        width: inches.
        height: inches.

    Returns:
        The figure, and its axes row by row.
    """
    # Here, because it is an optional dependency, and slow to import.
    from matplotlib.figure import Figure

    lines = textwrap.wrap(subtitle, int(width * _CHARACTERS_PER_INCH))
    heading = 0.42 + 0.18 * len(lines)
    figure = Figure(figsize=(width, height), dpi=200)
    top = 1 - heading / height
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08, rect=(0, 0, 1, top))
    figure.text(0.1 / width, 1 - 0.12 / height, title, va="top", fontsize=13, fontweight="bold")
    figure.text(0.1 / width, 1 - 0.4 / height, "\n".join(lines), va="top", fontsize=9)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes: list[list[Axes]] = np.asarray(grid).tolist()
    return figure, axes


def decorate(axes: Axes, *, title: str = "", x: str = "", y: str = "") -> None:
    """Labels with their units, a quiet grid, no box."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x, fontsize=10)
    axes.set_ylabel(y, fontsize=10)
    axes.tick_params(labelsize=9)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def shared_legend(figure: Figure, axes: Axes, *, columns: int = 4) -> None:
    """The legend of one of several alike axes, below them all."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, fontsize=9, frameon=False)
