"""Reader of stored traces. A file is a JSON document, JSON lines or Parquet. Files of JSON lines and Parquet files are
read record by record.

Unreadable parts are reported with file, line and reason, and the rest is read.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from practicum.core.errors import TaskFileError
from practicum.core.trust import Trust, least
from practicum.core.types import Task
from practicum.tasks.records import BY_POSITION, field_names
from practicum.tasks.survey import digest
from practicum.tasks.traces import atif, chat, runs
from practicum.tasks.traces.chat import own_fields
from practicum.tasks.traces.formats import FORMATS, TraceFormat
from practicum.tasks.traces.sources import DAMAGED, PARQUET, SUFFIXES, ZSTD, find, shown, unpacked
from practicum.tasks.traces.table import rows
from practicum.tasks.traces.trace import MOST_DOCUMENT, MOST_LINE, MOST_PROBLEMS, Problem, RecordPlace, Source, Traces

_MAX_REASONS = 3


@dataclass
class TraceStream:
    """Stream of the traces of a file, of all files and run folders below a folder, or at a URL that fsspec supports
    (`s3://`, `gs://`, `az://`, `https://`; the URL may contain `*` if the store can list names). Traces are read one
    by one and not held in memory. `learn` accepts a stream in place of tasks.

    Each iteration first resets `count`, `formats`, `problems`, `further`, `unscored` and `evidence` (see `Traces`).
    After the last trace, `at_end` is called with the `summary`. For the other arguments see `load_traces`.
    """

    address: Path | str
    trust: Trust = "foreign"
    trust_scores: bool = False
    at_end: Callable[[Traces], object] | None = None
    fields: Mapping[str, str] | None = None
    count: int = field(default=0, init=False)
    formats: Counter[str] = field(default_factory=Counter, init=False)
    problems: list[Problem] = field(default_factory=list, init=False)
    further: int = field(default=0, init=False)
    unscored: int = field(default=0, init=False)
    evidence: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._fields = None if self.fields is None else own_fields(self.fields)

    @property
    def summary(self) -> Traces:
        """Counts and problems of the traces read so far, without the traces."""
        return Traces((), tuple(self.problems), dict(self.formats), self.unscored, self.further, dict(self.evidence))

    def __iter__(self) -> Iterator[Task]:
        self.count = self.further = self.unscored = 0
        self.formats, self.problems, self.evidence = Counter(), [], Counter()
        names, harbor, joined = _Names(), _HarborResults(), dict[str, Any]()
        for source in find(self.address, self._problem):
            for format, task in (
                (("practicum", task) for task in runs.read(source)) if source.is_run else self._read(source, joined)
            ):
                id = names.free(task.id)
                own_id = {} if id == (first := names.first(task, id)) else {"own_id": first}
                meta = {**task.meta, "format": format, "file": source.name, **own_id}
                task = replace(task, id=id, meta=meta, trust=least(task.trust, self.trust))
                if self.trust == "foreign" and not self.trust_scores:
                    scored, task = task, without_verdict(task)
                    self.unscored += scored != task
                self.formats[format] += 1
                if task.recorded is not None:
                    self.evidence.update(sign.signal for sign in task.recorded.evidence)
                self.count += 1
                yield task
            for problem in source.problems():
                self._problem(problem)
            harbor.add(source)
        for address in harbor.unmatched():
            self._problem(Problem(address, None, "a Harbor result without an ATIF trajectory below it"))
        for problem in (problem for reader in joined.values() for problem in reader.unmatched()):
            self._problem(problem)
        if not self.count:
            supported = ", ".join(format.name for format in FORMATS if format.read or format.reader)
            raise TaskFileError(
                "traces.unreadable",
                f"{shown(self.address)}: no trace could be read: {self._reasons()}; supported are {supported}; for "
                "other records, name the fields (--trace-fields)",
            )
        if self.at_end is not None:
            self.at_end(self.summary)

    def _read(self, source: Source, joined: dict[str, Any]) -> Iterator[tuple[str, Task]]:
        """Yield the format and the task of each trace of a file. `joined`: format → reader that collects the records of
        all files."""
        of_file: dict[str, Any] = {}
        format = place = None
        for place, record in _flatten(_records(source)):
            if self._fields is not None and isinstance(record, Mapping) and self._fields.matches(record):
                yield from (("fields", task) for task in self._fields.read(record, place))
                continue
            format = _detect_format(record, format)
            if format is None:
                detail = f"has {field_names(record, 6)}" if isinstance(record, Mapping) else "is not an object"
                place.warn("the format is unknown", f"the record {detail}")
                continue
            source.formats.add(format.name)
            if format.advice:
                place.warn(format.advice)
            elif format.reader is not None:
                readers = joined if format.joins else of_file
                if format.name not in readers:
                    readers[format.name] = format.reader()
                yield from ((format.name, task) for task in readers[format.name].add(record, place) or ())
            elif format.read is not None:
                yield from ((format.name, task) for task in format.read(record, place))
        yield from ((name, task) for name, reader in of_file.items() for task in reader.tasks())
        if place is None and not source.cases:
            RecordPlace(source).warn("the file is empty")

    def _problem(self, problem: Problem) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.further += problem.count

    def _reasons(self) -> str:
        """Return the reasons why no trace was read, for the error message."""
        reasons = [" ".join(str(problem).split()) for problem in self.problems[:_MAX_REASONS]]
        if len(self.problems) > _MAX_REASONS:
            reasons.append(f"and {len(self.problems) - _MAX_REASONS} more")
        names = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        return "; ".join(reasons) or f"the folder holds no file named {names} and no run"


def load_traces(
    path: Path | str, trust: Trust = "foreign", trust_scores: bool = False, fields: Mapping[str, str] | None = None
) -> Traces:
    """Load the traces of a file, or of all files and run folders below a folder, as tasks with recorded attempts.
    `path` may be a URL, as for `TraceStream`. Use `TraceStream` to read traces without holding all in memory.

    The id of a task is the id of its trace, or, if the trace has no id, the file and the line of the trace. If another
    task already has this id, "#2" and so on is appended, and `meta.own_id` holds the original id. `meta` holds the
    origin of the trace (`format`, `file`, `line`, and format-specific fields: `model`, `session`, `agent` ...);
    `meta.system` is the system message before the task.

    `trust` is the trust level of the traces: own, labelled (the scores and right answers are yours) or foreign. A trace
    that is stored with a lower level keeps that level. Lessons from traces below "own" wait for review. Scores and
    right answers in foreign traces are dropped, unless `trust_scores` is true.

    `fields` names the places of the parts of a trace in records of another format, as in `{"messages": "log.turns",
    "score": "grade"}`: `messages`, or `task` and `answer`; also `score`, `target` and `id`.

    Raises TaskFileError when nothing exists at the path, or no trace could be read.
    """
    stream = TraceStream(path, trust, trust_scores, fields=fields)
    tasks = tuple(stream)
    return replace(stream.summary, tasks=tasks)


CHAT = next(format for format in FORMATS if format.name == "chat")
HARBOR_RESULT = next(format for format in FORMATS if format.matches is atif.is_trial_result).name


class _Names:
    """Ids in use, stored as digests: a million ids take 70 MB."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._repeats: Counter[str] = Counter()
        self._by_position: dict[int, str] = {}

    def first(self, task: Task, id: str) -> str:
        """Return the id that all traces of the same task share: the id of the task. But if this id is only a position
        in a file, traces belong to the same task only if they also have the same input; such traces share the id of the
        first of these traces. `id`: the id of the current trace."""
        if not BY_POSITION.fullmatch(task.id):
            return task.id
        return self._by_position.setdefault(digest(f"{task.id} {task.input}"), id)

    def free(self, requested: str) -> str:
        """Reserve an id and return it. If the requested id is taken, a number is appended."""
        id = requested
        while (key := digest(id)) in self._taken:
            self._repeats[requested] += 1
            id = f"{requested}#{self._repeats[requested] + 1}"
        self._taken.add(key)
        return id


class _HarborResults:
    """Trial results and trajectories of Harbor, collected to report each trial result that has no trajectory."""

    def __init__(self) -> None:
        self._results: dict[str, int] = {}
        self._trials: set[int] = set()

    def add(self, source: Source) -> None:
        if "atif" in source.formats:
            self._trials.update(digest(str(folder)) for folder in source.path.parents[: atif.RESULT_DEPTH])
        if HARBOR_RESULT in source.formats:
            self._results[source.shown] = digest(str(source.path.parent))

    def unmatched(self) -> Iterator[str]:
        """Return the addresses of results without a trajectory."""
        return (address for address, folder in self._results.items() if folder not in self._trials)


def without_verdict(task: Task) -> Task:
    """Return the task without its target and without the score of its trace."""
    recorded = None if task.recorded is None else replace(task.recorded, score=None)
    return replace(task, target=None, recorded=recorded)


def _records(source: Source) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the place and value of each record. Unreadable parts are reported as problems, and the rest is read."""
    try:
        with source.open(source.path) as opened:
            if (file := unpacked(opened)).peek(len(PARQUET)).startswith(PARQUET):
                with source.open_table(source.path) as table:
                    for number, row in rows(table, RecordPlace(source)):
                        yield RecordPlace(source, number, f":{number}"), row
                return
            if file.peek(len(ZSTD)).startswith(ZSTD):
                RecordPlace(source).warn("Zstandard is not supported: unpack the file (zstd -d), or pack it with gzip")
                return
            yield from _json_records(file, source)
    except DAMAGED as error:
        RecordPlace(source).warn(f"cannot be read ({getattr(error, 'strerror', None) or error})")


def _json_records(file: io.BufferedReader, source: Source) -> Iterator[tuple[RecordPlace, Any]]:
    lines = _lines(file)
    head = list(islice(lines, 2))
    (begin, first), (end, second) = (*head, (0, b""), (0, b""))[:2]
    if second and not _is_json(first) and (first.strip() in (b"[", b"{") or not _is_json(second, dict)):
        # Put the skipped blank lines back in front, so that line numbers in messages are right.
        raw = b"\n" * (begin - 1) + first + b"\n" * (end - begin - 1) + second
        raw += file.read(MOST_DOCUMENT + 1 - len(raw))
        if len(raw) > MOST_DOCUMENT:
            RecordPlace(source).warn(f"a JSON document of more than {MOST_DOCUMENT // 2**20} MB is left out")
            return
        if _is_json(raw) or not any(_is_json(line, dict) for line in raw.split(b"\n")):
            yield from _parsed(raw, RecordPlace(source))
            return
        # The content is JSON lines, and the first lines are malformed.
        head, lines = [], _lines(io.BytesIO(raw))
    for number, line in chain(head, lines):
        if not line:
            RecordPlace(source, number).warn(f"a line of more than {MOST_LINE // 2**20} MB is left out")
            continue
        yield from _parsed(line, RecordPlace(source, number, f":{number}"))


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the line number and the text of each line that is not blank; the text of a line that is too long is
    empty."""
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


def _parsed(raw: bytes, place: RecordPlace) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the parsed record, or report a problem if the text is not JSON."""
    try:
        yield place, from_json(raw.decode())
    except UnicodeDecodeError as error:
        replace(place, line=place.line or raw.count(b"\n", 0, error.start) + 1).warn("not UTF-8 text")
    except ValueError as error:
        line = re.search(r" at line (\d+)", str(error))
        detail = re.sub(r" at line \d+ column", " at column", str(error))
        reason = "truncated JSON" if detail.startswith("EOF") else "not JSON"
        replace(place, line=place.line or (int(line[1]) if line else None)).warn(reason, detail)


def _detect_format(record: Any, previous: TraceFormat | None) -> TraceFormat | None:
    """Return the format of a record, or None if it is unknown. `previous`: the format of the record before it."""
    if chat.is_message_list(record):
        return CHAT
    if not isinstance(record, Mapping):
        return None
    if match := next((format for format in FORMATS if format.matches(record)), None):
        return match
    return previous if previous and previous.continues and previous.continues(record) else None


def _flatten(stored: Iterable[tuple[RecordPlace, Any]]) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield records one by one. A record that is a list is replaced by its items."""
    for place, value in stored:
        if isinstance(value, list) and value and not chat.is_message_list(value):
            for number, item in enumerate(value, 1):
                yield replace(place, tag=f"{place.tag}{'.' if place.tag else ':'}{number}"), item
        else:
            yield place, value
