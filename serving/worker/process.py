"""What runs in a worker's process. The fork server imports this module, and torch with it, once for all."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import uvicorn
import uvloop

from models.errors import ModelError
from models.registry import library_of
from models.runner import ModelRunner
from models.spec import ModelSpec, TensorInfo
from serving.listen import BACKLOG, uvicorn_config
from serving.logs import configure_logs
from serving.types import ModelMetadata, TensorSpec
from serving.worker.app import ModelService, create_worker_app
from serving.worker.faults import FaultInjector
from serving.worker.lifetime import die_with_lifeline
from serving.worker.messages import WorkerLink
from serving.worker.settings import WorkerSettings

SHUTDOWN_GRACE_S = 3
"""After SIGTERM: seconds that calls in hand get to finish; less than the supervisor's patience."""
EXIT_LOAD_FAILED = 3
MODEL_VERSION = "1"


def preload(source: str) -> None:
    """Import the library that the source needs. A user's own module is left to the workers: it may start threads.

    Where this fails, the workers fail at the same, and say why.
    """
    with contextlib.suppress(ModelError, ImportError):
        library = library_of(source)
        if library is not None:
            importlib.import_module(library)


def run_worker(settings: WorkerSettings, link: WorkerLink) -> int:
    """Load the model and serve it until SIGTERM; gives the exit code."""
    # uvicorn raises the signal once more when it has shut down: this turns it into a clean exit.
    signal.signal(signal.SIGTERM, _exit_well)
    configure_logs(settings.log)
    try:
        runner = ModelRunner(settings.source, settings.threads)
    except ModelError as error:
        link.load_failed(str(error))
        return EXIT_LOAD_FAILED
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(_serve(runner, settings, link))
    return os.EX_OK


async def _serve(runner: ModelRunner, settings: WorkerSettings, link: WorkerLink) -> None:
    die_with_lifeline(link.lifeline)
    faults = FaultInjector(settings.faults, settings.number)
    with (
        ThreadPoolExecutor(1, thread_name_prefix="model") as executor,
        socket.create_server((settings.host, 0), backlog=BACKLOG) as listener,
    ):
        service = ModelService(
            runner, metadata_of(settings.model, runner.spec), settings.concurrency, faults, executor
        )
        config = uvicorn_config(create_worker_app(service, faults, settings), grace_s=SHUTDOWN_GRACE_S)
        # The kernel holds connections that come before the server accepts them.
        link.listening(listener.getsockname()[1])
        await uvicorn.Server(config).serve(sockets=[listener])


def metadata_of(name: str, spec: ModelSpec) -> ModelMetadata:
    """A model's contract in the words of the protocol."""
    return ModelMetadata(
        name=name,
        versions=(MODEL_VERSION,),
        platform=spec.platform,
        inputs=(_tensor_spec(spec.input),),
        outputs=(_tensor_spec(spec.output),),
    )


def _tensor_spec(tensor: TensorInfo) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.datatype, tensor.shape)


def _exit_well(*_: object) -> None:
    sys.exit(os.EX_OK)
