"""Reads a file or a folder of stored traces.

What cannot be read is reported with file, line and reason, and the rest is read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from practicum.core.errors import TaskFileError
from practicum.core.types import Task
from practicum.store.database import DATABASE_FILE
from practicum.tasks.traces import atif, chat, claude_code, otel, runs, swe_agent
from practicum.tasks.traces.files import records
from practicum.tasks.traces.trace import Position, Problem, Problems, StoredTask, Traces

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""Files of a folder that are read, besides run folders. A file that is given itself may have any name."""

ACCEPTED = (
    "practicum runs, chat messages (OpenAI style), OpenTelemetry GenAI spans, SWE-agent and mini-swe-agent "
    "trajectories, ATIF (Harbor), Claude Code sessions"
)
_SQLITE = b"SQLite format 3\0"
_MAX_REASONS = 3

_FORMATS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "atif": atif.matches,
    "mini-swe-agent": swe_agent.matches_mini,
    "swe-agent": swe_agent.matches,
    "chat": chat.matches,
    "otel": otel.matches,
    "claude-code": claude_code.matches,
}
"""What recognises the formats of files; the more specific ones come first."""

_RECORD_READERS: dict[str, Callable[[Any, Position, Problems], list[StoredTask]]] = {
    "atif": atif.read,
    "mini-swe-agent": swe_agent.read_mini,
    "swe-agent": swe_agent.read,
    "chat": chat.read,
}
"""Readers of the formats in which each record is a whole trace."""

_FILE_READERS: dict[str, type[otel.OtelReader] | type[claude_code.ClaudeCodeReader]] = {
    "otel": otel.OtelReader,
    "claude-code": claude_code.ClaudeCodeReader,
}
"""Readers of the formats in which a trace may be spread over the records of a file."""


def load_traces(path: Path | str) -> Traces:
    """The traces of a file, or of all files and run folders below a folder, as tasks with recorded attempts.

    The id of a task is its trace's own, else file and line. If it is taken, "#2" and so on is added, and `meta.own_id`
    keeps the original. `meta` says where the trace comes from (`format`, `file`, `line`, and what the format knows:
    `model`, `session`, `agent` ...); `meta.system` is what the system said before the task.

    Raises TaskFileError when nothing exists at the path, or no trace could be read.
    """
    root = Path(path)
    try:
        root.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TaskFileError(f"{root}: no such file or folder; give the path of stored traces") from None
    except OSError as error:
        raise TaskFileError(f"{root}: cannot be read ({error.strerror})") from None
    loader = _Loader(root)
    for file in loader.files():
        loader.read(file)
    for file in loader.harbor_results:
        if file.parent not in loader.trial_folders:
            loader.problems.append(Problem(str(file), None, "a Harbor result without an ATIF trajectory below it"))
    if not loader.tasks:
        reasons = "; ".join(" ".join(str(problem).split()) for problem in loader.problems[:_MAX_REASONS])
        if len(loader.problems) > _MAX_REASONS:
            reasons += f"; and {len(loader.problems) - _MAX_REASONS} more"
        names = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        reasons = reasons or f"the folder holds no file named {names} and no run"
        raise TaskFileError(f"{root}: no trace could be read: {reasons}; accepted are {ACCEPTED}")
    return Traces(tuple(loader.tasks), tuple(loader.problems), dict(loader.formats))


@dataclass
class _Loader:
    root: Path
    tasks: list[Task] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    harbor_results: list[Path] = field(default_factory=list)
    trial_folders: set[Path] = field(default_factory=set)
    ids: Counter[str] = field(default_factory=Counter)

    def files(self) -> Iterator[Path]:
        """The files to read."""
        if not self.root.is_dir():
            yield self.root
            return

        def unreadable(error: OSError) -> None:
            self.problems.append(Problem(str(error.filename), None, f"cannot be read ({error.strerror})"))

        for folder, folders, names in os.walk(self.root, onerror=unreadable):
            folders.sort()
            for file in (Path(folder, name) for name in sorted(names)):
                if (file.suffix.lower() in SUFFIXES or file.name == DATABASE_FILE) and file.is_file():
                    yield file

    def read(self, file: Path) -> None:
        """Read a file, or the run whose database it is."""
        is_run = _is_run(file)
        source = file.parent if is_run else file
        problems = Problems(source)
        name = source.relative_to(self.root).as_posix() if self.root.is_dir() else source.name
        name = self.root.absolute().name if name == "." else name
        stored = (
            (("practicum", task) for task in runs.read(source, problems)) if is_run else self._parse(file, problems)
        )
        for format, (position, task) in stored:
            own_id = task.id if task.id.strip() else f"{name}{position.tag}"
            id = self._unique_id(own_id)
            meta = {**task.meta, "format": format, "file": name}
            if position.line is not None:
                meta["line"] = position.line
            if id != own_id:
                meta["own_id"] = own_id
            self.tasks.append(replace(task, id=id, meta=meta))
            self.formats[format] += 1
        self.problems += problems.all()

    def _parse(self, file: Path, problems: Problems) -> Iterator[tuple[str, StoredTask]]:
        readers: dict[str, otel.OtelReader | claude_code.ClaudeCodeReader] = {}
        format = None
        empty = True
        for position, record in _flatten(records(file, problems)):
            empty = False
            detected = _detect_format(record, format)
            if detected is None:
                if isinstance(record, Mapping) and atif.is_trial_result(record):
                    self.harbor_results.append(file)
                else:
                    problems.add("the format is unknown", position.line, _describe(record))
                continue
            format = detected
            if format == "atif":
                self.trial_folders.update(list(file.parents)[: atif.RESULT_DEPTH])
            if format in _RECORD_READERS:
                for task in _RECORD_READERS[format](record, position, problems):
                    yield format, task
            else:
                if format not in readers:
                    readers[format] = _FILE_READERS[format](problems)
                readers[format].add(record, position)
        for format, reader in readers.items():
            for task in reader.tasks():
                yield format, task
        if empty and not problems.all():
            problems.add("the file is empty")

    def _unique_id(self, id: str) -> str:
        """The id itself, or the id with the first number that makes it unique."""
        unique = id
        while unique in self.ids:
            self.ids[id] += 1
            unique = f"{id}#{self.ids[id]}"
        self.ids[unique] = max(self.ids[unique], 1)
        return unique


def _is_run(file: Path) -> bool:
    if file.name != DATABASE_FILE:
        return False
    try:
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE)) == _SQLITE
    except OSError:  # reported when its records are read
        return False


def _detect_format(record: Any, previous: str | None) -> str | None:
    """The format of a record, or None if it is unknown. `previous` is that of the record before it in its file."""
    if chat.is_message_list(record):
        return "chat"
    if not isinstance(record, Mapping):
        return None
    if name := next((name for name, matches in _FORMATS.items() if matches(record)), None):
        return name
    # New versions of Claude Code write new types of lines; among its own lines they are recognised.
    unknown_line = isinstance(record.get("type"), str) and not atif.is_trial_result(record)
    return previous if previous == "claude-code" and unknown_line else None


def _flatten(stored: Iterator[tuple[Position, Any]]) -> Iterator[tuple[Position, Any]]:
    """Records one by one, also from a list of several."""
    for position, value in stored:
        if isinstance(value, list) and value and not chat.is_message_list(value):
            for number, item in enumerate(value, 1):
                yield Position(position.line, f"{position.tag}{'.' if position.tag else ':'}{number}"), item
        else:
            yield position, value


def _describe(record: Any) -> str:
    if not isinstance(record, dict):
        return "it is not an object"
    if not record:
        return "it has no fields"
    more = f" and {len(record) - 6} more" if len(record) > 6 else ""
    return f"it has {', '.join(repr(key[:40]) for key in list(record)[:6])}{more}"
