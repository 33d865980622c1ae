"""Reads a file or a folder of stored traces.

What cannot be read is reported with file, line and reason, and the rest is read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from practicum.core.errors import TaskFileError
from practicum.core.types import Task
from practicum.store.database import DATABASE_FILE
from practicum.tasks.load import field_names
from practicum.tasks.traces import atif, chat, claude_code, otel, runs, swe_agent
from practicum.tasks.traces.files import records
from practicum.tasks.traces.trace import Place, Problem, Source, Traces

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""Files of a folder that are read, besides run folders. A file that is given itself may have any name."""

ACCEPTED = (
    "practicum runs, chat messages (OpenAI style), OpenTelemetry GenAI spans, SWE-agent and mini-swe-agent "
    "trajectories, ATIF (Harbor), Claude Code sessions"
)
_MAX_REASONS = 3


_FORMATS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "atif": atif.matches,
    "mini-swe-agent": swe_agent.matches_mini,
    "swe-agent": swe_agent.matches,
    "chat": chat.matches,
    "otel": otel.matches,
    "claude-code": claude_code.matches,
}
"""What recognises a record of each format; the more specific formats come first."""

_READERS: dict[str, Callable[[Any, Place], Iterable[Task]]] = {
    "atif": atif.read,
    "mini-swe-agent": swe_agent.read_mini,
    "swe-agent": swe_agent.read,
    "chat": chat.read,
}
"""Readers of the formats in which each record is a whole trace."""


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
        loader.load(file)
    for file in loader.harbor_results:
        if file.parent not in loader.trial_folders:
            loader.problems.append(Problem(str(file), None, "a Harbor result without an ATIF trajectory below it"))
    if not loader.tasks:
        reasons = [" ".join(str(problem).split()) for problem in loader.problems[:_MAX_REASONS]]
        if len(loader.problems) > _MAX_REASONS:
            reasons.append(f"and {len(loader.problems) - _MAX_REASONS} more")
        names = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        reason = "; ".join(reasons) or f"the folder holds no file named {names} and no run"
        raise TaskFileError(f"{root}: no trace could be read: {reason}; accepted are {ACCEPTED}")
    return Traces(tuple(loader.tasks), tuple(loader.problems), dict(loader.formats))


class _Loader:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.tasks: list[Task] = []
        self.problems: list[Problem] = []
        self.formats: Counter[str] = Counter()
        self.harbor_results: list[Path] = []
        self.trial_folders: set[Path] = set()
        self.ids: Counter[str] = Counter()

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

    def load(self, file: Path) -> None:
        """Read a file, or the run whose database it is."""
        path = file.parent if file.name == DATABASE_FILE else file
        name = path.relative_to(self.root).as_posix() if self.root.is_dir() else path.name
        source = Source(path, self.root.absolute().name if name == "." else name)
        is_run = path != file
        for format, task in (("practicum", task) for task in runs.read(source)) if is_run else self._parse(source):
            id = task.id
            while id in self.ids:
                self.ids[task.id] += 1
                id = f"{task.id}#{self.ids[task.id]}"
            self.ids[id] = 1
            own_id = {} if id == task.id else {"own_id": task.id}
            self.tasks.append(replace(task, id=id, meta={**task.meta, "format": format, "file": source.name, **own_id}))
            self.formats[format] += 1
        self.problems += source.problems()

    def _parse(self, source: Source) -> Iterator[tuple[str, Task]]:
        collectors: dict[str, otel.OtelReader | claude_code.ClaudeCodeReader] = {}
        format = place = None
        for place, record in _flatten(records(source)):
            detected = _detect_format(record, format)
            if detected is None:
                if isinstance(record, Mapping) and atif.is_trial_result(record):
                    self.harbor_results.append(source.path)
                else:
                    what = f"has {field_names(record, 6)}" if isinstance(record, Mapping) else "is not an object"
                    place.warn("the format is unknown", f"it {what}")
                continue
            format = detected
            if format == "atif":
                self.trial_folders.update(source.path.parents[: atif.RESULT_DEPTH])
            if format in _READERS:
                for task in _READERS[format](record, place):
                    yield format, task
            else:  # a trace of these formats may be spread over the records of a file
                new = otel.OtelReader if format == "otel" else claude_code.ClaudeCodeReader
                collectors.setdefault(format, new()).add(record, place)
        for format, collector in collectors.items():
            for task in collector.tasks():
                yield format, task
        if place is None and not source.cases:
            Place(source).warn("the file is empty")


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


def _flatten(stored: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Records one by one, also from a list of several."""
    for place, value in stored:
        if isinstance(value, list) and value and not chat.is_message_list(value):
            for number, item in enumerate(value, 1):
                yield replace(place, tag=f"{place.tag}{'.' if place.tag else ':'}{number}"), item
        else:
            yield place, value
