"""What one worker process needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from serving.config.faults import FaultSettings
from serving.config.schema import LocalReplicas, LogSettings, ModelSettings


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of one worker.

    Attributes:
        number: which replica it is, 0-based.
        name: the replica's name in logs, metrics and messages.
        model: the model's name in the URL.
        source: where the model comes from, as in `model.source` of the configuration.
        host: address to listen on; the port is whatever is free.
        threads: torch threads.
        concurrency: calls that run at once; the rest wait, first come, first served. 0 means unlimited.
        faults: seeded fault injection.
        log: how it logs.
    """

    number: int
    name: str
    model: str
    source: str
    host: str
    threads: int
    concurrency: int
    faults: FaultSettings
    log: LogSettings


def settings_of_workers(
    model: ModelSettings, replicas: LocalReplicas, log: LogSettings
) -> tuple[WorkerSettings, ...]:
    """The settings of every worker of a configuration, in order of their numbers."""
    return tuple(
        WorkerSettings(
            number=number,
            name=f"replica-{number}",
            model=model.name,
            source=model.source,
            host="127.0.0.1",
            threads=replicas.threads,
            concurrency=replicas.concurrency,
            faults=replicas.faults,
            log=log,
        )
        for number in range(replicas.count)
    )
