"""The command `unstraggle adapt`, in its smallest size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner, Result

from models.datasets import load_slice
from models.registry import load_model
from unstraggle import app

SMALL = ["--rounds", "1", "--steps", "2", "--groups", "2", "--threads", "1"]
CODE = ["-s", "scheme.k=2", "-s", "scheme.n=4", "-s", "scheme.wait_for=3"]


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", load_slice("mnist").images[:80])


def adapt(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["adapt", *arguments])


def test_the_printed_source_loads_what_was_written():
    outcome = adapt(*CODE, *SMALL, "--inputs", "x.npy", "--out", "w.safetensors")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.endswith('model:\n  source: "builtin:lenet5-mnist?weights=w.safetensors"\n')
    adapted, original = (
        load_model("builtin:lenet5-mnist?weights=w.safetensors"),
        load_model("builtin:lenet5-mnist"),
    )
    rows = torch.rand(3, 1, 28, 28)
    assert not torch.equal(adapted.module(rows), original.module(rows))
    log = json.loads(Path("w.log.json").read_text())
    assert [entry["round"] for entry in log["settings"]["rounds"]] == [0, 1]
    assert {row["scheme"] for row in log["rows"]} == {"none", "replication", "hedged", "default", "letcc"}


def test_weights_that_are_adapted_again_take_the_place_of_the_first():
    source = "model.source=builtin:lenet5-mnist?adapted=letcc-8-12-10"
    outcome = adapt(*CODE, *SMALL, "-s", source, "--inputs", "x.npy")
    assert outcome.exit_code == 0, outcome.output
    assert '"builtin:lenet5-mnist?weights=lenet5-mnist.letcc-2-4-3.safetensors"' in outcome.stdout


def test_a_path_with_special_characters_is_quoted():
    outcome = adapt(*CODE, *SMALL, "--inputs", "x.npy", "--out", "a&b+c%20 d?.safetensors")
    assert outcome.exit_code == 0, outcome.output
    source = json.loads(outcome.stdout.splitlines()[-1].partition("source: ")[2])
    assert load_model(source).spec.source == source


def test_the_checkpoint_goes_when_the_weights_are_there(monkeypatch):
    def no_space(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("models.adapt_report.write_whole", no_space)
        outcome = adapt(*CODE, *SMALL, "--inputs", "x.npy", "--out", "w.safetensors")
    assert (outcome.exit_code, Path("w.checkpoint").exists()) == (2, True)
    assert outcome.stderr.endswith("unstraggle adapt: w.safetensors: No space left on device\n")
    assert adapt(*CODE, *SMALL, "--inputs", "x.npy", "--out", "w.safetensors").exit_code == 0
    assert (Path("w.safetensors").exists(), Path("w.checkpoint").exists()) == (True, False)


@pytest.fixture
def bad_files():
    Path("file").touch()
    Path("there.safetensors").touch()
    Path("c.log.json").write_text("scheme: {kind: letcc}")
    Path("folder.safetensors").mkdir()
    weights = load_model("builtin:lenet5-mnist").module.state_dict()
    safetensors.torch.save_file(weights, "own.safetensors")
    weights["0.weight" if "0.weight" in weights else next(iter(weights))].view(-1)[0] = float("nan")
    safetensors.torch.save_file(weights, "nan.safetensors")


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--out", "folder.safetensors"], "--out must name a file; folder.safetensors is a folder"),
        (["--inputs", "x.checkpoint", "--out", "x.safetensors"], "--out must not be the file of --inputs"),
        (["--config", "c.log.json", "--out", "c.safetensors"], "--out must not be the file of --config"),
        (["--out", "there.safetensors"], "--out must name a new file; there is a there.safetensors already"),
        (["--out", "caf\udce9.safetensors"], "--out must be a name in UTF-8"),
        (["-s", "model.source=torchscript:m.pt?input_shape=1,28,28"], "model.source must take weights=FILE"),
        (["--out", "file/w.safetensors"], "--out must name a file that can be written; file/w.safetensors: "),
        (
            ["-s", "model.source=builtin:lenet5-mnist?weights=own.safetensors", "--out", "own.safetensors"],
            "--out must not be the file of the weights of model.source, or a folder of it; got own.safetensors",
        ),
        (["-s", "model.source=builtin:lenet5-mnist?weights=nan.safetensors"], "weights must be finite; "),
        (["-s", "model.source=builtin:lenet5-mnist?weights=."], "weights must be a file; . is none"),
        (["-s", "model.source=builtin:lenet6"], "a built-in model must be one of"),
        (
            ["-s", "scheme.k=16", "-s", "scheme.n=20", "-s", "scheme.wait_for=18", "--inputs", "x.npy"],
            "at least 10 rows for each of the k = 16 queries of a group, 160",
        ),
        (["-s", "scheme.kind=hedged"], "scheme.kind must be letcc or berrut"),
        (["-s", "scheme.output_domain=as_is"], "scheme.output_domain must be logits"),
        (["--out", "w.bin"], "--out must end in .safetensors, got w.bin"),
        (["--inputs", "nope.npy"], "--inputs must be a file that can be read: nope.npy"),
        (["-s", "model.source=timm:x?pretrained=maybe"], "pretrained must be true or false"),
    ],
)
def test_bad_input_ends_in_one_line(arguments, reason):
    outcome = adapt(*SMALL, *arguments)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("unstraggle adapt: ")
    assert reason in outcome.stderr
    assert outcome.stderr.count("\n") == 1
