"""The learning rate over a training run."""

from __future__ import annotations

import math


def rate_share(step: int, steps: int) -> float:
    """The learning rate as a share of the highest: up over the first tenth, then down along a cosine.

    The rise matters most where a trained network is trained on: the first steps of Adam are as long as the learning
    rate allows in every weight, whatever the gradient's length, and at full length they undo what was learned.
    """
    rise = max(1, steps // 10)
    if step < rise:
        return (step + 1) / rise
    return 0.5 + 0.5 * math.cos(math.pi * (step - rise) / max(1, steps - rise))
