"""Setting values in the text of a YAML file: its comments, order and every other line stay.

Only plain files are edited: block or flow mappings, two levels deep. Whatever else a file does (anchors that are used
twice, merged keys) is left alone, for every edit is checked: the new text must parse to the old content with just
these values changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from serving.errors import ConfigError

ValuePath: TypeAlias = tuple[str, str]
"""A section and a key in it."""


def with_values(text: str, values: Mapping[ValuePath, Any]) -> str:
    """Set values in a YAML text.

    Args:
        text: the file's content; empty for a new file.
        values: section and key to the new value, a plain one.

    Returns:
        The new text. A value that is there is replaced where it stands; a new key goes below the others of its
        section, a new section to the end.

    Raises:
        ConfigError: the text is not one of those that can be edited; the message says what to write by hand.
    """
    edited = text
    try:
        for (section, key), value in values.items():
            edited = _with_value(edited, section, key, value)
        same = yaml.safe_load(edited) == _expected(text, values)
    except (yaml.YAMLError, TypeError, AttributeError):
        same = False
    if not same:
        raise ConfigError(
            f"this YAML file cannot be edited safely; write into it yourself:\n{_lines(values)}"
        )
    return edited


def _expected(text: str, values: Mapping[ValuePath, Any]) -> dict[str, Any]:
    content = _unshared(yaml.safe_load(text)) or {}
    for (section, key), value in values.items():
        content.setdefault(section, {})[key] = value
    return dict(content)


def _unshared(value: Any) -> Any:  # noqa: ANN401 (whatever YAML holds)
    """A copy in which mappings that one anchor made are mappings of their own."""
    return {key: _unshared(below) for key, below in value.items()} if isinstance(value, dict) else value


def _lines(values: Mapping[ValuePath, Any]) -> str:
    """The values as YAML in block style."""
    tree: dict[str, dict[str, Any]] = {}
    for (section, key), value in values.items():
        tree.setdefault(section, {})[key] = value
    return yaml.safe_dump(tree, sort_keys=False).rstrip()


def _with_value(text: str, section: str, key: str, value: object) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    below = _child(root, section)
    if below is None:
        return _with_section(text, section, key, value)
    if not isinstance(below, MappingNode):
        raise TypeError(f"{section} has no keys")
    if not below.value:
        return _spliced(text, below.start_mark.index, below.end_mark.index, f"{{{key}: {_scalar(value)}}}")
    found = _child(below, key)
    if isinstance(found, ScalarNode):
        return _spliced(text, found.start_mark.index, found.end_mark.index, _scalar(value))
    return _with_key(text, below, key, value)


def _child(node: Node | None, key: str) -> Node | None:
    """The value of a key; the last one, should the key be there twice, as when the file is loaded."""
    pairs = node.value if isinstance(node, MappingNode) else []
    return next((value for name, value in reversed(pairs) if name.value == key), None)


def _with_section(text: str, section: str, key: str, value: object) -> str:
    newline = _newline(text)
    start = text if not text or text.endswith("\n") else text + newline
    gap = newline if start else ""
    return f"{start}{gap}{section}:{newline}  {key}: {_scalar(value)}{newline}"


def _with_key(text: str, section: MappingNode, key: str, value: object) -> str:
    """Put a new key below, or behind, the last one of its section."""
    name, last = section.value[-1]
    entry = f"{key}: {_scalar(value)}"
    end = last.end_mark.index
    if section.flow_style:
        return f"{text[:end]}, {entry}{text[end:]}"
    stop = text.find("\n", end)
    line_end = len(text) if stop < 0 else stop
    if text[line_end - 1 : line_end] == "\r":
        line_end -= 1
    return f"{text[:line_end]}{_newline(text)}{' ' * name.start_mark.column}{entry}{text[line_end:]}"


def _spliced(text: str, start: int, end: int, new: str) -> str:
    """Replace text[start:end]; a comment behind it keeps its column where there is room."""
    rest = text[end:].lstrip(" ")
    gap = len(text) - end - len(rest)
    if gap and rest.startswith("#"):
        new += " " * max(1, gap + (end - start) - len(new))
        return text[:start] + new + rest
    return text[:start] + new + text[end:]


def _scalar(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
