"""What a run goes on from, and what it refuses to."""

import numpy as np
import pytest
import torch

from models.checkpoint import digest, restore_checkpoint, save_checkpoint
from models.errors import TrainingError


def test_a_state_comes_back_as_it_was(tmp_path):
    save_checkpoint(tmp_path / "c", {"recipe": 1}, {"weights": torch.arange(3), "logs": [{"loss": 0.5}]})
    states = []
    restore_checkpoint(tmp_path / "c", {"recipe": 1}, states.append)
    (state,) = states
    assert state["weights"].tolist() == [0, 1, 2]
    assert state["logs"] == [{"loss": 0.5}]


def refuse(state):
    raise AssertionError(f"must not be used: {state}")


def test_another_run_may_not_go_on_from_it_and_what_differs_is_named(tmp_path):
    save_checkpoint(tmp_path / "c", {"recipe": {"rounds": 3, "steps": 2}, "inputs": "ab"}, {})
    with pytest.raises(
        TrainingError, match=r"c must come from this run; .* with recipe\.rounds 3 instead of 4\. Delete it"
    ):
        restore_checkpoint(tmp_path / "c", {"recipe": {"rounds": 4, "steps": 2}, "inputs": "ab"}, refuse)
    with pytest.raises(TrainingError, match=r"with inputs ab instead of cd, source None instead of x"):
        restore_checkpoint(
            tmp_path / "c", {"recipe": {"rounds": 3, "steps": 2}, "inputs": "cd", "source": "x"}, refuse
        )


def test_a_state_that_does_not_fit_is_refused_in_one_line(tmp_path):
    save_checkpoint(tmp_path / "c", {"recipe": 1}, {"weights": {}})
    network = torch.nn.Linear(2, 2)
    for apply in (
        lambda state: network.load_state_dict(state["weights"]),
        lambda state: state["no such key"],
        lambda state: state["weights"].no_such_method(),
    ):
        with pytest.raises(TrainingError, match=r"^.*c must be a checkpoint .* Delete it to start over\.$"):
            restore_checkpoint(tmp_path / "c", {"recipe": 1}, apply)


def test_a_folder_in_its_place_is_refused_in_one_line(tmp_path):
    with pytest.raises(TrainingError, match="must be a file that can be read: Is a directory"):
        restore_checkpoint(tmp_path, {"recipe": 1}, refuse)


def test_a_digest_tells_values_shapes_kinds_and_names_apart():
    array = np.arange(6, dtype=np.float32)
    different = [
        {"a": array},
        {"b": array},
        {"a": array.reshape(2, 3)},
        {"a": array.astype(np.float64)},
        {"a": array + 1},
        {"a": array, "b": array},
        {"a": np.float32(0)},
        {},
    ]
    assert len({digest(arrays) for arrays in different}) == len(different)
    assert digest({"a": array, "b": array + 1}) == digest({"b": array + 1, "a": array.copy()})
    assert digest({"a": np.arange(12, dtype=np.float32)[::2]}) == digest({"a": 2 * array})


@pytest.mark.parametrize("cut", [0, 100, -30])
def test_half_a_file_is_refused_in_one_line(tmp_path, cut):
    save_checkpoint(tmp_path / "c", {"recipe": 1}, {"weights": torch.zeros(100)})
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:cut])
    with pytest.raises(TrainingError, match=r"^.*c must be a checkpoint .* Delete it to start over\.$"):
        restore_checkpoint(tmp_path / "c", {"recipe": 1}, refuse)


@pytest.mark.parametrize("content", [b"{}", b"hello", b"\x80\x02N.", b"\x00" * 64])
def test_another_kind_of_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(TrainingError, match="Delete it to start over"):
        restore_checkpoint(tmp_path / "c", {"recipe": 1}, refuse)


def test_a_checkpoint_without_identity_is_refused(tmp_path):
    torch.save({"weights": torch.zeros(1)}, tmp_path / "c")
    with pytest.raises(TrainingError, match="Delete it to start over"):
        restore_checkpoint(tmp_path / "c", {"recipe": 1}, refuse)
