"""Files of tasks, read whole or not at all.

A file is JSON lines, one task a line. It comes from outside, so each fault is told with file, line and field,
and no task is handed out before the last line was read: nothing is paid for a file that turns out bad
halfway.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.tasks.scoring.registry import meta_fault
from practicum.tasks.scoring.rules import normalise, target_fault

MAX_CHOICES = 100
"""More distinct targets than this are free answers, not labels; they would not fit a schema either."""

_EXPECTED = {
    "id": "a string or a whole number",
    "input": "a string or a list of strings",
    "target": "a string, a number, true or false",
    "meta": "an object",
}


class _Line(BaseModel):
    """One line after renaming. Strict, so that a number is never quietly taken for a text."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    id: str | int | None = None
    input: str | list[str]
    target: str | int | float | bool | None = None
    meta: dict[str, Any] | None = None


def load_tasks(path: Path | str, fields: Mapping[str, str] | None = None) -> list[Task]:
    """The tasks of a JSONL file, in its order; a line is `{"id"?, "input", "target"?, "meta"?}`.

    `fields` maps our names to the file's keys, as in `{"input": "question", "target": "answer"}`. Other keys
    of a line are kept in `meta`. A list as input is joined by ", "; a number or bool as target becomes text
    as JSON writes it. A line without id is called after its place ("line-7", from 1, blank lines counted).

    Raises TaskFileError, one line of text, for anything that cannot be read as said.
    """
    keys = _keys(fields or {})
    tasks: dict[str, Task] = {}
    line_of: dict[str, int] = {}
    seen: set[str] = set()
    for number, text in numbered_lines(Path(path)):
        where = f"{path} line {number}"
        record = record_of(text, where)
        task = _task(record, keys, where, f"line-{number}")
        if task.id in tasks:
            raise TaskFileError(f"{where}: id {task.id!r} was already used on line {line_of[task.id]}; ids must differ")
        tasks[task.id] = task
        line_of[task.id] = number
        seen.update(record)
    if not tasks:
        raise TaskFileError(f'{path}: the file holds no tasks; write one JSON object a line, with at least "input"')
    for name, key in (fields or {}).items():
        if key not in seen:
            raise TaskFileError(f"{path}: no line has a field {key!r}, which --fields reads as {name!r}")
    return list(tasks.values())


def require_targets(
    tasks: Sequence[Task], scorer_name: str, path: Path | str, choices: Sequence[str] | None = None
) -> None:
    """Check that the scorer can use every task's target, before anything is paid.

    Raises TaskFileError naming the first task whose target is missing, cannot be used (a broken pattern, no
    number) or, where `choices` bound the answers, is not among them.
    """
    known = {normalise(choice) for choice in choices or ()}
    for task in tasks:
        if task.target is None:
            raise TaskFileError(
                f'{path}: task {task.id!r} has no target, which scorer {scorer_name!r} needs; add "target", '
                "name its field with --fields target=NAME, or choose a scorer that needs none"
            )
        if fault := target_fault(scorer_name, task.target):
            raise TaskFileError(f"{path}: target of task {task.id!r} {fault}, so scorer {scorer_name!r} cannot use it")
        if known and normalise(task.target) not in known:
            raise TaskFileError(f"{path}: target {task.target!r} of task {task.id!r} is not among the choices")


def require_meta(tasks: Sequence[Task], scorer_name: str, path: Path | str) -> None:
    """Check that the scorer finds in every task's `meta` what it needs, before anything is paid.

    Raises TaskFileError naming the first task that lacks it.
    """
    for task in tasks:
        if fault := meta_fault(scorer_name, task.meta):
            raise TaskFileError(f"{path}: task {task.id!r} {fault}")


def parse_fields(text: str) -> dict[str, str]:
    """`"input=context,target=answer"` as a mapping for `load_tasks`; UsageError where not of that form."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, _, key = (piece.strip() for piece in part.partition("="))
        if not name or not key:
            raise UsageError(f"--fields {text!r}: {part!r} is not NAME=FIELD; write for example input=context")
        if name in fields:
            raise UsageError(f"--fields {text!r}: {name!r} is given twice")
        fields[name] = key
    return fields


def choices_from(tasks: Sequence[Task]) -> tuple[str, ...]:
    """The distinct targets, sorted, for `--choices auto`; UsageError for none or more than MAX_CHOICES."""
    choices = sorted({task.target for task in tasks if task.target is not None})
    if not choices:
        raise UsageError("--choices auto: no task has a target; write the choices out (--choices a,b,c)")
    if len(choices) > MAX_CHOICES:
        raise UsageError(
            f"--choices auto: {len(choices)} different targets are more than {MAX_CHOICES}; "
            "leave --choices away, or write the choices out"
        )
    return tuple(choices)


def _keys(fields: Mapping[str, str]) -> dict[str, str]:
    for name in fields:
        if name not in _EXPECTED:
            raise TaskFileError(f"--fields: unknown name {name!r}; a task has {', '.join(_EXPECTED)}")
    return {name: fields.get(name, name) for name in _EXPECTED}


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line that is not blank. Raises TaskFileError."""
    # Not splitlines(): a JSON string may hold U+2028 and its like unescaped.
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip():
            yield number, line


def text_of(path: Path) -> str:
    """What a file says, which must be UTF-8. Raises TaskFileError."""
    raw = _bytes(path).removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise TaskFileError(f"{path} line {number}: not UTF-8 text; save the file as UTF-8") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TaskFileError(f"{path}: no such file; give the path of a JSONL file of tasks") from None
    except IsADirectoryError:
        raise TaskFileError(f"{path}: is a folder; give the path of a JSONL file of tasks") from None
    except OSError as error:
        raise TaskFileError(f"{path}: cannot be read ({error.strerror})") from None


def record_of(text: str, where: str) -> dict[str, Any]:
    """The JSON object a line is; `where` begins the message of the TaskFileError if it is none."""
    try:
        # Unlike `json`, this refuses NaN and halves of surrogate pairs, which no store or server would take.
        record = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        reason = str(error).replace("at line 1 column", "at column")
        raise TaskFileError(f"{where}: not JSON ({reason}); each line must be one JSON object") from None
    if not isinstance(record, dict):
        raise TaskFileError(
            f"{where}: {kind_of(record)} where an object is expected; each line must be one JSON object"
        )
    return record


def _task(record: Mapping[str, Any], keys: Mapping[str, str], where: str, default_id: str) -> Task:
    if keys["input"] not in record:
        raise TaskFileError(
            f"{where}: field {keys['input']!r} is missing; the line has {_names(record)}: "
            "name the one to read with --fields input=NAME"
        )
    try:
        line = _Line.model_validate({name: record[key] for name, key in keys.items() if key in record})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise TaskFileError(
            f"{where}: field {keys[name]!r} must be {_EXPECTED[name]}, not {kind_of(record[keys[name]])}"
        ) from None
    task = Task(
        id=default_id if line.id is None else str(line.id),
        input=line.input if isinstance(line.input, str) else ", ".join(line.input),
        target=_target_text(line.target),
        meta={key: value for key, value in record.items() if key not in keys.values()} | (line.meta or {}),
    )
    _check_texts(task, keys, where, record)
    return task


def _check_texts(task: Task, keys: Mapping[str, str], where: str, record: Mapping[str, Any]) -> None:
    if not task.input.strip():
        raise TaskFileError(
            f"{where}: field {keys['input']!r} is empty; the line has {_names(record)}: "
            "fill it, or name another with --fields input=NAME"
        )
    if not task.id.strip():
        raise TaskFileError(f"{where}: field {keys['id']!r} is empty; give an id or leave the field away")
    tags = task.meta.get("tags", "")
    if not isinstance(tags, str) and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        # Tags become provenance ("tag:..."), by which a user can have things forgotten.
        raise TaskFileError(f"{where}: field 'tags' must be a string or a list of strings, not {kind_of(tags)}")


def _target_text(target: str | float | bool | None) -> str | None:
    if isinstance(target, bool):
        return "true" if target else "false"
    return None if target is None else str(target)


def _names(record: Mapping[str, Any], most: int = 10) -> str:
    more = f" and {len(record) - most} more" if len(record) > most else ""
    return ", ".join(repr(key[:40]) for key in list(record)[:most]) + more if record else "no fields"


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        odd = [kind_of(item) for item in value if not isinstance(item, str)]
        return f"a list with {odd[0]}" if odd else "a list"
    if isinstance(value, str):
        return "a string"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int) or isfinite(value) else "a number too large to hold"
