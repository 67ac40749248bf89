from collections.abc import Iterator

import pytest
from live_server import Server, serving

from models.datasets import EvaluationSlice, load_slice


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The shipped configuration; shared, so tests must not disturb its replicas."""
    with serving("log.level=warning") as running:
        yield running


@pytest.fixture(scope="session")
def digits() -> EvaluationSlice:
    return load_slice("mnist")
