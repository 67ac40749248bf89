"""A result with what a person needs to read it: a table, a picture, and how it was measured."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.environment import describe_environment
from models.errors import BadOption
from models.experiments.output import cell, header, print_table
from models.files import require_folder, require_writable, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = dict[str, Any]
STANDARD_OUTPUT = "-"
_OURS = "The command writes this page."
"""Closes every page, by which it is known again."""


@dataclass(frozen=True, slots=True)
class Report:
    """A result, ready to be shown.

    Attributes:
        result: name, seed, settings and rows.
        title: what was measured.
        about: how to read the table, in Markdown.
        columns: keys of the rows to show, beside the point (K, N, S).
        draw: makes the picture.
    """

    result: Result
    title: str
    about: str
    columns: Sequence[str]
    draw: Callable[[Result], Figure]


def require_places(name: str, json_file: str | None, folder: Path | None) -> None:
    """Find out before a long run whether a report can be written, and replaces nothing but another.

    Raises:
        BadOption: it cannot.
    """
    page = None if folder is None else folder / "README.md"
    if json_file not in (None, STANDARD_OUTPUT):
        others = {} if folder is None else {"--out": page, "the picture of --out": folder / f"{name}.png"}
        require_writable("--json", Path(json_file), others=others)
    if folder is None or page is None:
        return
    require_folder("--out", folder)
    for path in (page, folder / f"{name}.png", folder / f"{name}.json"):
        require_writable("--out", path)
    if page.is_file() and _OURS not in page.read_text(errors="replace"):
        raise BadOption(
            f"--out must name a folder of its own; {folder} has a README.md that no experiment wrote, "
            "and that would be lost"
        )


def publish_report(report: Report, json_file: str | None, folder: Path | None) -> None:
    """Print the table, and write the files that were asked for.

    Args:
        report: what to show.
        json_file: where the result goes as JSON; `-` for standard output, which then gets no table.
        folder: where NAME.json, NAME.png and a README.md go; None for none of them.
    """
    result = with_circumstances(report.result)
    text = json.dumps(result, indent=1) + "\n"
    if json_file == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        print_table(result, report.columns)
        if json_file is not None:
            write_whole(Path(json_file), text.encode())
    if folder is not None:
        name = result["name"]
        folder.mkdir(parents=True, exist_ok=True)
        report.draw(result).savefig(folder / f"{name}.png")
        write_whole(folder / f"{name}.json", text.encode())
        write_whole(folder / "README.md", _page(report, result).encode())
        sys.stderr.write(f"written to {folder}\n")


def with_circumstances(result: Result) -> Result:
    """The result with all else that is needed to run the same again: the command and the environment."""
    command = f"unstraggle {shlex.join(sys.argv[1:])}"
    settings = {"command": command, **result["settings"], "environment": describe_environment()}
    return {**result, "settings": settings}


def _page(report: Report, result: Result) -> str:
    environment = result["settings"]["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    name = result["name"]
    return f"""# {name}: {report.title}

{report.about}

```
{result["settings"]["command"]}
```

![{report.title}]({name}.png)

{_markdown_table(result, report.columns)}

Seed {result["seed"]}; {environment["cores"]} cores ({environment["cpu"]}), Python {environment["python"]}, {versions}.
All settings are in `{name}.json`. {_OURS}
"""


def _markdown_table(result: Result, columns: Sequence[str]) -> str:
    lines = [
        "| " + " | ".join(["K, N, S", *map(header, columns)]) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for row in result["rows"]:
        cells = [f"{row['k']}, {row['n']}, {row['s']}", *(cell(column, row[column]) for column in columns)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
