"""The configuration reference, written from the settings classes; docs/config.md is its output."""

from __future__ import annotations

import types
from typing import Annotated, Literal, Union, get_args, get_origin

import yaml

from serving.config.fields import REQUIRED, Field, fields_of, kind_of, variants
from serving.config.schema import Settings

INTRODUCTION = """# Configuration

Precedence: command line (`--set scheme.kind=none`) over environment (`UNSTRAGGLE_SCHEME__KIND=none`) over the
YAML file over the defaults below. Unknown keys are errors. A layer that changes a section's `kind` drops the keys of
lower layers that the new kind does not have. `unstraggle config show` prints every effective value with its
source. This page is printed by `unstraggle config reference`.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    return INTRODUCTION + "".join(_section(Settings, "", "Top level"))


def _section(section: type, prefix: str, title: str) -> list[str]:
    fields = fields_of(section)
    purpose = (section.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    lines = [f"\n## {title}\n\n" + (f"{purpose}\n\n" if prefix else "")]
    plain = [field for field in fields.values() if not variants(field.annotation)]
    if plain:
        lines.append("| key | values | default | meaning |\n|---|---|---|---|\n")
        lines += [_row(prefix, field) for field in plain]
    for name, field in fields.items():
        for variant in variants(field.annotation):
            below = f"{prefix}{name}"
            kind = kind_of(variant)
            suffix = f" (kind: {kind})" if kind else ""
            lines += _section(variant, f"{below}.", f"`{below}`{suffix}")
    return lines


def _row(prefix: str, field: Field) -> str:
    default = (
        "required" if field.default is REQUIRED else f"`{yaml.safe_dump(field.default).split(chr(10))[0]}`"
    )
    meaning = " ".join(field.description.split()) or ("selects this section" if field.name == "kind" else "")
    return f"| `{prefix}{field.name}` | {_values(field.annotation)} | {default} | {meaning} |\n"


def _values(annotation: object) -> str:
    if get_origin(annotation) is Annotated:
        return _values(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_values(option) for option in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"list of {_values(get_args(annotation)[0])}"
    names = {int: "integer", float: "number", str: "text", bool: "true or false", types.NoneType: "null"}
    return names[annotation] if isinstance(annotation, type) else str(annotation)
