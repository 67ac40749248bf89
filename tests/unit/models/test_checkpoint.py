"""What a run goes on from, and what it refuses to."""

import pytest
import torch

from models.checkpoint import load_checkpoint, save_checkpoint
from models.errors import TrainingError


def test_a_state_comes_back_as_it_was(tmp_path):
    save_checkpoint(tmp_path / "c", {"recipe": 1}, {"weights": torch.arange(3), "logs": [{"loss": 0.5}]})
    state = load_checkpoint(tmp_path / "c", {"recipe": 1})
    assert state["weights"].tolist() == [0, 1, 2]
    assert state["logs"] == [{"loss": 0.5}]


def test_another_run_may_not_go_on_from_it(tmp_path):
    save_checkpoint(tmp_path / "c", {"recipe": 1}, {})
    with pytest.raises(
        TrainingError, match=r"c must come from \{'recipe': 2\}; it comes from \{'recipe': 1\}"
    ):
        load_checkpoint(tmp_path / "c", {"recipe": 2})


@pytest.mark.parametrize("cut", [0, 100, -30])
def test_half_a_file_is_refused_in_one_line(tmp_path, cut):
    save_checkpoint(tmp_path / "c", {"recipe": 1}, {"weights": torch.zeros(100)})
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:cut])
    with pytest.raises(TrainingError, match=r"^.*c must be a checkpoint .* Delete it to start over\.$"):
        load_checkpoint(tmp_path / "c", {"recipe": 1})


@pytest.mark.parametrize("content", [b"{}", b"hello", b"\x80\x02N.", b"\x00" * 64])
def test_another_kind_of_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(TrainingError, match="Delete it to start over"):
        load_checkpoint(tmp_path / "c", {"recipe": 1})


def test_a_checkpoint_without_identity_is_refused(tmp_path):
    torch.save({"weights": torch.zeros(1)}, tmp_path / "c")
    with pytest.raises(TrainingError, match="Delete it to start over"):
        load_checkpoint(tmp_path / "c", {"recipe": 1})
