"""JSON text in and out, and the few rules that every JSON field of the protocol shares."""

from __future__ import annotations

import json
from reprlib import Repr
from typing import Any, Final

import orjson

from serving.errors import BadRequest

Buffer = bytes | bytearray | memoryview
"""Bytes on the wire; a memoryview where slicing must not copy."""

_NON_FINITE_TOKENS: Final = (b"NaN", b"Infinity")


def parse_json(text: Buffer) -> object:
    """Parse JSON; the tokens NaN, Infinity and -Infinity, which public clients write, are accepted too.

    Raises:
        BadRequest: it is not JSON, not UTF-8, or nested too deeply.
    """
    document: object
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        plain = bytes(text)
        if not any(token in plain for token in _NON_FINITE_TOKENS):
            raise BadRequest(f"the body is not valid JSON: {error}") from error
        document = _parse_with_tokens(plain)
    return document


def _parse_with_tokens(text: bytes) -> object:
    document: object
    try:
        document = json.loads(text.decode("utf-8"))
    except RecursionError as error:
        raise BadRequest("the body is not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    return document


def parse_object(text: Buffer) -> dict[str, Any]:
    """Parse JSON whose top level must be an object.

    Raises:
        BadRequest: it is not JSON, or not an object.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise BadRequest(f"the body must be a JSON object, got {shown(document)}")
    return document


class _Brief(Repr):
    """Values as the client wrote them, in JSON, and short."""

    def repr_NoneType(self, value: None, level: int) -> str:  # noqa: ARG002, N802
        return "null"

    def repr_bool(self, value: bool, level: int) -> str:  # noqa: ARG002
        return "true" if value else "false"

    def repr_str(self, value: str, level: int) -> str:  # noqa: ARG002
        rest = "..." if len(value) > self.maxstring else ""
        return json.dumps(value[: self.maxstring] + rest, ensure_ascii=False)


def shown(value: object) -> str:
    """The value as it goes into an error message: in JSON, and short, however large the value is."""
    brief = _Brief()
    brief.maxstring = brief.maxother = 60
    brief.maxlist = brief.maxtuple = 8
    return brief.repr(value)


def list_at(document: dict[str, Any], key: str) -> list[Any]:
    """The list under a key; empty where the key is absent or null.

    Raises:
        BadRequest: it is something else.
    """
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest(f'"{key}" must be a list, got {shown(value)}')
    return value


def object_at(document: dict[str, Any], key: str, where: str = "") -> dict[str, Any]:
    """The object under a key; empty where the key is absent or null.

    Raises:
        BadRequest: it is something else.
    """
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f'{where}"{key}" must be an object, got {shown(value)}')
    return value


def optional_string(document: dict[str, Any], key: str) -> str | None:
    """The string under a key; None where the key is absent or null.

    Raises:
        BadRequest: it is something else.
    """
    value = document.get(key)
    if value is None or isinstance(value, str):
        return value
    raise BadRequest(f'"{key}" must be a string, got {shown(value)}')


def named_entry(entry: object, where: str) -> tuple[dict[str, Any], str]:
    """An entry of `inputs` or `outputs` and its name.

    Raises:
        BadRequest: it is not an object, or has no name.
    """
    if not isinstance(entry, dict):
        raise BadRequest(f"{where} must be an object, got {shown(entry)}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(f'{where}: "name" must be a non-empty string, got {shown(name)}')
    return entry, name
