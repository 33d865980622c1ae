"""Changes to the settings files of programs (JSON and TOML), which keep the rest of a file byte for byte.

A change adds one value. Each function takes the text of a file and returns the changed text. The text is parsed again:
if the result is not exactly the old settings with the change, the file is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

INDENT = "  "


class CannotEdit(Exception):
    """Reason why a file cannot be changed."""


@dataclass(frozen=True)
class Change:
    """Value that is added to a settings file: the value of the last key of `path` or, if `append`, an item of the list
    at `path`. `existing` is the number of keys that the file had before. `replaced` is the value that the key had
    before; None: the key is new."""

    path: tuple[str, ...]
    value: Any
    append: bool = False
    existing: int = 0
    replaced: Any = None


# ---- JSON


class _Member(NamedTuple):
    """Member of an object, or item of a list (`key` is None), with the positions of its beginning, its value and its
    end."""

    key: str | None
    begin: int
    value: int
    end: int


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(values := dict(pairs)) < len(pairs):
        raise ValueError("a key is repeated")
    return values


def parse_json(text: str) -> dict[str, Any]:
    """Return the settings in a JSON text; a text without content has no settings."""
    try:
        value = json.loads(text or "{}", object_pairs_hook=_without_repeated_keys)
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not plain JSON ({error})") from error
    if not isinstance(value, dict):
        raise CannotEdit("it is not a JSON object")
    return value


def add_json(text: str, change: Change) -> tuple[str, Change]:
    """Return the text with a value added, and the change with the number of keys that existed."""
    settings = parse_json(text)
    text = text or "{}\n"
    container: Any = settings
    for depth, key in enumerate(change.path):
        if not isinstance(container, dict):
            raise CannotEdit(f"{'.'.join(change.path[:depth])} is not an object")
        if key not in container:
            break
        container = container[key]
    else:
        depth = len(change.path)
        if not change.append:
            raise CannotEdit(f"it has another value for {'.'.join(change.path)}")
        if not isinstance(container, list):
            raise CannotEdit(f"{'.'.join(change.path)} is not a list")
    value = [change.value] if change.append and depth < len(change.path) else change.value
    for key in reversed(change.path[depth + 1 :]):
        value = {key: value}
    key_added = change.path[depth] if depth < len(change.path) else None
    new = _insert(text, _start(text, change.path[:depth]), key_added, value)
    change = Change(change.path, change.value, change.append, depth)
    expected = _with(settings, change)
    if parse_json(new) != expected:
        raise CannotEdit("it has an unusual form")
    return new, change


def remove_json(text: str, change: Change) -> str:
    """Return the text without an added value, and without the objects that the change created if they are empty."""
    settings = parse_json(text)
    if not has(settings, change):
        raise CannotEdit(f"{'.'.join(change.path)} was changed or removed")
    path: list[Any] = [*change.path]
    if change.append:
        path.append(_at(settings, change.path).index(change.value))
    while True:
        text = _delete(text, path)
        path.pop()
        if len(path) <= change.existing or _at(parse_json(text), path):
            return text


def has(settings: Mapping[str, Any], change: Change) -> bool:
    """Whether settings have the value of a change."""
    value = _at(settings, change.path)
    return isinstance(value, list) and change.value in value if change.append else bool(value == change.value)


def _with(settings: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return settings with a change."""
    result = deepcopy(dict(settings))
    container: Any = result
    for key in change.path[:-1]:
        container = container.setdefault(key, {})
    if change.append:
        container.setdefault(change.path[-1], []).append(change.value)
    else:
        container[change.path[-1]] = change.value
    return result


def _at(settings: Any, path: Sequence[Any]) -> Any:
    """Return the value at a path of keys and list positions; None without such a value."""
    for key in path:
        try:
            settings = settings[key]
        except (LookupError, TypeError):
            return None
    return settings


_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _skip(text: str, at: int) -> int:
    """Return the position of the next character that is not white space."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _members(text: str, start: int) -> tuple[list[_Member], int]:
    """Return the members of the object or list at `start`, and the position of its closing bracket."""
    members, at, closing = list[_Member](), _skip(text, start + 1), {"{": "}", "[": "]"}[text[start]]
    while text[at] != closing:
        begin, key = at, None
        if closing == "}":
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        members.append(_Member(key, begin, at, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return members, at


def _start(text: str, path: Sequence[Any]) -> int:
    """Return the position of the value at a path."""
    start = _skip(text, 0)
    for key in path:
        members, _ = _members(text, start)
        start = members[key].value if isinstance(key, int) else next(m.value for m in members if m.key == key)
    return start


def _insert(text: str, start: int, key: str | None, value: Any) -> str:
    """Insert a member at the end of the object or list at `start`, in the style of the members before it."""
    members, end = _members(text, start)
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if members and "\n" not in text[start : members[-1].begin]:
        at = members[-1].end
        return f"{text[:at]}, {name}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    indents = re.search(r"\n([ \t]+)", text)
    unit = indents[1] if indents else INDENT
    outer = _margin(text, start)
    inner = _margin(text, members[-1].begin) if members else outer + unit
    body = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + inner)
    if members:
        at = members[-1].end
        return f"{text[:at]},{newline}{inner}{name}{body}{text[at:]}"
    return f"{text[: start + 1]}{newline}{inner}{name}{body}{newline}{outer}{text[end:]}"


def _margin(text: str, at: int) -> str:
    """Return the white space at the beginning of the line at a position."""
    match = re.match(r"[ \t]*", text[text.rfind("\n", 0, at) + 1 : at])
    assert match is not None
    return match[0]


def _delete(text: str, path: Sequence[Any]) -> str:
    """Delete the member at a path, with one comma."""
    start = _start(text, path[:-1])
    members, end = _members(text, start)
    key = path[-1]
    n = key if isinstance(key, int) else next(n for n, member in enumerate(members) if member.key == key)
    if len(members) == 1:
        return text[: start + 1] + text[end:]
    if n:
        return text[: members[n - 1].end] + text[members[n].end :]
    return text[: members[0].begin] + text[members[1].begin :]


# ---- TOML

_TABLE = re.compile(r"[ \t]*\[")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the settings in a TOML text."""
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not TOML ({error})") from error


def add_toml(text: str, change: Change) -> tuple[str, Change]:
    """Return the text with a value added, and the change with the value that it replaced. A value at the top level is a
    text or a list of texts; its line replaces a list of the same name, and otherwise is the first line. Other values
    are tables, which are added at the end."""
    settings = parse_toml(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if isinstance(change.value, dict):
        if _at(settings, change.path) is not None:
            raise CannotEdit(f"it has another value for {'.'.join(change.path)}")
        lines = [f"[{'.'.join(change.path)}]", *(f"{key} = {_toml(value)}" for key, value in change.value.items())]
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        new = text + gap + "".join(line + newline for line in lines)
    else:
        (key,) = change.path
        previous = settings.get(key)
        if previous is not None and not isinstance(previous, list):
            raise CannotEdit(f"it has another value for {key}")
        change = Change(change.path, change.value, replaced=previous)
        begin, end = _statement(text, key) if previous is not None else (0, 0)
        new = f"{text[:begin]}{key} = {_toml(change.value)}{newline}{text[end:]}"
    if parse_toml(new) != _with(settings, change):
        raise CannotEdit("it has an unusual form")
    return new, change


def remove_toml(text: str, change: Change) -> str:
    """Return the text without an added value, or with the value that it replaced."""
    if not has(parse_toml(text), change):
        raise CannotEdit(f"{'.'.join(change.path)} was changed or removed")
    if isinstance(change.value, dict):
        begin, end = _table(text, ".".join(change.path))
        begin -= text[:begin].endswith(("\n\n", "\r\n\r\n")) * (2 if text[:begin].endswith("\r\n") else 1)
        new = text[:begin] + text[end:]
    else:
        begin, end = _statement(text, change.path[0])
        newline = "\r\n" if "\r\n" in text else "\n"
        old = "" if change.replaced is None else f"{change.path[0]} = {_toml(change.replaced)}{newline}"
        new = text[:begin] + old + text[end:]
    after = parse_toml(new)
    if _at(after, change.path) != change.replaced:
        raise CannotEdit("it has an unusual form")
    return new


def _toml(value: Any) -> str:
    """Return a text, or a list of texts, in TOML. JSON's escapes are TOML's."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _statement(text: str, key: str) -> tuple[int, int]:
    """Return the span of the lines of a key at the top level."""
    lines = text.splitlines(keepends=True)
    tables = [n for n, line in enumerate(lines) if _TABLE.match(line)]
    for first in [n for n, line in enumerate(lines) if re.match(rf'[ \t]*"?{key}"?[ \t]*=', line)]:
        for last in range(first, len(lines)):
            try:
                is_whole = key in tomllib.loads("".join(lines[first : last + 1]).replace("\r\n", "\n"))
            except ValueError:
                continue
            if is_whole and not any(n < first for n in tables):
                begin = sum(map(len, lines[:first]))
                return begin, begin + sum(map(len, lines[first : last + 1]))
    raise CannotEdit(f"{key} has an unusual form")


def _table(text: str, name: str) -> tuple[int, int]:
    """Return the span of a table, from its header to the next header."""
    lines = text.splitlines(keepends=True)
    for first, line in enumerate(lines):
        if line.strip() == f"[{name}]":
            last = next((n for n in range(first + 1, len(lines)) if _TABLE.match(lines[n])), len(lines))
            begin = sum(map(len, lines[:first]))
            return begin, begin + sum(map(len, lines[first:last]))
    raise CannotEdit(f"{name} has an unusual form")


# ---- whole files

TEXT = "text"
"""Key of the text of a file that practicum writes as a whole."""


def parse_text(text: str) -> dict[str, Any]:
    """Return the text as the only setting."""
    return {TEXT: text}


def add_text(text: str, change: Change) -> tuple[str, Change]:
    """Return the text of a file that practicum writes as a whole."""
    if text:
        raise CannotEdit("it exists already")
    return str(change.value), change


def remove_text(text: str, change: Change) -> str:
    """Return an empty text, if the file is unchanged."""
    if text != change.value:
        raise CannotEdit("it was changed")
    return ""


@dataclass(frozen=True)
class Format:
    """Functions that read the settings in files of one format, and that add and remove values."""

    parse: Callable[[str], dict[str, Any]]
    add: Callable[[str, Change], tuple[str, Change]]
    remove: Callable[[str, Change], str]


FORMATS: Mapping[str, Format] = {
    ".json": Format(parse_json, add_json, remove_json), ".toml": Format(parse_toml, add_toml, remove_toml),
    ".js": Format(parse_text, add_text, remove_text),
}  # fmt: skip
"""Formats by suffix."""
