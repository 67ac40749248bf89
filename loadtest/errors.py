"""What can go wrong in a load test, apart from the requests themselves (those become records).

LoadTestError
|-- OptionError       an option breaks a rule; the message names option, rule and value
|-- StackError        a server did not start, was not ready in time, or died during its run
|-- TargetError       the server does not describe a model that the workload fits
`-- PlotError         matplotlib is not installed
"""

from __future__ import annotations


class LoadTestError(Exception):
    """Base of the tree; its message is one line, or one line and a server's last words."""


class OptionError(LoadTestError, ValueError):
    """An option breaks a rule."""

    def __init__(self, option: str, rule: str, value: object) -> None:
        super().__init__(f"{option} must be {rule}, got {value}")


class StackError(LoadTestError):
    """A server did not start, was not ready in time, or died during its run."""


class TargetError(LoadTestError):
    """The server does not describe a model that the workload fits."""


class PlotError(LoadTestError):
    """Plots need matplotlib, which only the `loadtest` extra installs."""
