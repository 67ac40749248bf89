"""Where each value comes from: command line over environment over file over default.

A layer that changes a section's `kind` drops the lower layers' keys that the new kind does not have, so that
`--set scheme.kind=none` alone is enough to try another policy on the same file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from serving.config.fields import Field, fields_of, kind_of, select, variants, walk
from serving.config.schema import Settings
from serving.errors import ConfigError

KeyPath: TypeAlias = tuple[str, ...]

ENVIRONMENT_PREFIX = "UNSTRAGGLE_"
NOT_SETTINGS = frozenset({"UNSTRAGGLE_CONFIG", "UNSTRAGGLE_DATA_DIR"})
"""Variables with our prefix that are no settings."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One value and where it was set."""

    path: KeyPath
    value: Any
    source: str

    @property
    def key(self) -> str:
        """The dotted key."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective settings, and the source of every value."""

    settings: Settings
    sources: Mapping[KeyPath, str]

    def rows(self) -> list[tuple[str, Any, str]]:
        """Key, effective value and source of every plain value, in the order of the reference."""
        effective = self.settings.model_dump(mode="json")
        known = [path for path, _, _ in walk(Settings)]
        present = dict(_leaves(effective, frozenset(known)))
        ordered = dict.fromkeys(path for path in known if path in present)
        return [(".".join(path), present[path], self.sources.get(path, "default")) for path in ordered]


def load(
    file: Path | None = None, environment: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> Loaded:
    """Read, merge and check the configuration.

    Args:
        file: a YAML file; None for none.
        environment: variables such as UNSTRAGGLE_SCHEME__KIND=none; None for none.
        overrides: command-line settings such as "scheme.kind=none"; values are YAML.

    Raises:
        ConfigError: a key is unknown, a value breaks a rule, or the file cannot be read. The message names the key,
            the rule, the value, where it was set and, for an unknown key, the nearest valid one.
    """
    layers = [
        _from_file(file) if file else [],
        _from_environment(environment or {}),
        [_from_override(text) for text in overrides],
    ]
    merged: dict[KeyPath, Entry] = {}
    for layer in layers:
        _overlay(merged, layer)
    tree: dict[str, Any] = {}
    for entry in merged.values():
        _graft(tree, entry)
    _check_keys(Settings, tree, (), merged)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, merged)) from error
    return Loaded(settings, {path: entry.source for path, entry in merged.items()})


def _from_file(file: Path) -> list[Entry]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if content is None:
        return []
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold keys and values at the top, got a {type(content).__name__}")
    return [Entry(path, value, f"file {file}") for path, value in _leaves(content, _plain_paths())]


def _from_environment(environment: Mapping[str, str]) -> list[Entry]:
    top = fields_of(Settings)
    entries = []
    for name, text in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in NOT_SETTINGS:
            continue
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        # Kubernetes sets UNSTRAGGLE_SERVICE_HOST and the like for a Service of our name: only names with the
        # double underscore, or of a top-level value, are meant for us.
        if len(path) == 1 and (path[0] not in top or variants(top[path[0]].annotation)):
            continue
        entries.append(Entry(path, _parse(name, text), f"environment {name}"))
    return entries


def _from_override(text: str) -> Entry:
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"--set needs KEY=VALUE with a dotted key, such as scheme.kind=none; got {text!r}")
    return Entry(path, _parse(f"--set {key}", value), f"command line --set {key}")


def _parse(name: str, text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} must be a YAML value, got {text!r}") from error


def _plain_paths() -> frozenset[KeyPath]:
    return frozenset(path for path, _, _ in walk(Settings))


def _leaves(
    tree: Mapping[str, Any], plain: frozenset[KeyPath], path: KeyPath = ()
) -> Iterable[tuple[KeyPath, Any]]:
    for key, value in tree.items():
        here = (*path, str(key))
        if isinstance(value, Mapping) and here not in plain:
            yield from _leaves(value, plain, here)
        else:
            yield here, value


def _overlay(merged: dict[KeyPath, Entry], layer: Sequence[Entry]) -> None:
    """Put a layer on top of those below it."""
    plain = _plain_paths()
    flat = [
        Entry(entry.path + path, value, entry.source)
        for entry in layer
        for path, value in (
            _leaves(entry.value, frozenset(), ())
            if isinstance(entry.value, Mapping) and entry.path not in plain
            else [((), entry.value)]
        )
    ]
    for entry in flat:
        if entry.path[-1] == "kind":
            _drop_other_kinds(merged, entry)
    merged.update((entry.path, entry) for entry in flat)


def _drop_other_kinds(merged: dict[KeyPath, Entry], entry: Entry) -> None:
    """Forget lower layers' keys that the section does not have under its new kind."""
    section = entry.path[:-1]
    chosen = _section_at(section, {"kind": entry.value})
    if chosen is None:
        return
    known = fields_of(chosen)
    for path in [path for path in merged if path[: len(section)] == section and len(path) > len(section)]:
        if path[len(section)] not in known:
            del merged[path]


def _section_at(path: KeyPath, value: Mapping[str, Any]) -> type | None:
    """The class at this path; its own kind is given, kinds on the way are whichever has the next key."""
    options: tuple[type, ...] = (Settings,)
    field: Field | None = None
    for name in path:
        field = next((fields_of(option)[name] for option in options if name in fields_of(option)), None)
        if field is None:
            return None
        options = variants(field.annotation)
    return select(field, value) if field is not None else None


def _graft(tree: dict[str, Any], entry: Entry) -> None:
    branch = tree
    for name in entry.path[:-1]:
        branch = branch.setdefault(name, {})
        if not isinstance(branch, dict):
            raise ConfigError(
                f"{entry.key} ({entry.source}): {name} is a plain value and has no keys below it"
            )
    branch[entry.path[-1]] = entry.value


def _check_keys(
    section: type, tree: Mapping[str, Any], path: KeyPath, merged: Mapping[KeyPath, Entry]
) -> None:
    """Refuse unknown keys, and fill in the `kind` of sections that leave it to the default."""
    known = fields_of(section)
    for name, value in tree.items():
        here = (*path, name)
        if name not in known:
            raise ConfigError(_unknown(here, known, merged))
        if not isinstance(value, dict) or not variants(known[name].annotation):
            continue
        below = select(known[name], value)
        if below is None:
            kinds = [kind_of(option) or "" for option in variants(known[name].annotation)]
            raise ConfigError(_unknown_kind((*here, "kind"), value["kind"], kinds, merged))
        if "kind" in fields_of(below):
            value.setdefault("kind", kind_of(below))
        _check_keys(below, value, here, merged)


def _unknown(path: KeyPath, known: Iterable[str], merged: Mapping[KeyPath, Entry]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(path[-1], names, n=1, cutoff=0.4)
    nearest = ".".join((*path[:-1], near[0])) if near else ""
    hint = f"did you mean {nearest}?" if near else f"valid keys here: {', '.join(names)}"
    return f"unknown key {'.'.join(path)} ({_source(path, merged)}); {hint}"


def _unknown_kind(path: KeyPath, value: object, kinds: Sequence[str], merged: Mapping[KeyPath, Entry]) -> str:
    near = difflib.get_close_matches(str(value), kinds, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return (
        f"{'.'.join(path)} must be one of {', '.join(kinds)}, got {value!r} ({_source(path, merged)}){hint}"
    )


def _source(path: KeyPath, merged: Mapping[KeyPath, Entry]) -> str:
    if path in merged:
        return merged[path].source
    return next((entry.source for where, entry in merged.items() if where[: len(path)] == path), "default")


def _explain(error: ValidationError, merged: Mapping[KeyPath, Entry]) -> str:
    """One line per broken rule."""
    kinds = {kind_of(variant) for _, variant, _ in walk(Settings)}
    lines = []
    for problem in error.errors(include_url=False):
        # Pydantic puts the chosen kind of a union into the location; the user's key does not have it.
        steps = [str(step) for step in problem["loc"]]
        path = tuple(step for index, step in enumerate(steps) if index == 0 or step not in kinds)
        rule = problem["msg"].removeprefix("Value error, ")
        got = "" if problem["type"] in ("missing", "value_error") else f", got {problem['input']!r}"
        lines.append(f"{'.'.join(path)}: {rule}{got} ({_source_of_rule(path, rule, merged)})")
    return "\n".join(lines)


def _source_of_rule(path: KeyPath, rule: str, merged: Mapping[KeyPath, Entry]) -> str:
    """Where the key was set that a section's rule names first; rules across keys carry the section's path."""
    below = [where for where in merged if where[: len(path)] == path]
    places = {where: re.search(rf"\b{re.escape(where[-1])}\b", rule) for where in below}
    named = [(place.start(), where) for where, place in places.items() if place]
    return merged[min(named)[1]].source if named else _source(path, merged)
