"""The percentile spectrum: latency against percentile, with the tail spread out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loadtest.errors import PlotError
from loadtest.stats import percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PERCENTS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
_COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The Okabe-Ito palette without its yellow: told apart under every common colour blindness, and on white."""

_SUBTITLE_WIDTH = 115
"""Characters of a subtitle that fit into one line."""

_STYLES = ("-", "--", "-.", ":")


def require_matplotlib() -> None:
    """Find out before a long run whether its plot can be drawn.

    Raises:
        PlotError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise PlotError('plots need matplotlib: pip install "unstraggle[loadtest]"')


def spectrum(latencies: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The steps of one line: at a share p of all requests, the smallest latency that this share stays within.

    Args:
        latencies: shape (n,), in any order; may hold infinities.

    Returns:
        Shares, shape (n + 1,), ascending from 0 to half a request short of 1; and the latency
        that holds from each share to the next.
    """
    count = latencies.size
    ordered = np.sort(latencies)
    shares = np.append(np.arange(count) / count, 1.0 - 0.5 / count)
    return shares, np.append(ordered, ordered[-1])


def write_spectrum(
    path: Path, latencies_s: Mapping[str, NDArray[np.float64]], *, title: str, subtitle: str
) -> None:
    """Draw one line per scheme into a PNG of 1,800 pixels by 1,160, legible at half that size.

    The horizontal axis is log(1 / (1 - p)), on which every further nine takes the same room. Failed requests
    have infinite latency: their line leaves through the top.

    Args:
        path: the file to write.
        latencies_s: scheme to its latencies, seconds, infinite for failed requests.
        title: what was measured.
        subtitle: the set-up.

    Raises:
        PlotError: matplotlib is not installed.
    """
    require_matplotlib()
    # Here, because it is an optional dependency, and slow to import.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.8), dpi=200)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    axes = figure.add_subplot()
    top_ms = _top_ms(list(latencies_s.values()))
    for number, (scheme, latencies) in enumerate(latencies_s.items()):
        shares, values = spectrum(latencies)
        axes.plot(
            _nines(shares),
            np.where(np.isfinite(values), values * 1e3, 100.0 * top_ms),
            drawstyle="steps-post",
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=_STYLES[number // len(_COLOURS) % len(_STYLES)],
            linewidth=2.0,
            label=_legend(scheme, latencies),
        )
    _decorate(axes, max(latencies.size for latencies in latencies_s.values()), top_ms)
    lines = textwrap.wrap(subtitle, _SUBTITLE_WIDTH)
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=12 + 12 * len(lines))
    axes.annotate(
        "\n".join(lines), (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", fontsize=9
    )
    # Below the axes: wherever it stood inside, some line would run behind it.
    figure.legend(loc="outside lower left", ncols=2, fontsize=10, frameon=False)
    figure.savefig(path)


def _nines(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log10(1.0 - shares)


def _top_ms(all_latencies: Sequence[NDArray[np.float64]]) -> float:
    """The top of the vertical axis: a little above the worst answered request."""
    finite = [latencies[np.isfinite(latencies)] for latencies in all_latencies]
    worst = max((float(values.max()) for values in finite if values.size), default=1.0)
    return 1.06e3 * worst


def _legend(scheme: str, latencies: NDArray[np.float64]) -> str:
    p50, p99 = (percentile(latencies, percent) * 1e3 for percent in (50.0, 99.0))
    errors = int(np.count_nonzero(np.isinf(latencies)))
    failed = f", {errors} failed" if errors else ""
    return f"{scheme}: p50 {p50:.0f}, p99 {p99:.0f} ms{failed}"


def _decorate(axes: Axes, count: int, top_ms: float) -> None:
    limit = float(_nines(np.array([1.0 - 0.5 / count]))[0])
    ticks = [percent for percent in _PERCENTS if _nines(np.array([percent / 100.0]))[0] <= limit]
    axes.set_xticks(_nines(np.array(ticks) / 100.0).tolist(), [f"{percent:g}%" for percent in ticks])
    axes.set_xlim(0.0, limit)
    axes.set_ylim(0.0, top_ms)
    axes.set_xlabel("percentile of all requests", fontsize=11)
    axes.set_ylabel("latency from the intended send time, ms", fontsize=11)
    axes.tick_params(labelsize=10)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
