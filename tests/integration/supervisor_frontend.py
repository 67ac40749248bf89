"""A frontend reduced to its supervisor: prints the process numbers of all it started, then waits to be killed."""

import asyncio
import json

from serving.config.schema import LocalReplicas, LogSettings, ModelSettings
from serving.logs import configure_logs
from serving.supervisor import Supervisor


class Deaf:
    def started(self, number, base_url):
        pass

    def died(self, number, exitcode, reason):
        pass


async def main():
    configure_logs(LogSettings())
    settings, model = LocalReplicas(count=3), ModelSettings(name="m", source="serves")
    async with Supervisor(settings, model, Deaf(), program="supervisor_stubs") as supervisor:
        print(json.dumps([supervisor.fork_server_pid, *supervisor.pids.values()]), flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
