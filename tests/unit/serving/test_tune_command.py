"""`unstraggle tune` as people call it: on the shipped digits, with few groups."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from serving.config.load import load
from unstraggle import app

SHIPPED = (Path(__file__).parents[3] / "config.yaml").read_text()
FEW = ("--groups", "60", "--threads", "1")
BROKEN = SHIPPED.replace("lambda_enc: 1.0e-5 ", "lambda_enc: 1.0 ")
assert BROKEN != SHIPPED


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the machine's, and a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("UNSTRAGGLE_")]:
        monkeypatch.delenv(name)


def run(*arguments: str):
    return CliRunner().invoke(app, ["tune", *FEW, *arguments])


def test_a_choice_is_written_in_place_and_the_file_stays_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(BROKEN)
    file.chmod(0o600)
    outcome = run("--write", "--json", "result.json")
    assert outcome.exit_code == 0, outcome.output
    result = json.loads((tmp_path / "result.json").read_text())
    chosen = next(row for row in result["rows"] if row["chosen"] and row["part"] == "held-out")
    scheme = load(file).settings.scheme
    assert chosen["lambda_enc"] < 1.0
    for name in ("lambda_enc", "lambda_dec", "nodes", "output_domain"):
        assert getattr(scheme, name) == chosen[name]
    kept = [line for line in BROKEN.splitlines() if "lambda_" not in line and "nodes" not in line]
    assert [line for line in file.read_text().splitlines() if line in kept] == kept
    assert "# smoothing of the encoding spline" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "chosen: " in outcome.stdout
    assert "held-out groups: mse" in outcome.stdout


def test_a_new_file_holds_the_choice_and_what_it_was_made_for(tmp_path: Path) -> None:
    outcome = run("--out", "new.yaml", "--set", "scheme.kind=berrut", "--set", "scheme.n=14", "--json", "-")
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    scheme = load(tmp_path / "new.yaml").settings.scheme
    assert (scheme.kind, scheme.k, scheme.n) == ("berrut", 8, 14)
    assert scheme.nodes == next(row["nodes"] for row in result["rows"] if row["chosen"])


def test_without_out_or_write_nothing_is_written(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((60, 1, 28, 28), np.float32))
    outcome = run("--inputs", "rows.npy")
    assert outcome.exit_code == 0, outcome.output
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--write"], "--write needs a configuration file"),
        (["--write", "--out", "x.yaml"], "must not both be given"),
        (["--out", "there.yaml"], "--out must name a new file, got there.yaml"),
        (["--config", "absent.yaml"], "cannot read the configuration file absent.yaml"),
        (["--set", "scheme.kind=none"], "scheme.kind must be letcc or berrut.*got none"),
        (["--set", "scheme.wait_fro=3"], "unknown key scheme.wait_fro"),
        (["--set", "replicas={kind: http, urls: ['http://a']}"], "replicas.kind must be local.*got http"),
        (["--set", "model.source=keras:x"], "model.source must be"),
        (["--set", "model.source=timm:resnet18"], "--inputs must name a .npy file"),
        (["--inputs", "absent.npy"], "--inputs must be a file that can be read: absent.npy"),
        (["--inputs", "cifar10"], r"rows of shape \[1, 28, 28\].*\[3, 32, 32\]"),
        (["--inputs", "few.npy"], "at least 6 rows for each of the k = 8 .*got 20"),
        (
            ["--set", "scheme.kind=berrut", "--config", "there.yaml", "--write", "--inputs", "absent.npy"],
            "scheme.kind must be",
        ),
        (["--json", "there.yaml/x"], "--json must name a file that can be written; there.yaml/x: "),
        (["--out", "a", "--json", "a/b"], "--json must not be the file of --out, or a folder of it; got a/b"),
        (
            ["--set", "model.source=torchscript:few.npy?input_shape=1,28,28", "--json", "few.npy"],
            "--json must not be the file of model.source",
        ),
        (["--json", "."], "--json must name a file; . is a folder"),
        (["--config", "there.yaml", "--json", "there.yaml"], "--json must not be the file of --config"),
        (["--inputs", "few.npy", "--json", "./few.npy"], "--json must not be the file of --inputs"),
        (["--out", "there.yaml/new.yaml"], "--out must name a file that can be written"),
        (["--set", "model.source=builtin:lenet6"], "a built-in model must be one of"),
    ],
)
def test_what_cannot_be_done_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "there.yaml").write_text("scheme: {kind: letcc}\n")
    np.save(tmp_path / "few.npy", np.zeros((20, 1, 28, 28), np.float32))
    outcome = run(*arguments)
    assert outcome.exit_code == 2, outcome.output
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("unstraggle tune: ")
    assert re.search(message, last)
    assert (tmp_path / "there.yaml").read_text() == "scheme: {kind: letcc}\n"
