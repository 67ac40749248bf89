"""What can go wrong with models and their data.

ModelError
|-- BadSource            a model.source, or what it names, breaks a rule
|-- WeightsUnavailable   pretrained weights are neither cached nor reachable
|-- BadRows              rows for, or answers of, a model do not have the promised shape or dtype
|-- BadOption            an option of a command or a measurement breaks a rule
|-- DataError            a dataset's file is missing, unreachable or not what it should be
|-- TrainingError        a training run cannot start or go on
`-- TuningError          a code cannot be tuned: nothing to tune, or nothing to tune it on
"""


class ModelError(Exception):
    """Base of every error that `models` raises on purpose; the message names source, rule and value."""


class BadSource(ModelError, ValueError):
    """A model.source string, or what it names, breaks a rule."""


class WeightsUnavailable(ModelError):
    """Pretrained weights are neither in the local cache nor reachable."""


class BadRows(ModelError, ValueError):
    """Rows for a model, or its answers, do not have the promised shape or dtype."""


class BadOption(ModelError, ValueError):
    """An option of a command or a measurement breaks a rule; the message names option, rule and value."""


class DataError(ModelError):
    """A dataset's file is missing, unreachable, or not the file that it should be."""


class TrainingError(ModelError):
    """A training run cannot start or go on."""


class TuningError(ModelError, ValueError):
    """A code cannot be tuned: it has nothing to tune, or its inputs do not suffice."""
