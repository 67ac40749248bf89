"""Write spline_vectors.npz: smoothing splines by scipy, for others to be compared with.

    python tests/golden/make_spline_vectors.py

Each case i holds nodes_i (n), lam_i, targets_i (m) and matrix_i (m, n): what scipy's spline over these nodes
makes of each unit vector, at the targets, all of which lie between the end nodes (beyond them scipy's curve goes
on as a cubic, the natural spline as a line).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import make_smoothing_spline

HERE = Path(__file__).parent
LAMBDAS = (0.0, 1e-8, 1e-5, 1e-3, 1.0)
SIZES = ((5, 5), (8, 12), (10, 12), (12, 12), (17, 20), (40, 100))


def cases() -> list[tuple[NDArray[np.float64], float, NDArray[np.float64]]]:
    """Nodes, lam and targets: Chebyshev points of the second kind, some of them missing."""
    rng = np.random.default_rng(20240)
    found = []
    for size, n in SIZES:
        for lam in LAMBDAS:
            points = np.sort(np.cos(np.arange(n) * np.pi / max(n - 1, 1)))
            nodes = points[np.sort(rng.choice(n, size, replace=False))]
            targets = np.sort(rng.uniform(nodes[0], nodes[-1], 20))
            found.append((nodes, lam, targets))
    return found


def reference(nodes: NDArray[np.float64], lam: float, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix of scipy's smoothing spline."""
    columns: NDArray[np.float64] = make_smoothing_spline(nodes, np.eye(nodes.size), lam=lam)(targets)
    return columns


def main() -> None:
    """Write the file next to this script."""
    arrays = {}
    for number, (nodes, lam, targets) in enumerate(cases()):
        arrays |= {
            f"nodes_{number}": nodes,
            f"lam_{number}": np.float64(lam),
            f"targets_{number}": targets,
            f"matrix_{number}": reference(nodes, lam, targets),
        }
    np.savez_compressed(HERE / "spline_vectors.npz", **arrays)


if __name__ == "__main__":
    main()
