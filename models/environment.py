"""Where a result was measured: machine, versions, revision."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("unstraggle", "aiohttp", "numpy", "scipy", "uvloop", "torch")


def describe_environment() -> dict[str, object]:
    """Machine, operating system, versions and git revision, as JSON values."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "git_commit": _git_commit(Path(__file__).resolve().parent.parent),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _git_commit(checkout: Path) -> str | None:
    """The checkout's revision, with "-dirty" after it when files differ; None when this is no checkout."""
    git = shutil.which("git")
    # An installed package may lie inside somebody else's checkout, whose revision would say nothing.
    if git is None or not (checkout / ".git").exists():
        return None
    command = [git, "-C", str(checkout), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
