"""From what was typed to what the library takes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task

if TYPE_CHECKING:
    from practicum.tasks.traces import Traces


def read_tasks(path: Path | None, fields: str) -> list[Task]:
    """The tasks of a file, whose fields have these names (--fields); none where no file is given. Raises TaskFileError,
    which says of a public data set how to make tasks of it."""
    from practicum.tasks.load import load_tasks, parse_fields

    names = parse_fields(fields) if fields else None
    if path is None:
        return []
    try:
        return load_tasks(path, names)
    except TaskFileError as error:
        from practicum.tasks.datasets import matching_formats

        if names or not (formats := matching_formats(path)):
            raise
        first = f"practicum tasks {shlex.quote(str(path))} --out tasks.jsonl"
        looks = f"it looks like {' or '.join(formats)}"
        raise TaskFileError(f"{error}; {looks}: make tasks of it first: {first}") from error


def read_traces(path: Path) -> Traces:
    """What agents did already, as tasks with their attempts. What cannot be read is told on standard error."""
    import sys

    from practicum.tasks.traces import load_traces

    found = load_traces(path)
    formats = ", ".join(f"{count} of {name}" for name, count in sorted(found.formats.items()))
    print(f"{len(found.tasks)} traces in {path}: {formats}", file=sys.stderr)
    for problem in found.problems[:PROBLEMS_SHOWN]:
        print(f"not all could be read: {problem}", file=sys.stderr)
    if len(found.problems) > PROBLEMS_SHOWN:
        print(f"and {len(found.problems) - PROBLEMS_SHOWN} more such lines", file=sys.stderr)
    if found.faults:
        print(f"in all, {found.faults} times something could not be read, or not as it stood", file=sys.stderr)
    return found


PROBLEMS_SHOWN = 20


def bench_window(given: int | None, *models: str) -> int | None:
    """The window of a bench, whose prompts are long: as given, else one for models in this process."""
    from practicum.models.registry import is_local

    return given or (BENCH_WINDOW if any(map(is_local, models)) else None)


BENCH_WINDOW = 16384
"""Tokens."""


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Texts of the form name=value. A dash in a name stands for an underscore, but not in the name of a variant before
    a dot."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"{option} {text!r} must read name=value")
        which, dot, last = name.strip().rpartition(".")
        found[which + dot + last.replace("-", "_")] = value.strip()
    return found


def method_settings(texts: Sequence[str], **given: Any) -> dict[str, Any]:
    """Settings of the method: those of --set, and options that are settings by another name."""
    settings: dict[str, Any] = dict(pairs(texts, "--set"))
    for name, value in given.items():
        if value is None:
            continue
        if name in settings:
            raise UsageError(f"setting {name!r} is given twice, as an option and with --set")
        settings[name] = value
    return settings


def roles_of(texts: Sequence[str]) -> dict[str, str]:
    """Models by role. The value may hold '=' itself (an address)."""
    return pairs(texts, "--role")


def read_instructions(text: str) -> str:
    """The text itself, or what the file behind an @ says."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the instructions in {text[1:]}: {getattr(error, 'strerror', error)}") from error


def choices_of(text: str, tasks: Sequence[Task]) -> tuple[str, ...]:
    """The possible answers: listed, or those of the targets."""
    from practicum.tasks.load import choices_from

    if text == "auto":
        return choices_from(tasks)
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if text and len(found) < 2:
        raise UsageError(f"--choices {text!r} names fewer than two answers")
    return found
