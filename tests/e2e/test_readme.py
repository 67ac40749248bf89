"""The README's code blocks, run in order against the server that its first command starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import REPOSITORY, serving

pytestmark = pytest.mark.live

README = (REPOSITORY / "README.md").read_text()
FENCE = re.compile(r"(<!-- not run: [^\n]*-->\n)?```(bash|python)\n(.*?)```", re.DOTALL)
BLOCKS = [(language, code) for skipped, language, code in FENCE.findall(README) if not skipped]
SERVE = "make serve\n"


def run(language: str, code: str, folder: Path) -> str:
    """Run one block in a scratch folder that looks like the repository's."""
    if language == "python":
        command = [sys.executable, "-W", "ignore", "-c", code]
    else:
        command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_blocks_run_and_show_what_the_text_says(tmp_path: Path) -> None:
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("unstraggle", "python"):
        (binaries / name).symlink_to(Path(sys.executable).parent / name)
    assert BLOCKS[0] == ("bash", SERVE)
    with serving("log.level=error") as server:

        def tour(language: str, code: str) -> str:
            here = code.replace("127.0.0.1:8000", server.address)
            here = re.sub(r"unstraggle replicas\b", f"unstraggle replicas --url {server.url}", here)
            return run(language, here, tmp_path)

        shown = [tour(language, code) for language, code in BLOCKS[1:]]
    asked, stopped, ejected, recovered, client, *_ = shown
    assert '"obtained":"decoded","replicas_used":10' in asked
    assert '"obtained":"decoded","replicas_used":10' in stopped
    assert re.search(r"replica-3 +ejected", ejected)
    assert recovered.count("healthy") == 12
    right = re.fullmatch(r"(\d+) of 800 digits right\n", client)
    assert right is not None
    assert int(right[1]) >= 0.88 * 800


def test_every_local_link_leads_somewhere() -> None:
    pages = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += sorted((REPOSITORY / "docs").rglob("*.md"))
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
