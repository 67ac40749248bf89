"""Choosing a code's numbers for a model: lambda_enc, lambda_dec, nodes and output domain.

No labels are needed: the model's own uncoded answers are the target, and a choice is as good as its decoded answers
are close to them. The rows are split in two. On groups of the first part a greedy search compares choices; on groups
of the second, which it has not seen, what it found has to beat what is configured, or that is kept.

Model calls are dear and decoding is cheap. So the search is greedy over what changes the encoded queries (nodes, then
lambda_enc, until neither brings anything), and tries every lambda_dec and output domain on each encoding's answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coding.letcc import LetccParams
from coding.nodes import BERRUT_NODES, SPLINE_NODES
from models.adapt_material import CodeParams
from models.errors import TuningError
from models.experiments.measure import Floats, Predict
from models.tune_measure import Bench, Domains, Gain, Measured, domains_of, encoding_of

LAMBDAS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
"""Candidates of both lambdas, in the sum-of-squares convention."""
HELD_OUT_SHARE = 1 / 3
"""Share of the rows that the search does not see."""
ROWS_PER_QUERY = 6
"""There must be this many rows for each query of a group, so that either part makes groups that differ."""
MARGIN = 1.0
"""Standard errors of the paired gain from which the search prefers another choice."""
HELD_OUT_MARGIN = 2.0
"""The same for the last word, on held-out groups."""
_SWEEPS = 3


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice, measured.

    Attributes:
        part: "search" or "held-out": the groups that it was measured on.
        step: why it was tried: `configured`, `default` or `tuned`, or the field that the search was changing.
        params: the choice.
        measured: how close it came.
    """

    part: str
    step: str
    params: CodeParams
    measured: Measured


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a search found.

    Attributes:
        configured: the parameters that it started from.
        chosen: those to serve with; `configured` itself where nothing was better on held-out groups.
        found: what the search would have chosen.
        gain: held-out gain of `found` over `configured`, or over the defaults where these are better.
        trials: everything that was measured, in order; those on held-out groups come last.
    """

    configured: CodeParams
    chosen: CodeParams
    found: CodeParams
    gain: Gain
    trials: tuple[Trial, ...] = field(repr=False)

    def held_out(self, params: CodeParams) -> Measured:
        """How a choice did on held-out groups."""
        return next(
            trial.measured for trial in self.trials if trial.part == "held-out" and trial.params == params
        )


@dataclass(frozen=True, slots=True)
class Task:
    """What to tune for what.

    Attributes:
        params: the configured code; k, n, wait_for, floor and order stay as they are.
        predict: the model, from rows (b, ...) to outputs (b, ..., classes).
        inputs: shape (rows, ...), float32, finite; such rows as will be served. No labels.
        groups: groups to search on, and as many held-out ones.
        seed: seed of the split, the groups and the straggler sets.

    Raises:
        TuningError: there is nothing to tune, or too few rows or groups to tune on.
    """

    params: CodeParams
    predict: Predict
    inputs: Floats
    groups: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        k = self.params.k
        if k < 2:
            raise TuningError(f"scheme.k must be at least 2, for a group of one is exact; got {k}")
        if len(self.inputs) < ROWS_PER_QUERY * k:
            raise TuningError(
                f"--inputs must hold at least {ROWS_PER_QUERY} rows for each of the k = {k} queries of a group, "
                f"{ROWS_PER_QUERY * k}; got {len(self.inputs)}"
            )
        if self.groups < 2:
            raise TuningError(f"groups must be at least 2; got {self.groups}")

    @property
    def calls(self) -> int:
        """Coded rows that the model answers at most: what the progress of `tune` counts."""
        kinds = sum(len(options) for _, options in _encoding_moves(self.params))
        return self.groups * self.params.wait_for * (1 + _SWEEPS * kinds + 3)


def tune(task: Task, advance: Callable[[int], None] = lambda _: None) -> Tuning:
    """Search, and let the result prove itself on held-out groups.

    Args:
        task: what to tune for what.
        advance: told the number of coded rows that the model has answered, batch by batch; at the end, the rest
            of `task.calls`.

    Raises:
        TuningError: `scheme.output_domain` does not fit what the model answers.
    """
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        told += done
        advance(done)

    rows = np.random.default_rng(task.seed).permutation(len(task.inputs))
    parts = np.split(rows, [len(rows) - int(len(rows) * HELD_OUT_SHARE)])
    searched, held_out = (
        Bench(task.predict, task.inputs[part], task.params, groups=task.groups, seed=seed, advance=tell)
        for part, seed in zip(parts, (task.seed, task.seed + 1), strict=True)
    )
    domains = domains_of(searched.uncoded, task.params.output_domain)
    search = _Search(searched, domains, task.params)
    search.run()
    tuning = _settle(task.params, search, held_out, domains)
    advance(task.calls - told)
    return tuning


class _Search:
    """The greedy search: the best choice so far, and everything that was tried."""

    def __init__(self, bench: Bench, domains: Domains, start: CodeParams) -> None:
        self._bench = bench
        self._domains = domains
        self._measured: dict[CodeParams, Measured] = {}
        self.trials: list[Trial] = []
        self.best = start
        self._measure("configured", start)

    def run(self) -> None:
        """Change one thing at a time for as long as that brings something."""
        self._improve("decoding", [self.best])
        for _ in range(_SWEEPS):
            before = self.best
            for name, options in _encoding_moves(self.best):
                self._improve(name, [_changed(self.best, name, option) for option in options])
            if self.best == before:
                return

    def _improve(self, step: str, encodings: Sequence[CodeParams]) -> None:
        """Try every way to decode each of these encodings, and go to the best if it is better beyond chance."""
        candidates = [decoding for encoding in encodings for decoding in _decodings(encoding, self._domains)]
        best = min(candidates, key=lambda params: self._measure(step, params).mse)
        if self._measured[best].gain_over(self._measured[self.best]).exceeds(MARGIN):
            self.best = best

    def _measure(self, step: str, params: CodeParams) -> Measured:
        if params not in self._measured:
            measured = self._bench.measure(params, self._domains.target)
            self._measured[params] = measured
            self.trials.append(Trial("search", step, params, measured))
        return self._measured[params]


def _settle(configured: CodeParams, search: _Search, held_out: Bench, domains: Domains) -> Tuning:
    """Let the defaults and what was found challenge what is configured, in this order, on held-out groups."""
    default, found = _with_defaults(configured), search.best
    steps = {found: "tuned", default: "default", configured: "configured"}
    measured = {params: held_out.measure(params, domains.target) for params in (configured, default, found)}
    incumbent = configured
    if measured[default].gain_over(measured[configured]).exceeds(HELD_OUT_MARGIN):
        incumbent = default
    gain = measured[found].gain_over(measured[incumbent])
    chosen = found if gain.exceeds(HELD_OUT_MARGIN) else incumbent
    trials = [Trial("held-out", steps[params], params, how) for params, how in measured.items()]
    return Tuning(configured, chosen, found, gain, (*search.trials, *trials))


def _with_defaults(params: CodeParams) -> CodeParams:
    """The same code with what is tuned as it is by default, but for the output domain, which is the model's."""
    if isinstance(params, LetccParams):
        default = LetccParams()
        return replace(
            params, lambda_enc=default.lambda_enc, lambda_dec=default.lambda_dec, nodes=default.nodes
        )
    return replace(params, nodes="chebyshev")


def _encoding_moves(params: CodeParams) -> list[tuple[str, tuple[Any, ...]]]:
    """What changes the encoded queries: each field with the values that it may have instead."""
    if not isinstance(params, LetccParams):
        return [("nodes", _others(BERRUT_NODES, params.nodes))]
    return [
        ("nodes", _others(SPLINE_NODES, params.nodes)),
        ("lambda_enc", _others(LAMBDAS, params.lambda_enc)),
    ]


def _others(options: Sequence[Any], current: object) -> tuple[Any, ...]:
    return tuple(option for option in options if option != current)


def _changed(params: CodeParams, name: str, value: object) -> CodeParams:
    fields: dict[str, Any] = {name: value}
    return replace(params, **fields)


def _decodings(params: CodeParams, domains: Domains) -> Iterator[CodeParams]:
    """Every way to decode this encoding's answers."""
    for domain in domains.candidates:
        if not isinstance(params, LetccParams):
            yield replace(params, output_domain=domain)
            continue
        for lambda_dec in dict.fromkeys((params.lambda_dec, *LAMBDAS)):
            yield replace(params, output_domain=domain, lambda_dec=lambda_dec)


def result_of(tuning: Tuning, task: Task, *, model: str, dataset: str) -> dict[str, Any]:
    """The result object, in the form of the other measurements: name, seed, settings and rows.

    Rows have model, dataset, scheme, variant (the trial's step), part, k, n, s, groups, nodes, lambda_enc, lambda_dec,
    output_domain, mse, agreement and chosen. What a scheme does not have is null.
    """
    params = tuning.configured
    return {
        "name": "tune",
        "seed": task.seed,
        "settings": {
            "groups": task.groups,
            "rows": len(task.inputs),
            "candidates": list(LAMBDAS),
            "held_out_share": HELD_OUT_SHARE,
            "gain": tuning.gain.mean,
            "gain_standard_error": tuning.gain.standard_error,
        },
        "rows": [
            {
                "model": model,
                "dataset": dataset,
                "scheme": params.kind,
                "variant": trial.step,
                "part": trial.part,
                "k": params.k,
                "n": params.n,
                "s": params.n - params.wait_for,
                "groups": task.groups,
                **tuned_fields(trial.params),
                "mse": trial.measured.mse,
                "agreement": trial.measured.agreement,
                "chosen": trial.params == tuning.chosen,
            }
            for trial in tuning.trials
        ],
    }


def tuned_fields(params: CodeParams) -> dict[str, Any]:
    """What may have been tuned, by the names of the configuration; null for what the scheme does not have."""
    names = ("nodes", "lambda_enc", "lambda_dec", "output_domain")
    return {name: getattr(params, name, None) for name in names}


def best_of_each_encoding(tuning: Tuning) -> list[int]:
    """Positions in `tuning.trials` of those worth a line: the held-out ones, and of each encoding the best."""
    best: dict[tuple[str, object], int] = {}
    for index, trial in enumerate(tuning.trials):
        alone = trial.part == "held-out" or trial.step == "configured"
        key = (trial.part, index if alone else encoding_of(trial.params))
        held = best.get(key)
        if held is None or trial.measured.mse < tuning.trials[held].measured.mse:
            best[key] = index
    return sorted(best.values())
