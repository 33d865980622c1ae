"""Loader of task files. Each record of a file is one task.

A task file is untrusted input, so every error names the file, the line or record, and the field. The whole file is read
before any task is returned, so that no model call is paid for a file with an error halfway.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.images import data_url, is_image, marked
from practicum.core.trust import LEVELS, Trust, least
from practicum.core.types import Task
from practicum.tasks.formats import formats_of
from practicum.tasks.records import (
    SAMPLED_RECORDS,
    all_fields,
    field_names,
    read_records,
    type_name,
    unique_tasks,
)
from practicum.tasks.scoring.registry import meta_fault
from practicum.tasks.scoring.rules import normalise, target_fault
from practicum.tasks.shapes import Shape, shape_of
from practicum.tasks.traces.messages import Conversation, conversation_of, is_conversation

MAX_CHOICES = 1000
"""Maximum number of choices. If the tasks have more distinct targets, the targets are open answers, not choices."""

MAX_CHOICE = 80
"""Maximum length of a choice (characters). If a target is longer, the targets are open answers, not choices."""


class _Fields(BaseModel):
    """Record with practicum's field names. The validation is strict, so that a number is never silently read as a
    string."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    id: str | int | None = Field(None, description="a string or a whole number")
    input: str | list[str] = Field(description="a string, a list of strings, or a list of chat messages")
    target: str | int | float | bool | None = Field(None, description="a string, a number, true or false")
    meta: dict[str, Any] | None = Field(None, description="an object")
    trust: Trust | None = Field(None, description=f"one of {', '.join(LEVELS)}")


@dataclass(frozen=True)
class TaskFile:
    """Tasks of a file, in order. `shape` is the shape of the file; None if the file has practicum's own fields."""

    tasks: list[Task]
    shape: Shape | None = None


def load_tasks(path: Path | str, fields: Mapping[str, str] | None = None, trust: Trust = "own") -> list[Task]:
    """Load the tasks of a file, in order. A record is `{"id"?, "input", "target"?, "meta"?, "trust"?}`. For the
    supported file formats see `practicum.tasks.records`.

    An `input` that is a list of chat messages is a conversation: the task is the last message of the user, with the
    earlier turns as its history. Without a target, the agent's answer to this message is the target. Files for
    fine-tuning, evaluation and question answering have other fields, which are recognized (see
    `practicum.tasks.shapes`).

    `fields` maps the field names above to the keys in the file, as in `{"input": "question", "target": "answer"}`. The
    other keys of a record are stored in `meta`. A list of texts as input is joined with ", "; a number or bool as
    target becomes text as in JSON. If a record has no id, the id of the task is the place of the record in the file
    ("line-7" or "record-7", from 1; blank lines count). The argument `trust` is the trust level of the tasks. The field
    "trust" of a record can only lower the level of the record's task. Lessons from tasks with a level below "own" wait
    for review.

    Raises TaskFileError when the file is missing, empty, malformed, or a public data set that must be converted.
    """
    return load_task_file(path, fields, trust).tasks


def load_task_file(path: Path | str, fields: Mapping[str, str] | None = None, trust: Trust = "own") -> TaskFile:
    """Load the tasks of a file as `load_tasks` does, and return also the shape of the file."""
    keys = {name: name for name in _Fields.model_fields}
    for name in fields or {}:
        if name not in keys:
            raise TaskFileError(
                "settings.invalid", f"`fields`: unknown name {name!r}; a task has {', '.join(keys)}", setting="fields"
            )
    keys |= fields or {}
    names: set[str] = set()
    records = read_records(Path(path))
    first = list(islice(records, SAMPLED_RECORDS))
    if not fields and (formats := formats_of(all_fields(first))):
        raise TaskFileError(
            "tasks.are_data_set",
            f"{path}: the file looks like {' or '.join(formats)}: convert it to tasks with "
            f"practicum bench tasks {shlex.quote(str(path))} --out tasks.jsonl",
            file=str(path),
        )
    shape = None if fields else shape_of(all_fields(first))

    def tasks_by_place() -> Iterator[tuple[str, Task]]:
        for place, record in chain(first, records):
            names.update(record)
            yield place, _parse_task(record, keys, path, place, trust, shape)

    tasks = unique_tasks(tasks_by_place(), path)
    if not tasks:
        raise TaskFileError(
            "tasks.empty",
            f'{path}: the file holds no tasks; write one JSON object per line, with at least "input"',
            file=str(path),
        )
    for name, key in (fields or {}).items():
        if key not in names:
            raise TaskFileError(
                "tasks.missing_field",
                f"{path}: no record has the field {key!r} that `fields` uses as {name!r}",
                file=str(path),
                field=key,
            )
    return TaskFile(tasks, shape)


def require_targets(
    tasks: Iterable[Task], scorer_name: str, path: Path | str, choices: Sequence[str] | None = None
) -> None:
    """Check that the scorer can use the target of every task, before any call is paid. Raises TaskFileError for the
    first task whose target is missing, unusable (an invalid pattern, text without a number) or not among `choices`."""
    allowed = {normalise(choice) for choice in choices or ()}
    for task in tasks:
        if task.target is None:
            raise TaskFileError(
                "tasks.no_target",
                f'{path}: task {task.id!r} has no target, which scorer {scorer_name!r} needs; add "target", '
                "name the field of the target with `fields=target=NAME`, or choose a scorer that needs no target",
                file=str(path),
                task=task.id,
                scorer=scorer_name,
            )
        if fault := target_fault(scorer_name, task.target):
            raise TaskFileError(
                "tasks.invalid_target",
                f"{path}: target of task {task.id!r} {fault}, so scorer {scorer_name!r} cannot use it",
                file=str(path),
                task=task.id,
                scorer=scorer_name,
            )
        if allowed and normalise(task.target) not in allowed:
            raise TaskFileError(
                "tasks.invalid_target",
                f"{path}: target {task.target!r} of task {task.id!r} is not among the choices; list all choices "
                "(`choices=a,b,c`)",
                file=str(path),
                task=task.id,
                scorer=scorer_name,
            )


def require_meta(tasks: Sequence[Task], scorer_name: str, path: Path | str) -> None:
    """Check that the `meta` of every task holds the data that the scorer needs, before any call is paid. Raises
    TaskFileError for the first task that lacks this data."""
    for task in tasks:
        if fault := meta_fault(scorer_name, task.meta):
            raise TaskFileError("tasks.missing_field", f"{path}: task {task.id!r} {fault}")


def parse_fields(text: str) -> dict[str, str]:
    """Parse `"input=context,target=answer"` into a mapping for `load_tasks`. Raises UsageError for text of another
    form."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, _, key = (piece.strip() for piece in part.partition("="))
        if not name or not key:
            raise UsageError(
                "settings.invalid",
                f"`fields={text}`: {part!r} is not NAME=FIELD, such as input=context",
                setting="fields",
            )
        if name in fields:
            raise UsageError("settings.invalid", f"`fields={text}`: {name!r} is set twice", setting="fields")
        fields[name] = key
    return fields


def choices_from(tasks: Iterable[Task]) -> tuple[str, ...]:
    """Return the sorted distinct targets of the training tasks, for `--choices auto`.

    Raises UsageError if there are fewer than two targets, or if the targets are open answers. Targets are open answers
    if there are more than MAX_CHOICES distinct targets, if a target is longer than MAX_CHOICE or has several lines, or
    if there are fewer than two tasks per distinct target on average.
    """
    targets = Counter(task.target for task in tasks if task.target is not None)
    choices = sorted(targets)
    advice = "; omit `choices` if answers are open, or list the choices (`choices=a,b,c`)"
    if len(choices) < 2:
        targets_text = f"only the target {choices[0]!r}" if choices else "no target"
        raise UsageError("choices.unsuitable", f"`choices=auto`: the training tasks have {targets_text}{advice}")
    if long := next((text for text in choices if len(text) > MAX_CHOICE or "\n" in text), None):
        raise UsageError(
            "choices.unsuitable", f"`choices=auto`: target {long[:40]!r}… is too long for a choice{advice}"
        )
    if len(choices) > min(MAX_CHOICES, targets.total() / 2):
        raise UsageError(
            "choices.unsuitable",
            f"`choices=auto`: {len(choices)} distinct targets in {targets.total()} tasks are too many for "
            f"choices{advice}",
        )
    return tuple(choices)


def _parse_task(
    record: Mapping[str, Any], keys: Mapping[str, str], path: Path | str, place: str, trust: Trust, shape: Shape | None
) -> Task:  # fmt: skip
    where = f"{path} {place}"
    talk: Conversation | None = None
    if shape is not None and shape.question in record:
        talk, target = shape.read(record)
        left = {name: value for name, value in record.items() if name not in shape.fields}
        record = {"input": talk.input or talk.system, "target": target} | left
    elif is_conversation(record.get(keys["input"])):
        talk = conversation_of(record[keys["input"]])
        record = {keys["target"]: talk.answer or None} | {**record, keys["input"]: talk.input or talk.system}
    if keys["input"] not in record:
        hint = "name the input field with `fields=input=NAME`"
        raise TaskFileError(
            "tasks.missing_field",
            f"{where}: field {keys['input']!r} is missing; the record has {field_names(record)}: {hint}",
            file=str(path),
            place=place,
            field=keys["input"],
        )
    try:
        values = _Fields.model_validate({name: record[key] for name, key in keys.items() if key in record})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        expected, actual = _Fields.model_fields[name].description, type_name(record[keys[name]])
        actual = f"{record[keys[name]]!r:.40}" if name == "trust" else actual
        raise TaskFileError(
            "tasks.invalid_field",
            f"{where}: field {keys[name]!r} must be {expected}, not {actual}",
            file=str(path),
            place=place,
            field=keys[name],
        ) from None
    text = values.input if isinstance(values.input, str) else ", ".join(values.input)
    images = _images(record, Path(path), where)
    right = str(values.target).lower() if isinstance(values.target, bool) else values.target
    task = Task(
        id=place.replace(" ", "-") if values.id is None else str(values.id),
        input="\n".join([text, *(mark for mark in images if mark not in text)]),
        target=None if right is None else str(right),
        meta={key: value for key, value in record.items() if key not in {*keys.values(), *(_IMAGES if images else ())}}
        | (values.meta or {}),
        system=talk.system if talk and talk.input else "",
        history=talk.history if talk else (),
        images=images | dict(talk.images if talk else {}),
        trust=least(trust, values.trust or "own"),
    )
    if not task.input.strip():
        hint = f"the record has {field_names(record)}: add a text, or name another field with `fields=input=NAME`"
        raise TaskFileError(
            "tasks.missing_field",
            f"{where}: field {keys['input']!r} is empty; {hint}",
            file=str(path),
            place=place,
            field=keys["input"],
        )
    if not task.id.strip():
        raise TaskFileError(
            "tasks.missing_field",
            f"{where}: field {keys['id']!r} is empty; set an id or omit the field",
            file=str(path),
            place=place,
            field=keys["id"],
        )
    tags = task.meta.get("tags", "")
    if not isinstance(tags, str) and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        # Each tag becomes a source ("tag:..."), and `forget` takes sources as arguments, so every tag must be a string.
        raise TaskFileError(
            "tasks.invalid_field",
            f"{where}: field 'tags' must be a string or a list of strings, not {type_name(tags)}",
            file=str(path),
            place=place,
            field="tags",
        )
    return task


_IMAGES = ("image", "images")


def _images(record: Mapping[str, Any], path: Path, where: str) -> dict[str, str]:
    """Return the images in the fields `image` and `images` of a record: addresses, files in the folder of the task
    file, and objects with `src`, `url` or `bytes`, as data sets have them. Other values are ignored. Raises
    TaskFileError for a file that does not exist, is outside the folder, or is not an image."""
    addresses: list[str] = []
    for value in (record.get(name) for name in _IMAGES):
        values = [*value.values()] if isinstance(value, Mapping) and all(map(is_image, value.values())) else value
        for one in values if isinstance(values, list) else [values]:
            if isinstance(one, Mapping):
                held = one.get("bytes")
                one = data_url(held) if isinstance(held, bytes) else one.get("src") or one.get("url")
            if isinstance(one, str) and PurePath(one).suffix.lower() in _SUFFIXES and not is_image(one):
                one = _image_file(path.parent, one, where)
            if is_image(one):
                addresses.append(str(one))
    return dict(marked(addresses))


_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def _image_file(folder: Path, name: str, where: str) -> str:
    """Return a file in the folder of a task file as an address. A file outside the folder is refused, because a
    stranger's task file could name a private one."""
    file = (folder / name).resolve()
    read = data_url(file.read_bytes()) if file.is_relative_to(folder.resolve()) and file.is_file() else None
    if read is None:
        problem = "must be a PNG, JPEG, GIF or WebP file in the folder of the task file"
        raise TaskFileError("tasks.invalid_field", f"{where}: the image {name!r} {problem}", field="images")
    return read
