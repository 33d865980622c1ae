"""Formats of public data sets. The format of a file is detected from the fields of the file's records, and each record
is converted to a task.

A format is a pydantic model of one record. The model converts the record to a task, and names a scorer, choices and
instructions for the data set. Text that would reveal the answer goes to `target` and `meta`, which no model sees.
Formats are plug-ins (entry point group `practicum.formats`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.plugins import Group
from practicum.core.types import Task
from practicum.core.words import quantity
from practicum.tasks.records import (
    LETTERS,
    SAMPLED_RECORDS,
    all_fields,
    field_names,
    read_records,
    type_name,
    unique_tasks,
)
from practicum.tasks.stored import TASK

Record = Mapping[str, Any]


class Format(BaseModel):
    """Base class of formats: one record of a file. The validation context has the folder of the file in `folder`."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    about: ClassVar[str]
    scorer: ClassVar[str]
    instructions: ClassVar[str]
    offered: ClassVar[Literal["letters", "targets", "none"]] = "none"  # choices that are offered to the agent
    marks: ClassVar[Mapping[str, str]] = {}  # field → pattern in the value; distinguishes formats with equal fields
    names: ClassVar[Mapping[str, str]] = {}  # name in files → field of the format

    def task(self, id: str) -> Task | None:
        """Return the record as a task, or None if the record cannot be converted. The task gets `id` if the record has
        no id."""
        raise NotImplementedError

    def tasks(self, id: str) -> list[Task]:
        """Return the tasks of the record. Most formats have one task in a record, and define `task`."""
        task = self.task(id)
        return [] if task is None else [task]

    @classmethod
    def plain(cls, record: Record) -> Record:
        """Return the record with aliases replaced by this format's field names."""
        fields_by_alias = {name: field for name, field in cls.names.items() if field not in record}
        return {fields_by_alias.get(name, name): value for name, value in record.items()}

    @classmethod
    def fits(cls, record: Record) -> bool:
        """Return whether the fields of a record match this format."""
        record = cls.plain(record)
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        marks = (re.search(pattern, str(record[name])) for name, pattern in cls.marks.items())
        return required <= record.keys() and all(marks)


@dataclass(frozen=True)
class ServedFormat:
    """Format of tasks that are stored on a server. `read(path, url)` reads, from the server at `url`, the tasks whose
    ids are listed in the file `path`."""

    about: str
    read: Callable[[Path, str], Coroutine[Any, Any, Dataset]]


def _reads_records(plugin: object) -> bool:
    return isinstance(plugin, type) and issubclass(plugin, Format)


def _lacks(plugin: object) -> Sequence[str]:
    is_format = _reads_records(plugin) or isinstance(plugin, ServedFormat)
    return [] if is_format else ["the interface of a format (a subclass of Format, or a ServedFormat)"]


FORMATS: Group[Any] = Group("practicum.formats", "format", _lacks, unknown="tasks.unknown_format")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Tasks of a file, with the scorer, choices and instructions that suit the tasks."""

    format: str
    tasks: tuple[Task, ...]
    scorer: str
    choices: tuple[str, ...]
    instructions: str
    left_out: int = 0  # number of records that could not be converted to tasks
    about: str = ""
    options: tuple[str, ...] = ()  # command-line options that `practicum learn` needs for these tasks


def convert(path: Path | str, format: str | None = None) -> Dataset:
    """Convert the file of a public data set to tasks. If `format` is None, the format is detected from the fields of
    the first records. Raises UsageError for an unknown format, and TaskFileError for a malformed file. The message of a
    TaskFileError names the file and, if known, the line or record and the field."""
    if format is not None and not _reads_records(FORMATS.load(format)):
        raise UsageError("settings.conflict", f"format {format!r} reads tasks from a server: pass --server URL")
    records = list(read_records(Path(path)))
    if not records:
        raise TaskFileError("tasks.empty", f"{path}: the file holds no records")
    name = format or _detect_format(all_fields(records[:SAMPLED_RECORDS]), path)
    kind: type[Format] = FORMATS.load(name)
    parsed = [(place, _parse_tasks(kind, record, path, place)) for place, record in records]
    tasks = unique_tasks(((place, task) for place, tasks in parsed for task in tasks), path)
    if not tasks:
        raise TaskFileError(
            "tasks.unknown_format", f"{path}: none of {quantity(len(records), 'record')} is a task of format {name!r}"
        )
    left_out = sum(not tasks for _, tasks in parsed)
    tasks, instructions = _move_preamble(tasks, kind.instructions)
    choices: tuple[str, ...] = ()
    if kind.offered == "targets":
        choices = tuple(sorted({task.target for task in tasks if task.target is not None}))
    elif kind.offered == "letters":
        plain = [kind.plain(record) for _, record in records]
        most = max(len(r.get("choices") or [*r.get("chosen", ()), *r.get("rejected", ())]) for r in plain)
        choices = tuple(LETTERS[:most])
    return Dataset(name, tuple(tasks), kind.scorer, choices, instructions, left_out, kind.about)


def read_served(path: Path, server: str, format: str | None = None) -> Dataset:
    """Read from a server the tasks whose ids are in a file. If `format` is None, the only installed ServedFormat is
    used. Raises UsageError for an unknown format, and if `format` is None and several ServedFormats (or none) are
    installed."""
    served = [name for name in FORMATS.names() if isinstance(FORMATS.load(name), ServedFormat)]
    names = served if format is None else [name for name in served if name == format]
    if len(names) != 1:
        raise UsageError(
            "settings.conflict",
            f"--server needs one of the formats {', '.join(served)}: name one of these with --format",
        )
    served_format: ServedFormat = FORMATS.load(names[0])
    return asyncio.run(served_format.read(path, server))


def as_json_lines(tasks: Sequence[Task], attempts: bool = False) -> str:
    """Return tasks as JSON lines for `load_tasks`. With `attempts`, include the recorded attempts, for
    `load_traces`."""
    leave_out = {"history", "system", *(() if attempts else ("recorded",))}
    return "".join(
        json.dumps(
            TASK.dump_python(task, mode="json", exclude=leave_out, exclude_defaults=True)
            | ({"input": task.messages} if task.history or task.system else {}),
            ensure_ascii=False,
        )
        + "\n"
        for task in tasks
    )


def matching_formats(path: Path) -> list[str]:
    """Return the names of the formats that match the fields of a file's first records. The list is empty if the file is
    malformed or already holds tasks."""
    try:
        return formats_of(all_fields(islice(read_records(path), SAMPLED_RECORDS)))
    except TaskFileError:
        return []


def formats_of(record: Record) -> list[str]:
    """Return the names of the formats that match these fields. The list is empty for fields of tasks."""
    return [] if "input" in record else _matches(record)


def _matches(record: Record) -> list[str]:
    formats = ((name, FORMATS.load(name)) for name in FORMATS.names())
    return [name for name, format in formats if _reads_records(format) and format.fits(record)]


def _detect_format(record: Record, path: Path | str) -> str:
    matches = _matches(record)
    if len(matches) == 1:
        return matches[0]
    if "input" in record:
        raise UsageError("tasks.unknown_format", f"{path}: the file already holds tasks and needs no conversion")
    fields = field_names(record)
    if not matches:
        raise TaskFileError(
            "tasks.unknown_format",
            f"{path}: the fields of the first records ({fields}) match no format; name the format with `format` "
            f"({', '.join(FORMATS.names())}), or read the file unconverted with `fields=input=NAME,target=NAME`",
        )
    raise TaskFileError(
        "tasks.ambiguous_format",
        f"{path}: the fields of the first records ({fields}) match {' and '.join(matches)}; "
        "name one of these with `format`",
    )


def _parse_tasks(kind: type[Format], record: Record, path: Path | str, place: str) -> list[Task]:
    where = f"{path} {place}"
    try:
        stem = Path(Path(path).name.removesuffix(".gz")).stem
        parsed = kind.model_validate(kind.plain(record), context={"folder": Path(path).parent})
        tasks = parsed.tasks(f"{stem}-{place.split()[1]}")
    except ValidationError as error:
        first = error.errors()[0]
        # Keep field names and list positions. `loc` also has the names of pydantic types, which mean nothing to a user.
        field, *inner = (str(part) for part in first["loc"] if part == first["loc"][0] or isinstance(part, int))
        aliases = [field, *(alias for alias, name in kind.names.items() if name == field)]
        if first["type"] == "missing" and not inner:
            named = " or ".join(map(repr, aliases))
            raise TaskFileError(
                "tasks.missing_field", f"{where}: field {named} is missing; the record has {field_names(record)}"
            ) from None
        field = next((name for name in aliases if name in record), field)
        value = type_name(record.get(field))
        reason = (
            f"field {'.'.join((field, *inner))!r}: {first['msg'].removeprefix('Value error, ')} (the field is {value})"
        )
        raise TaskFileError("tasks.invalid_field", f"{where}: {reason}") from None
    except ValueError as error:
        raise TaskFileError("tasks.invalid_field", f"{where}: {error}") from None
    if not all(task.input.strip() for task in tasks):
        raise TaskFileError("tasks.missing_field", f"{where}: the text of the task is empty")
    return tasks


def _move_preamble(tasks: list[Task], instructions: str) -> tuple[list[Task], str]:
    """Move the preamble in the `meta` of the tasks to the instructions if all tasks have the same preamble. If the
    preambles differ, prepend the preamble of each task to the input of the task."""
    preambles = [task.meta.get("preamble", "") for task in tasks]
    bare = [replace(t, meta={key: value for key, value in t.meta.items() if key != "preamble"}) for t in tasks]
    if len(set(preambles)) == 1:
        return bare, "\n".join(filter(None, (preambles[0], instructions)))
    both = zip(bare, preambles, strict=True)
    return [replace(t, input=f"{preamble}\n{t.input}") if preamble else t for t, preamble in both], instructions
