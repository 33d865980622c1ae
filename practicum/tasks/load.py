"""Reads files of tasks: JSON lines, one task per line.

A file comes from outside, so every error names file, line and field. No task is returned before the last line is read,
so that nothing is paid for a file that is bad halfway.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.files import read_bytes
from practicum.core.trust import Trust
from practicum.core.types import Task
from practicum.tasks.scoring.registry import meta_fault
from practicum.tasks.scoring.rules import normalise, target_fault

MAX_CHOICES = 100
"""More distinct targets than this are open answers rather than choices."""

MAX_CHOICE = 80
"""A target of more characters is an open answer rather than a choice."""


class _Line(BaseModel):
    """One line with the names of our fields. Strict, so that no number is silently taken for a text."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    id: str | int | None = Field(None, description="a string or a whole number")
    input: str | list[str] = Field(description="a string or a list of strings")
    target: str | int | float | bool | None = Field(None, description="a string, a number, true or false")
    meta: dict[str, Any] | None = Field(None, description="an object")


def load_tasks(path: Path | str, fields: Mapping[str, str] | None = None, trust: Trust = "own") -> list[Task]:
    """The tasks of a JSONL file, in order; a line is `{"id"?, "input", "target"?, "meta"?}`.

    `fields` maps these names to the file's keys, as in `{"input": "question", "target": "answer"}`. Other keys of a
    line are kept in `meta`. A list as input is joined with ", "; a number or bool as target becomes text as in JSON. A
    line without an id is named by its number ("line-7"; the first line is 1, blank lines count). `trust` says where the
    tasks come from: what is learned from others than one's own waits for review.

    Raises TaskFileError when the file is missing, empty or malformed.
    """
    keys = {name: name for name in _Line.model_fields}
    for name in fields or {}:
        if name not in keys:
            raise TaskFileError(f"`fields`: unknown name {name!r}; a task has {', '.join(keys)}")
    keys |= fields or {}
    records = list(numbered_records(Path(path)))
    if not records:
        raise TaskFileError(f'{path}: the file holds no tasks; write one JSON object per line, with at least "input"')
    parsed = ((number, replace(_parse_task(record, keys, path, number), trust=trust)) for number, record in records)
    tasks = unique_tasks(parsed, path)
    for name, key in (fields or {}).items():
        if all(key not in record for _, record in records):
            raise TaskFileError(f"{path}: no line has a field {key!r}, which `fields` reads as {name!r}")
    return tasks


def unique_tasks(numbered: Iterable[tuple[int, Task]], path: Path | str) -> list[Task]:
    """The tasks of numbered lines. Raises TaskFileError for an id that two lines have."""
    lines: dict[str, int] = {}
    tasks = []
    for number, task in numbered:
        if (first := lines.setdefault(task.id, number)) != number:
            used = f"was already used on line {first}; ids must differ"
            raise TaskFileError(f"{path} line {number}: id {task.id!r} {used}")
        tasks.append(task)
    return tasks


def require_targets(
    tasks: Sequence[Task], scorer_name: str, path: Path | str, choices: Sequence[str] | None = None
) -> None:
    """Check that the scorer can use the target of every task, before anything is paid for. Raises TaskFileError, naming
    the first task whose target is missing, cannot be used (a broken pattern, no number) or is not among `choices`."""
    known = {normalise(choice) for choice in choices or ()}
    for task in tasks:
        if task.target is None:
            raise TaskFileError(
                f'{path}: task {task.id!r} has no target, which scorer {scorer_name!r} needs; add "target", '
                "name its field with `fields=target=NAME`, or choose a scorer that needs none"
            )
        if fault := target_fault(scorer_name, task.target):
            raise TaskFileError(f"{path}: target of task {task.id!r} {fault}, so scorer {scorer_name!r} cannot use it")
        if known and normalise(task.target) not in known:
            raise TaskFileError(
                f"{path}: target {task.target!r} of task {task.id!r} is not among the choices; list all of them "
                "(`choices=a,b,c`)"
            )


def require_meta(tasks: Sequence[Task], scorer_name: str, path: Path | str) -> None:
    """Check that the `meta` of every task holds what the scorer needs, before anything is paid for. Raises
    TaskFileError, naming the first task that lacks it."""
    for task in tasks:
        if fault := meta_fault(scorer_name, task.meta):
            raise TaskFileError(f"{path}: task {task.id!r} {fault}")


def parse_fields(text: str) -> dict[str, str]:
    """`"input=context,target=answer"` as a mapping for `load_tasks`. Raises UsageError for text of another form."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, _, key = (piece.strip() for piece in part.partition("="))
        if not name or not key:
            raise UsageError(f"`fields={text}`: {part!r} is not NAME=FIELD, such as input=context")
        if name in fields:
            raise UsageError(f"`fields={text}`: {name!r} is given twice")
        fields[name] = key
    return fields


def choices_from(tasks: Sequence[Task]) -> tuple[str, ...]:
    """The distinct targets of tasks to learn from, sorted, for `--choices auto`.

    Raises UsageError if there are fewer than two, or if they are open answers: more than MAX_CHOICES, one longer than
    MAX_CHOICE or of several lines, or each found in fewer than two tasks on average.
    """
    targets = [task.target for task in tasks if task.target is not None]
    choices = sorted(set(targets))
    advice = "; leave out `choices` if answers are open, else list them (`choices=a,b,c`)"
    if len(choices) < 2:
        found = f"only {choices[0]!r}" if choices else "no target"
        raise UsageError(f"`choices=auto`: the tasks to learn from have {found}{advice}")
    if long := next((text for text in choices if len(text) > MAX_CHOICE or "\n" in text), None):
        raise UsageError(f"`choices=auto`: the target {long[:40]!r}… is too long for a choice{advice}")
    if len(choices) > min(MAX_CHOICES, len(targets) / 2):
        raise UsageError(
            f"`choices=auto`: {len(choices)} different targets in {len(targets)} tasks are too many for choices{advice}"
        )
    return tuple(choices)


def numbered_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and JSON object of each line that is not blank. Raises TaskFileError when one cannot be read."""
    # Unlike splitlines(), this keeps U+2028 and similar characters, which a JSON string may hold unescaped.
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            # Unlike `json`, this refuses NaN and halves of surrogate pairs, which neither a store nor a server accepts.
            record = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            reason = str(error).replace("at line 1 column", "at column")
            where = f"{path} line {number}"
            raise TaskFileError(f"{where}: not JSON ({reason}); each line must be one JSON object") from None
        if not isinstance(record, dict):
            raise TaskFileError(f"{path} line {number}: expected a JSON object, not {type_name(record)}")
        yield number, record


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises TaskFileError when it cannot be read."""
    try:
        raw = read_bytes(path).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        reasons = {FileNotFoundError: "no such file", IsADirectoryError: "is a folder"}
        if reason := reasons.get(type(error)):
            raise TaskFileError(f"{path}: {reason}; give the path of a JSONL file of tasks") from None
        raise TaskFileError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise TaskFileError(f"{path} line {number}: not UTF-8 text; save the file as UTF-8") from None


def _parse_task(record: Mapping[str, Any], keys: Mapping[str, str], path: Path | str, number: int) -> Task:
    where = f"{path} line {number}"
    if keys["input"] not in record:
        hint = "name the field to read with `fields=input=NAME`"
        raise TaskFileError(f"{where}: field {keys['input']!r} is missing; the line has {field_names(record)}: {hint}")
    try:
        line = _Line.model_validate({name: record[key] for name, key in keys.items() if key in record})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        wanted, found = _Line.model_fields[name].description, type_name(record[keys[name]])
        raise TaskFileError(f"{where}: field {keys[name]!r} must be {wanted}, not {found}") from None
    target = str(line.target).lower() if isinstance(line.target, bool) else line.target
    task = Task(
        id=f"line-{number}" if line.id is None else str(line.id),
        input=line.input if isinstance(line.input, str) else ", ".join(line.input),
        target=None if target is None else str(target),
        meta={key: value for key, value in record.items() if key not in keys.values()} | (line.meta or {}),
    )
    if not task.input.strip():
        hint = "fill it, or name another field with `fields=input=NAME`"
        raise TaskFileError(f"{where}: field {keys['input']!r} is empty; the line has {field_names(record)}: {hint}")
    if not task.id.strip():
        raise TaskFileError(f"{where}: field {keys['id']!r} is empty; give an id or omit the field")
    tags = task.meta.get("tags", "")
    if not isinstance(tags, str) and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        # Tags become sources ("tag:..."), by which a user can have things forgotten.
        raise TaskFileError(f"{where}: field 'tags' must be a string or a list of strings, not {type_name(tags)}")
    return task


def field_names(record: Mapping[str, Any], most: int = 10) -> str:
    """The names of a record's fields, for error messages."""
    more = f" and {len(record) - most} more" if len(record) > most else ""
    return (", ".join(repr(key[:40]) for key in list(record)[:most]) or "no fields") + more


_TYPE_NAMES = {dict: "an object", str: "a string", type(None): "null", bool: "true or false", int: "a number"}


def type_name(value: Any) -> str:
    """The type of a JSON value, for error messages."""
    if isinstance(value, list):
        others = [type_name(item) for item in value if not isinstance(item, str)]
        return f"a list with {others[0]}" if others else "a list"
    if isinstance(value, float):
        return "a number" if isfinite(value) else "a number too large to hold"
    return _TYPE_NAMES[type(value)]
