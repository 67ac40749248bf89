"""What may be set, read off the settings classes: for checking keys and for writing the reference."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a section.

    Attributes:
        name: the key.
        annotation: the type of its value.
        default: the default, in YAML terms; REQUIRED where there is none.
        description: one line for the reference.
    """

    name: str
    annotation: Any
    default: Any
    description: str


REQUIRED = object()
"""Marks a field without default."""


def variants(annotation: object) -> tuple[type, ...]:
    """The section classes that an annotation admits: none for a plain value, several for a union by `kind`."""
    if get_origin(annotation) is Annotated:
        return variants(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(kind for option in get_args(annotation) for kind in variants(option))
    is_section = isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)
    )
    return (annotation,) if is_section and isinstance(annotation, type) else ()


def kind_of(section: type) -> str | None:
    """The value of `kind` that selects this class; None for a section without kinds."""
    hint = typing.get_type_hints(section).get("kind")
    return str(get_args(hint)[0]) if get_origin(hint) is Literal else None


def select(field: Field, value: Mapping[str, Any]) -> type | None:
    """The class that `value` is meant for: by its `kind` where there are several, else by the default's."""
    options = variants(field.annotation)
    if len(options) <= 1:
        return options[0] if options else None
    default = field.default.get("kind") if isinstance(field.default, Mapping) else None
    wanted = value.get("kind", default)
    return next((option for option in options if kind_of(option) == wanted), None)


@cache
def fields_of(section: type) -> Mapping[str, Field]:
    """The keys of a section, in the order of their definition."""
    hints = typing.get_type_hints(section, include_extras=True)
    if issubclass(section, BaseModel):
        return {
            name: Field(
                name,
                hints[name],
                REQUIRED if info.is_required() else _plain(info.get_default()),
                info.description or "",
            )
            for name, info in section.model_fields.items()
        }
    descriptions = {
        name: property_["description"]
        for base in reversed(section.__mro__)
        if dataclasses.is_dataclass(base)
        for name, property_ in TypeAdapter(base).json_schema().get("properties", {}).items()
        if "description" in property_  # each class tells of its own fields only
    }
    return {
        field.name: Field(
            field.name,
            hints[field.name],
            REQUIRED if field.default is dataclasses.MISSING else _plain(field.default),
            descriptions.get(field.name, ""),
        )
        for field in dataclasses.fields(section)  # type: ignore[arg-type]
    }


def walk(section: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type, Field]]:
    """Every plain value below a section, depth first: its path, the class that holds it, and the field."""
    for name, field in fields_of(section).items():
        below = variants(field.annotation)
        if not below:
            yield (*path, name), section, field
        for variant in below:
            yield from walk(variant, (*path, name))


def _plain(value: object) -> object:
    """A default in YAML terms: sections become mappings, tuples become lists."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value
