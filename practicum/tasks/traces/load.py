"""Reading a file or a folder of stored traces.

Nothing is dropped in silence: what cannot be read is told with file, line and reason, and the rest is read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from practicum.core.errors import TaskFileError
from practicum.core.types import Recorded, Task
from practicum.store.database import DATABASE_FILE
from practicum.tasks.traces import atif, chat, mini_swe_agent, runs, swe_agent
from practicum.tasks.traces.claude_code import ClaudeCode
from practicum.tasks.traces.detect import (
    ATIF,
    CHAT,
    CLAUDE_CODE,
    HARBOR_RESULT,
    MINI_SWE_AGENT,
    OTEL,
    PRACTICUM,
    SWE_AGENT,
    format_of,
    is_messages,
)
from practicum.tasks.traces.files import records
from practicum.tasks.traces.otel import Otel
from practicum.tasks.traces.trace import Each, Found, Notes, Place, Problem, Reader, Traces

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""What is looked at in a folder, beside run folders. A file that is named is looked at whatever it is called."""

ACCEPTED = (
    "practicum runs, chat messages (OpenAI style), OpenTelemetry GenAI spans, SWE-agent and mini-swe-agent "
    "trajectories, ATIF (Harbor), Claude Code sessions"
)
UNKNOWN = "of no format that is known"
_SQLITE = b"SQLite format 3\0"
_REASONS_TOLD = 3

_READERS: dict[str, Callable[[Notes], Reader]] = {
    CHAT: partial(Each, chat.read),
    OTEL: Otel,
    SWE_AGENT: partial(Each, swe_agent.read),
    MINI_SWE_AGENT: partial(Each, mini_swe_agent.read),
    ATIF: partial(Each, atif.read),
    CLAUDE_CODE: ClaudeCode,
}


def load_traces(path: Path | str) -> Traces:
    """The traces of a file, or of all files and run folders below a folder, as tasks with what an agent did on them.

    A task is named by its trace's own id, else by file and line; one that is taken gets "#2" and so on, and
    `meta.own_id` keeps the original. `meta` says where it is from (`format`, `file`, `line`, and what the format
    knows: `model`, `session`, `agent` ...); what the system said before the task is in `meta.system`.

    Raises TaskFileError, one line of text, where there is nothing at the path or nothing of it could be read.
    """
    root = Path(path)
    try:
        root.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TaskFileError(f"{root}: no such file or folder; give the path of stored traces") from None
    except OSError as error:
        raise TaskFileError(f"{root}: cannot be read ({error.strerror})") from None
    loading = _Loading(root)
    for file in _files(root, loading.problems):
        loading.read(file)
    loading.check_results()
    if not loading.tasks:
        raise TaskFileError(f"{root}: no trace could be read: {_told(loading.problems)}; accepted are {ACCEPTED}")
    return Traces(tuple(loading.tasks), tuple(loading.problems), dict(loading.formats))


@dataclass
class _Loading:
    """What has been read so far."""

    root: Path
    tasks: list[Task] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    results: list[Path] = field(default_factory=list)
    trials: set[Path] = field(default_factory=set)
    ids: Counter[str] = field(default_factory=Counter)

    def read(self, file: Path) -> None:
        """Read one file, or the run that it belongs to."""
        folder = file.parent if _is_run(file) else None
        notes = Notes(folder or file)
        shown = (folder or file).relative_to(self.root).as_posix() if self.root.is_dir() else notes.path.name
        for format, found in self._found(file, folder, notes):
            self.tasks.append(self._task(format, found, self.root.absolute().name if shown == "." else shown))
            self.formats[format] += 1
        self.problems += notes.problems()

    def check_results(self) -> None:
        """A score without its trace is told."""
        for file in self.results:
            if file.parent not in self.trials:
                self.problems.append(Problem(str(file), None, "a result of Harbor without an ATIF trajectory below it"))

    def _found(self, file: Path, folder: Path | None, notes: Notes) -> Iterator[tuple[str, Found]]:
        if folder is not None:
            yield from ((PRACTICUM, found) for found in runs.read(folder, notes))
            return
        readers: dict[str, Reader] = {}
        format = None
        empty = True
        for place, record in _single(records(file, notes)):
            empty = False
            known = format_of(record, format)
            if known == HARBOR_RESULT:
                self.results.append(file)
            elif known is None:
                notes.add(UNKNOWN, place.line, _holds(record))
            else:
                format = known
                if format == ATIF:
                    self.trials.update(list(file.parents)[: atif.RESULT_UP])
                reader = readers.get(format) or readers.setdefault(format, _READERS[format](notes))
                for found in reader.take(place, record):
                    yield format, found
        for format, reader in readers.items():
            for found in reader.end():
                yield format, found
        if empty and not notes.problems():
            notes.add("the file is empty")

    def _task(self, format: str, found: Found, file: str) -> Task:
        own = found.id if found.id and found.id.strip() else f"{file}{found.place.tag}"
        id = self._free(own)
        meta = {**found.meta, "format": format, "file": file}
        if found.place.line is not None:
            meta["line"] = found.place.line
        if id != own:
            meta["own_id"] = own
        return Task(id, found.input, found.target, meta, Recorded(found.trace, found.score))

    def _free(self, id: str) -> str:
        """The id itself, or with the first number that makes it another than all before."""
        free = id
        while free in self.ids:
            self.ids[id] += 1
            free = f"{id}#{self.ids[id]}"
        self.ids[free] = max(self.ids[free], 1)
        return free


def _files(root: Path, problems: list[Problem]) -> Iterator[Path]:
    if not root.is_dir():
        yield root
        return

    def unreadable(error: OSError) -> None:
        problems.append(Problem(str(error.filename), None, f"cannot be read ({error.strerror})"))

    for folder, inner, names in os.walk(root, onerror=unreadable):
        inner.sort()
        for file in (Path(folder, name) for name in sorted(names)):
            if (file.suffix.lower() in SUFFIXES or file.name == DATABASE_FILE) and file.is_file():
                yield file


def _is_run(file: Path) -> bool:
    if file.name != DATABASE_FILE:
        return False
    try:
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE)) == _SQLITE
    except OSError:
        # What is wrong with it is told when it is read.
        return False


def _single(found: Iterator[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Records one by one, also where a list holds several."""
    for place, value in found:
        if isinstance(value, list) and value and not is_messages(value):
            for number, item in enumerate(value, 1):
                yield Place(place.line, f"{place.tag}{'.' if place.tag else ':'}{number}"), item
        else:
            yield place, value


def _holds(record: Any) -> str:
    if isinstance(record, dict):
        more = f" and {len(record) - 6} more" if len(record) > 6 else ""
        return "it has " + (", ".join(repr(key[:40]) for key in list(record)[:6]) + more if record else "no fields")
    return "not an object"


def _told(problems: list[Problem]) -> str:
    if not problems:
        return f"the folder holds no file named {', '.join('*' + suffix for suffix in SUFFIXES)} and no run"
    more = f"; and {len(problems) - _REASONS_TOLD} more" if len(problems) > _REASONS_TOLD else ""
    return "; ".join(" ".join(str(problem).split()) for problem in problems[:_REASONS_TOLD]) + more
