"""Reads a file or a folder of stored traces. A file is a JSON document, or JSON lines, which are read one at a time.

What cannot be read is reported with file, line and reason, and the rest is read.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from practicum.core.errors import TaskFileError
from practicum.core.files import open_file
from practicum.core.trust import Trust
from practicum.core.types import Task
from practicum.store.folder import DATABASE_FILE, STORE_FILE
from practicum.tasks.records import field_names
from practicum.tasks.traces import atif, chat, claude_code, otel, runs, swe_agent
from practicum.tasks.traces.trace import MOST_DOCUMENT, MOST_LINE, Place, Problem, Source, Traces

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""Files of a folder that are read, besides run folders. A file that is given itself may have any name."""

ACCEPTED = (
    "practicum runs, chat messages (OpenAI style), OpenTelemetry GenAI spans, SWE-agent and mini-swe-agent "
    "trajectories, ATIF (Harbor), Claude Code sessions"
)
_MAX_REASONS = 3
_HARBOR_RESULT = "harbor result"


_FORMATS: dict[str, tuple[Callable[[Mapping[str, Any]], bool], Any]] = {
    "atif": (atif.matches, atif.read),
    "mini-swe-agent": (swe_agent.matches_mini, swe_agent.read_mini),
    "swe-agent": (swe_agent.matches, swe_agent.read),
    "chat": (chat.matches, chat.read),
    "otel": (otel.matches, otel.OtelReader),
    "claude-code": (claude_code.matches, claude_code.ClaudeCodeReader),
}
"""What recognises a record of each format, the more specific formats first, and what reads it: a function if each
record is a whole trace, else a class that collects the records of a file."""


def load_traces(path: Path | str, trust: Trust = "foreign", trust_scores: bool = False) -> Traces:
    """The traces of a file, or of all files and run folders below a folder, as tasks with recorded attempts.

    The id of a task is its trace's own, else file and line. If it is taken, "#2" and so on is added, and `meta.own_id`
    keeps the original. `meta` says where the trace comes from (`format`, `file`, `line`, and what the format knows:
    `model`, `session`, `agent` ...); `meta.system` is what the system said before the task.

    `trust` says whose traces they are: own, labelled (the scores and right answers are yours) or foreign. What is
    learned from traces other than one's own waits for review. What a foreign trace says about whether its answer is
    right, a score or a right answer, counts only with `trust_scores`, and is left out otherwise.

    Raises TaskFileError when nothing exists at the path, or no trace could be read.
    """
    root = Path(path)
    try:
        root.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TaskFileError(f"{root}: no such file or folder; give the path of stored traces") from None
    except OSError as error:
        raise TaskFileError(f"{root}: cannot be read ({error.strerror})") from None
    tasks: list[Task] = []
    problems: list[Problem] = []
    formats: Counter[str] = Counter()
    ids: Counter[str] = Counter()
    unscored = 0
    sources: list[Source] = []
    for file in _files(root, problems):
        found = file.parent if file.name in (DATABASE_FILE, STORE_FILE) else file
        name = found.relative_to(root).as_posix() if root.is_dir() else found.name
        source = Source(found, root.absolute().name if name == "." else name)
        sources.append(source)
        for format, task in (
            (("practicum", task) for task in runs.read(source)) if found != file else _source_tasks(source)
        ):
            id = task.id
            while id in ids:
                ids[task.id] += 1
                id = f"{task.id}#{ids[task.id]}"
            ids[id] = 1
            own_id = {} if id == task.id else {"own_id": task.id}
            task = replace(
                task, id=id, meta={**task.meta, "format": format, "file": source.name, **own_id}, trust=trust
            )
            if trust == "foreign" and not trust_scores:
                scored, task = task, without_verdict(task)
                unscored += scored != task
            tasks.append(task)
            formats[format] += 1
        problems += source.problems()
    trial_folders = {folder for s in sources if "atif" in s.formats for folder in s.path.parents[: atif.RESULT_DEPTH]}
    for source in sources:
        if _HARBOR_RESULT in source.formats and source.path.parent not in trial_folders:
            problems.append(Problem(str(source.path), None, "a Harbor result without an ATIF trajectory below it"))
    if not tasks:
        reasons = [" ".join(str(problem).split()) for problem in problems[:_MAX_REASONS]]
        if len(problems) > _MAX_REASONS:
            reasons.append(f"and {len(problems) - _MAX_REASONS} more")
        names = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        reason = "; ".join(reasons) or f"the folder holds no file named {names} and no run"
        raise TaskFileError(f"{root}: no trace could be read: {reason}; accepted are {ACCEPTED}")
    return Traces(tuple(tasks), tuple(problems), dict(formats), unscored)


def without_verdict(task: Task) -> Task:
    """The task without what its trace says about whether the answer is right."""
    recorded = None if task.recorded is None else replace(task.recorded, score=None)
    return replace(task, target=None, recorded=recorded)


def _files(root: Path, problems: list[Problem]) -> Iterator[Path]:
    """The files to read. What cannot be read is a problem, and so is a link that leads out of the folder: whoever made
    the folder would choose which of the reader's own files are sent to a model."""
    if not root.is_dir():
        yield root
        return

    def problem(path: object, reason: str) -> None:
        problems.append(Problem(str(path), None, reason))

    whole = root.resolve()
    for folder, folders, names in os.walk(
        root, onerror=lambda e: problem(e.filename, f"cannot be read ({e.strerror})")
    ):
        folders.sort()
        for inner in (Path(folder, name) for name in folders):
            if inner.is_symlink():
                problem(inner, "a link to a folder is not followed")
        for file in (Path(folder, name) for name in sorted(names)):
            if file.suffix.lower() not in SUFFIXES and file.name not in (DATABASE_FILE, STORE_FILE):
                continue
            if file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(whole):
                problem(file, "a link that leads out of the folder is not followed")
            elif not file.is_file():
                problem(file, "a device, a pipe or a broken link is no file")
            else:
                yield file


def _records(source: Source) -> Iterator[tuple[Place, Any]]:
    """Place and value of each record. What cannot be read is a problem, and the rest is read."""
    try:
        with open_file(source.path) as file:
            first, second, *_ = (*islice((line for _, line in _lines(file)), 2), b"", b"")
            file.seek(0)
            if second and not _is_json(first) and (first.strip() in (b"[", b"{") or not _is_json(second, dict)):
                raw = file.read(MOST_DOCUMENT + 1).removeprefix(codecs.BOM_UTF8)
                if len(raw) > MOST_DOCUMENT:
                    Place(source).warn(f"a JSON document of more than {MOST_DOCUMENT // 2**20} MB is left out")
                    return
                if _is_json(raw) or not any(_is_json(line, dict) for line in raw.split(b"\n")):
                    yield from _parsed(raw, Place(source))
                    return
                file.seek(0)  # these are JSON lines, the first of which are broken
            for number, line in _lines(file):
                if not line:
                    Place(source, number).warn(f"a line of more than {MOST_LINE // 2**20} MB is left out")
                    continue
                yield from _parsed(line, Place(source, number, f":{number}"))
    except OSError as error:
        Place(source).warn(f"cannot be read ({error.strerror or error})")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Number and text of each line that is not blank; an empty text for one that is too long."""
    for number in count(1):
        line = file.readline(MOST_LINE + 1)
        if not line:
            return
        if len(line) > MOST_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(MOST_LINE)
            yield number, b""
            continue
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if text.strip():
            yield number, text


def _is_json(raw: bytes, kind: type = object) -> bool:
    try:
        return isinstance(from_json(raw), kind)
    except ValueError:
        return False


def _parsed(raw: bytes, place: Place) -> Iterator[tuple[Place, Any]]:
    """The record; none, and a problem, if this is not JSON."""
    try:
        yield place, from_json(raw.decode())
    except UnicodeDecodeError as error:
        replace(place, line=place.line or raw.count(b"\n", 0, error.start) + 1).warn("not UTF-8 text")
    except ValueError as error:
        line = re.search(r" at line (\d+)", str(error))
        detail = re.sub(r" at line \d+ column", " at column", str(error))
        reason = "JSON that ends too early" if detail.startswith("EOF") else "not JSON"
        replace(place, line=place.line or (int(line[1]) if line else None)).warn(reason, detail)


def _source_tasks(source: Source) -> Iterator[tuple[str, Task]]:
    collectors: dict[str, otel.OtelReader | claude_code.ClaudeCodeReader] = {}
    format = place = None
    for place, record in _flatten(_records(source)):
        detected = _detect_format(record, format)
        if detected is None:
            what = f"has {field_names(record, 6)}" if isinstance(record, Mapping) else "is not an object"
            place.warn("the format is unknown", f"it {what}")
            continue
        source.formats.add(detected)
        if detected == _HARBOR_RESULT:
            continue
        format = detected
        reader = _FORMATS[format][1]
        if isinstance(reader, type):
            collectors.setdefault(format, reader()).add(record, place)
        else:
            for task in reader(record, place):
                yield format, task
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
    if name := next((name for name, (matches, _) in _FORMATS.items() if matches(record)), None):
        return name
    if atif.is_trial_result(record):
        return _HARBOR_RESULT
    # New versions of Claude Code write new types of lines; among its own lines they are recognised.
    return previous if previous == "claude-code" and isinstance(record.get("type"), str) else None


def _flatten(stored: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Records one by one, also from a list of several."""
    for place, value in stored:
        if isinstance(value, list) and value and not chat.is_message_list(value):
            for number, item in enumerate(value, 1):
                yield replace(place, tag=f"{place.tag}{'.' if place.tag else ':'}{number}"), item
        else:
            yield place, value
