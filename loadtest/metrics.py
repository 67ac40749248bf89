"""What the replicas spent, read from the server's own Prometheus counters."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

CALLS = "unstraggle_replica_calls_total"
"""Counter of calls to replicas, whatever became of them."""

SECONDS = "unstraggle_replica_call_seconds_sum"
"""Sum of the time that calls occupied replicas; a cancelled call's ends at its cancellation."""

_SETTLE_POLL_S = 0.25
_SETTLE_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplicaCost:
    """Calls to replicas, and the seconds that they occupied them, over the server's life or a part of it."""

    calls: int
    seconds: float

    def since(self, earlier: ReplicaCost) -> ReplicaCost:
        """What was spent after `earlier` was read."""
        return ReplicaCost(self.calls - earlier.calls, self.seconds - earlier.seconds)


def parse_replica_cost(exposition: str) -> ReplicaCost | None:
    """Sum the replica counters over all their labels; None when the text holds none.

    Args:
        exposition: what `/metrics` answers, in the Prometheus text format.

    Raises:
        ValueError: the text is not in that format.
    """
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name in (CALLS, SECONDS):
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    if not totals:
        return None
    return ReplicaCost(round(totals.get(CALLS, 0.0)), totals.get(SECONDS, 0.0))


async def read_replica_cost(session: aiohttp.ClientSession, url: str) -> ReplicaCost | None:
    """Read the replica counters of the server at `url`; None when it does not publish them."""
    try:
        async with session.get(f"{url}/metrics") as response:
            return parse_replica_cost(await response.text()) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None


async def read_settled_cost(session: aiohttp.ClientSession, url: str) -> ReplicaCost | None:
    """Read the replica counters once they stand still: calls may outlive the last reply.

    Gives up waiting after 5 s and returns the last reading.
    """
    last = await read_replica_cost(session, url)
    for _ in range(round(_SETTLE_LIMIT_S / _SETTLE_POLL_S)):
        await asyncio.sleep(_SETTLE_POLL_S)
        current = await read_replica_cost(session, url)
        if current == last:
            break
        last = current
    return last
