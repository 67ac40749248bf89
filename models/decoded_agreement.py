"""How often decoded answers are the uncoded model's, for any code and any number of arrivals."""

from __future__ import annotations

import numpy as np

from coding.output_domain import OutputDomain
from coding.scheme import Scheme
from models.errors import DataError
from models.experiments.measure import Floats, Predict, order_groups

_BATCH_ROWS = 500


class DecodedAnswers:
    """Groups of rows and what the replicas answer to them; every number of arrivals is measured on these.

    Args:
        code: for groups of K; tasks with a delay are left out.
        ordered: put similar rows of a group side by side.
        domain: what the model answers.
        predict: the model.
        inputs: shape (rows, ...), at least K of them.
        groups: random groups.
        seed: of groups and arrivals.

    Raises:
        DataError: there are fewer rows than a group has.
    """

    def __init__(
        self,
        code: Scheme,
        predict: Predict,
        inputs: Floats,
        *,
        ordered: bool,
        domain: OutputDomain,
        groups: int,
        seed: int,
    ) -> None:
        if len(inputs) < code.k:
            raise DataError(f"--inputs must hold at least k = {code.k} rows; got {len(inputs)}")
        self._code = code
        self._random = np.random.default_rng(seed)
        drawn = np.stack([self._random.choice(len(inputs), code.k, replace=False) for _ in range(groups)])
        drawn = order_groups(inputs, drawn) if ordered else drawn
        self._domain = domain
        self._prompt = [task for task in code.tasks if task.delay_s == 0]
        queries = inputs[drawn]
        payloads = code.encode(queries)[[task.index for task in self._prompt]]
        shape = inputs.shape[1:]
        answers = _ask(predict, payloads.reshape(-1, *shape))
        self._outputs = domain.to_coding(answers).reshape(*payloads.shape[:2], *answers.shape[1:])
        own = _ask(predict, queries.reshape(-1, *shape))
        self._classes = own.argmax(axis=-1).reshape(groups, code.k, *own.shape[1:-1])

    @property
    def most_arrivals(self) -> int:
        """The most that leave something to decode."""
        exact = any(task.exact for task in self._prompt) and self._code.k > 1
        return len(self._prompt) - exact

    def agreement(self, arrivals: int) -> float:
        """The share of decoded answers whose class is the uncoded model's, from random sets of so many arrivals.

        Answers that a replica gives by itself, without decoding, do not count.

        Args:
            arrivals: 1 to `most_arrivals`; more count as that.
        """
        count = max(1, min(arrivals, self.most_arrivals))
        right = total = 0
        for group, classes in enumerate(self._classes):
            chosen = self._random.choice(len(self._prompt), count, replace=False)
            given = frozenset().union(*(self._prompt[place].exact for place in chosen))
            missing = [slot for slot in range(self._code.k) if slot not in given]
            outputs = {self._prompt[place].index: self._outputs[place, group : group + 1] for place in chosen}
            if not missing or not self._code.answerable(outputs.keys(), at_deadline=True) >= set(missing):
                continue
            decoded = self._code.decode(outputs)
            some = self._domain.to_client(decoded.outputs[[decoded.slots.index(slot) for slot in missing], 0])
            right += int((some.argmax(axis=-1) == classes[missing]).sum())
            total += classes[missing].size
        return right / total if total else 0.0


def _ask(predict: Predict, rows: Floats) -> Floats:
    return np.concatenate([predict(rows[at : at + _BATCH_ROWS]) for at in range(0, len(rows), _BATCH_ROWS)])
