"""Choosing a code's numbers: on small known functions, where the right choice is known too."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coding.berrut import BerrutParams
from coding.letcc import LetccParams
from coding.output_domain import OutputDomain, softmax
from models.errors import BadSource, DataError, TuningError
from models.sample_inputs import require_fit, sample_inputs
from models.spec import float_spec
from models.tune import Task, best_of_each_encoding, result_of, tune, tuned_fields
from models.tune_measure import Bench, domains_of, encoding_of

ROWS = np.linspace(-3, 3, 241, dtype=np.float32)[:, np.newaxis]
"""Steps of 1/40."""


def waves(rows: np.ndarray) -> np.ndarray:
    """Logits of three classes, smooth in the one feature."""
    x = rows.reshape(-1, 1)
    return (4 * np.concatenate([np.sin(x), np.cos(x), np.sin(2 * x)], axis=1)).astype(np.float32)


def noisy_waves(rows: np.ndarray) -> np.ndarray:
    """The same, with noise that is 0 on the rows themselves: only blends of them are answered badly."""
    noise = np.sin(40 * np.pi * rows.reshape(-1, 1).astype(np.float64)) * [1.0, -1.0, 0.5]
    return (waves(rows) + 0.5 * noise).astype(np.float32)


def constant(rows: np.ndarray) -> np.ndarray:
    return np.full((len(rows), 3), [0.0, 1.0, 2.0], np.float32)


def fresh_mse(params, model, seed: int = 99) -> float:
    return Bench(model, ROWS, params, groups=200, seed=seed).measure(params, OutputDomain.LOGITS).mse


@pytest.mark.parametrize("model", [waves, noisy_waves, constant])
@pytest.mark.parametrize("params", [LetccParams(), BerrutParams(), LetccParams(n=24, wait_for=20)])
def test_the_choice_is_never_worse_than_the_defaults(model, params) -> None:
    tuning = tune(Task(params, model, ROWS, groups=50))
    chosen, configured = tuning.held_out(tuning.chosen), tuning.held_out(params)
    assert chosen.mse <= configured.mse
    assert fresh_mse(tuning.chosen, model) <= 1.05 * fresh_mse(params, model)
    kept = {name: getattr(tuning.chosen, name) for name in ("k", "n", "wait_for", "floor", "order")}
    assert kept == {name: getattr(params, name) for name in kept}


def test_noisy_answers_are_smoothed_and_smooth_ones_hardly() -> None:
    params = LetccParams(n=32, wait_for=28, lambda_dec=0.0)
    noisy, smooth = (tune(Task(params, model, ROWS, groups=60)).chosen for model in (noisy_waves, waves))
    assert noisy.lambda_dec >= 1e-5
    assert smooth.lambda_dec < noisy.lambda_dec


def test_where_nothing_helps_the_configured_values_stay() -> None:
    params = LetccParams(lambda_dec=3e-6, nodes="equispaced")
    tuning = tune(Task(params, constant, ROWS, groups=30))
    assert tuning.chosen is params
    assert not tuning.gain.exceeds(0)


def test_bad_configured_values_are_left_behind() -> None:
    params = LetccParams(lambda_enc=10.0, lambda_dec=10.0)
    tuning = tune(Task(params, waves, ROWS, groups=60))
    assert tuning.held_out(tuning.chosen).mse < 0.5 * tuning.held_out(params).mse
    assert {trial.step for trial in tuning.trials if trial.part == "held-out"} == {
        "configured",
        "default",
        "tuned",
    }


def test_the_defaults_win_over_a_find_that_is_not_better() -> None:
    """With two groups nothing is beyond chance but what is bad without doubt."""
    params = LetccParams(lambda_enc=10.0, lambda_dec=10.0)
    tuning = tune(Task(params, waves, ROWS, groups=40, seed=2))
    best = min(trial.measured.mse for trial in tuning.trials if trial.part == "held-out")
    assert tuning.held_out(tuning.chosen).mse <= 1.1 * best


def test_search_and_held_out_rows_are_disjoint_and_the_same_seed_gives_the_same_result() -> None:
    asked: list[np.ndarray] = []

    def spy(rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return waves(rows)

    tuning = tune(Task(LetccParams(), spy, ROWS, groups=50, seed=7))
    searched, held_out = (set(rows.ravel().tolist()) for rows in asked[:2])
    assert searched | held_out <= set(ROWS.ravel().tolist())
    assert not searched & held_out
    again = tune(Task(LetccParams(), waves, ROWS, groups=50, seed=7))
    assert [trial.measured.mse for trial in again.trials] == [trial.measured.mse for trial in tuning.trials]


@pytest.mark.parametrize("params", [LetccParams(), BerrutParams()])
def test_each_encoding_is_asked_once_and_the_progress_ends_at_the_total(params) -> None:
    calls, done = 0, []

    def counting(rows: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += len(rows)
        return waves(rows)

    task = Task(params, counting, ROWS, groups=20)
    tuning = tune(task, done.append)
    assert sum(done) == task.calls
    encodings = [
        {encoding_of(trial.params) for trial in tuning.trials if trial.part == part}
        for part in ("search", "held-out")
    ]
    coded = sum(map(len, encodings)) * 20 * params.wait_for
    assert coded < calls <= coded + len(ROWS)


@pytest.mark.parametrize(
    "params",
    [LetccParams(n=12, wait_for=9, lambda_enc=1e-4, nodes="equispaced"), BerrutParams(n=14, order="none")],
)
def test_a_group_is_answered_as_its_code_answers_it_from_its_survivors(params) -> None:
    bench = Bench(waves, ROWS, params, groups=5, seed=0)
    code = params.build(8)
    assert bench.calls == 5 * params.wait_for
    for group in range(5):
        queries = ROWS[bench._groups[group]]
        replies = waves(code.encode(queries[np.newaxis]))
        survivors = bench._survivors[group].tolist()
        answers = code.decode({task: replies[task][np.newaxis] for task in survivors}).outputs[:, 0]
        expected = np.square(softmax(answers) - softmax(waves(queries))).sum(axis=1).mean()
        measured = bench.measure(params, OutputDomain.LOGITS).distances[group]
        assert measured == pytest.approx(expected, abs=1e-5)


def test_a_model_that_answers_probabilities_is_found_out() -> None:
    def probabilities(rows: np.ndarray) -> np.ndarray:
        return softmax(waves(rows))

    tuning = tune(Task(LetccParams(), probabilities, ROWS, groups=60))
    assert tuning.chosen.output_domain in ("probabilities", "as_is")
    assert tuning.held_out(tuning.chosen).mse < 0.2 * tuning.held_out(tuning.configured).mse


def test_domains_are_read_off_the_outputs() -> None:
    scores, shares = waves(ROWS), softmax(waves(ROWS))
    assert domains_of(shares, "logits").candidates == ("probabilities", "as_is")
    assert domains_of(scores, "logits").candidates == ("logits",)
    assert domains_of(scores, "probabilities").candidates == ("logits",)
    assert domains_of(scores, "as_is") == domains_of(scores[:, :1], "as_is")
    with pytest.raises(TuningError, match=r"at least 2 classes.*\[1\].*as_is"):
        domains_of(scores[:, :1], "logits")


def test_other_outputs_are_compared_as_they_are() -> None:
    def fields(rows: np.ndarray) -> np.ndarray:
        return np.stack([waves(rows), -waves(rows)], axis=1)

    tuning = tune(Task(LetccParams(output_domain="as_is"), fields, ROWS, groups=30))
    assert tuning.chosen.output_domain == "as_is"
    assert tuning.held_out(tuning.chosen).mse <= tuning.held_out(tuning.configured).mse


def test_answers_that_are_not_finite_lose_and_do_no_harm() -> None:
    def fragile(rows: np.ndarray) -> np.ndarray:
        return np.where(np.abs(rows) > 3.0, np.float32(np.nan), waves(rows))

    tuning = tune(Task(LetccParams(), fragile, ROWS, groups=30))
    assert tuning.held_out(tuning.chosen).mse <= tuning.held_out(tuning.configured).mse


@pytest.mark.parametrize(
    ("params", "rows", "groups", "message"),
    [
        (LetccParams(), 47, 30, r"at least 6 rows for each of the k = 8 .*, 48; got 47"),
        (LetccParams(k=1, n=2, wait_for=1), 100, 30, "scheme.k must be at least 2.*got 1"),
        (LetccParams(), 100, 1, "groups must be at least 2; got 1"),
    ],
)
def test_too_little_is_refused(params, rows: int, groups: int, message: str) -> None:
    with pytest.raises(TuningError, match=message):
        Task(params, waves, ROWS[:rows], groups)


@pytest.mark.parametrize("params", [LetccParams(), BerrutParams()])
def test_the_result_is_one_row_per_trial(params) -> None:
    task = Task(params, waves, ROWS, groups=20, seed=3)
    tuning = tune(task)
    result = json.loads(json.dumps(result_of(tuning, task, model="m", dataset="d")))
    assert (result["name"], result["seed"], result["settings"]["rows"]) == ("tune", 3, 241)
    assert len(result["rows"]) == len(tuning.trials)
    shared = {"model", "dataset", "scheme", "variant", "k", "n", "s", "groups", "mse"}
    assert all(row.keys() >= shared | tuned_fields(params).keys() for row in result["rows"])
    assert any(row["chosen"] for row in result["rows"] if row["part"] == "held-out")
    shown = best_of_each_encoding(tuning)
    assert shown == sorted(set(shown))
    assert len(shown) < len(tuning.trials) or params.kind == "berrut"


def test_inputs_come_from_a_file_or_from_the_models_own_dataset(tmp_path) -> None:
    wide = ROWS.astype(np.float64)
    np.save(tmp_path / "rows.npy", wide)
    np.savez(tmp_path / "one.npz", anything=wide)
    np.savez(tmp_path / "named.npz", labels=np.arange(3), inputs=wide)
    for name in ("rows.npy", "one.npz", "named.npz"):
        loaded = sample_inputs(str(tmp_path / name), "builtin:lenet5-mnist")
        assert (loaded.name, loaded.rows.dtype) == (name, np.float32)
        np.testing.assert_array_equal(loaded.rows, ROWS)
    assert sample_inputs(None, "builtin:lenet5-mnist").rows.shape == (2000, 1, 28, 28)
    assert sample_inputs("cifar10", "python:m:f").rows.shape == (2000, 3, 32, 32)
    with pytest.raises(TuningError, match=r"--inputs must name .*timm:resnet18"):
        sample_inputs(None, "timm:resnet18")


def test_a_misspelt_model_is_blamed_and_not_the_inputs() -> None:
    with pytest.raises(BadSource, match=r"must be one of lenet5-mnist, .*; got 'lenet6'"):
        sample_inputs(None, "builtin:lenet6")


def test_answers_of_the_model_itself_that_are_not_finite_are_refused() -> None:
    def broken(rows: np.ndarray) -> np.ndarray:
        return np.where(rows > 0.5, np.float32(np.nan), waves(rows))

    with pytest.raises(TuningError, match=r"own answers must be finite; \d+ of \d+ to --inputs are not"):
        tune(Task(LetccParams(), broken, ROWS, groups=30))


def test_bad_files_are_one_message(tmp_path) -> None:
    bad = ROWS.copy()
    bad[5] = np.nan
    np.save(tmp_path / "nan.npy", bad)
    np.save(tmp_path / "whole.npy", np.arange(10))
    np.save(tmp_path / "flat.npy", ROWS.ravel())
    np.save(tmp_path / "empty.npy", ROWS[:0])
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS)
    np.savez(tmp_path / "none.npz")
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    for name, rows in (("lying.npy", 10**13), ("impossible.npy", 10**30)):
        with (tmp_path / name).open("wb") as stream:
            head = {"descr": "<f4", "fortran_order": False, "shape": (rows, 28)}
            np.lib.format.write_array_header_1_0(stream, head)
    content = (tmp_path / "nan.npy").read_bytes()
    (tmp_path / "head.npy").write_bytes(content[:20] + b"(((((" + content[25:])
    np.savez_compressed(tmp_path / "zip.npz", np.random.default_rng(0).random((40, 40)))
    zipped = bytearray((tmp_path / "zip.npz").read_bytes())
    for position in range(200, 260):
        zipped[position] ^= 0x5A
    (tmp_path / "zip.npz").write_bytes(zipped)
    for name, message in {
        "nan.npy": "must be finite in single precision; row 5",
        "whole.npy": "floating-point numbers.*int64",
        "flat.npy": r"shape \(rows, \.\.\.\), got \[241\]",
        "empty.npy": r"got \[0, 1\]",
        "two.npz": "one array, or with one named inputs.*a, b",
        "none.npz": "with an array; .*none.npz has none",
        "text.npy": "a .npy or .npz file.* another kind of file, or holds Python objects",
        "lying.npy": "announces more numbers than fit into memory|is damaged",
        "impossible.npy": "is damaged",
        "head.npy": "is damaged",
        "zip.npz": "is damaged",
        "cut.npz": "a .npy or .npz file",
        "absent.npy": "No such file",
    }.items():
        with pytest.raises(DataError, match=f"--inputs must .*{message}|{message}"):
            sample_inputs(str(tmp_path / name), "builtin:lenet5-mnist")


def test_rows_must_fit_the_model() -> None:
    inputs = sample_inputs("mnist", "builtin:lenet5-mnist")
    require_fit(inputs, float_spec("m", input_shape=(1, -1, 28), output_shape=(10,)))
    with pytest.raises(
        DataError, match=r"rows of shape \[3, 28, 28\] for m; mnist has rows of shape \[1, 28, 28\]"
    ):
        require_fit(inputs, float_spec("m", input_shape=(3, 28, 28), output_shape=(10,)))
