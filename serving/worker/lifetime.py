"""No process outlives the frontend: two safeguards, each for a case that the other cannot see."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
EXIT_ABANDONED = 4
"""Exit code of a process that found its frontend gone."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies: that ends even a stopped process. Linux only.

    Args:
        parent: the parent's process number; if it is gone already, this process ends here.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_ABANDONED)


def die_with_lifeline(lifeline: int) -> None:
    """End this process when the frontend no longer holds the other end of a pipe, on every platform.

    It ends at once: nobody is left to be answered.

    Args:
        lifeline: the pipe's reading end, to be watched by the running event loop.
    """
    asyncio.get_running_loop().add_reader(lifeline, os._exit, EXIT_ABANDONED)
