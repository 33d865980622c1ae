"""Reader of stored traces. A file is a JSON document, JSON lines or Parquet. Files of JSON lines and Parquet files are
read record by record.

Unreadable parts are reported with file, line and reason, and the rest is read.
"""

from __future__ import annotations

import codecs
import io
import re
import zlib
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
from practicum.tasks.load import BY_POSITION
from practicum.tasks.records import field_names
from practicum.tasks.survey import digest
from practicum.tasks.traces import atif, chat, claude_code, lines, otel, runs, swe_agent
from practicum.tasks.traces.sources import PARQUET, SUFFIXES, ZSTD, find, shown, unpacked
from practicum.tasks.traces.table import rows
from practicum.tasks.traces.trace import MOST_DOCUMENT, MOST_LINE, MOST_PROBLEMS, Problem, RecordPlace, Source, Traces

ACCEPTED = (
    "practicum runs and exports, chat messages (OpenAI style), OpenTelemetry GenAI spans, SWE-agent and mini-swe-agent "
    "trajectories, ATIF (Harbor), Claude Code sessions"
)
_MAX_REASONS = 3
_HARBOR_RESULT = "harbor result"


_FORMATS: dict[str, tuple[Callable[[Mapping[str, Any]], bool], Any]] = {
    "practicum": (lines.matches, lines.read),
    "atif": (atif.matches, atif.read),
    "mini-swe-agent": (swe_agent.matches_mini, swe_agent.read_mini),
    "swe-agent": (swe_agent.matches, swe_agent.read),
    "chat": (chat.matches, chat.read),
    "otel": (otel.matches, otel.OtelReader),
    "claude-code": (claude_code.matches, claude_code.ClaudeCodeReader),
}
"""Format → (function that returns whether a record has the format, reader), the more specific formats first. The reader
is a function if each record is a whole trace, else a class that collects the records of a file."""


@dataclass
class TraceStream:
    """Stream of the traces of a file, of all files and run folders below a folder, or at a URL that fsspec supports
    (`s3://`, `gs://`, `az://`, `https://`; the URL may contain `*` if the store can list names). Traces are read one
    by one and not held in memory. `learn` accepts a stream in place of tasks.

    Each iteration first resets `count`, `formats`, `problems`, `further` and `unscored` (see `Traces`). After the
    last trace, `at_end` is called with the `summary`. For the other arguments see `load_traces`.
    """

    address: Path | str
    trust: Trust = "foreign"
    trust_scores: bool = False
    at_end: Callable[[Traces], object] | None = None
    count: int = field(default=0, init=False)
    formats: Counter[str] = field(default_factory=Counter, init=False)
    problems: list[Problem] = field(default_factory=list, init=False)
    further: int = field(default=0, init=False)
    unscored: int = field(default=0, init=False)

    @property
    def summary(self) -> Traces:
        """Counts and problems of the traces read so far, without the traces."""
        return Traces((), tuple(self.problems), dict(self.formats), self.unscored, self.further)

    def __iter__(self) -> Iterator[Task]:
        self.count = self.further = self.unscored = 0
        self.formats, self.problems = Counter(), []
        names, harbor = _Names(), _HarborResults()
        for source in find(self.address, self._problem):
            for format, task in (("practicum", task) for task in runs.read(source)) if source.is_run else _read(source):
                id = names.free(task.id)
                own_id = {} if id == (first := names.first(task, id)) else {"own_id": first}
                meta = {**task.meta, "format": format, "file": source.name, **own_id}
                task = replace(task, id=id, meta=meta, trust=least(task.trust, self.trust))
                if self.trust == "foreign" and not self.trust_scores:
                    scored, task = task, without_verdict(task)
                    self.unscored += scored != task
                self.formats[format] += 1
                self.count += 1
                yield task
            for problem in source.problems():
                self._problem(problem)
            harbor.add(source)
        for address in harbor.unmatched():
            self._problem(Problem(address, None, "a Harbor result without an ATIF trajectory below it"))
        if not self.count:
            raise TaskFileError(
                "traces.unreadable",
                f"{shown(self.address)}: no trace could be read: {self._reasons()}; supported are {ACCEPTED}",
            )
        if self.at_end is not None:
            self.at_end(self.summary)

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


def load_traces(path: Path | str, trust: Trust = "foreign", trust_scores: bool = False) -> Traces:
    """Load the traces of a file, or of all files and run folders below a folder, as tasks with recorded attempts.
    `path` may be a URL, as for `TraceStream`. Use `TraceStream` to read traces without holding all in memory.

    The id of a task is the id of its trace, or, if the trace has no id, the file and the line of the trace. If another
    task already has this id, "#2" and so on is appended, and `meta.own_id` holds the original id. `meta` holds the
    origin of the trace (`format`, `file`, `line`, and format-specific fields: `model`, `session`, `agent` ...);
    `meta.system` is the system message before the task.

    `trust` is the trust level of the traces: own, labelled (the scores and right answers are yours) or foreign. A trace
    that is stored with a lower level keeps that level. Lessons from traces below "own" wait for review. Scores and
    right answers in foreign traces are dropped, unless `trust_scores` is true.

    Raises TaskFileError when nothing exists at the path, or no trace could be read.
    """
    stream = TraceStream(path, trust, trust_scores)
    tasks = tuple(stream)
    return replace(stream.summary, tasks=tasks)


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
        if _HARBOR_RESULT in source.formats:
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
    except (OSError, EOFError, zlib.error) as error:
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


def _read(source: Source) -> Iterator[tuple[str, Task]]:
    collectors: dict[str, otel.OtelReader | claude_code.ClaudeCodeReader] = {}
    format = place = None
    for place, record in _flatten(_records(source)):
        detected = _detect_format(record, format)
        if detected is None:
            detail = f"has {field_names(record, 6)}" if isinstance(record, Mapping) else "is not an object"
            place.warn("the format is unknown", f"the record {detail}")
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
        RecordPlace(source).warn("the file is empty")


def _detect_format(record: Any, previous: str | None) -> str | None:
    """Return the format of a record, or None if it is unknown. `previous`: the latest known format in the same file."""
    if chat.is_message_list(record):
        return "chat"
    if not isinstance(record, Mapping):
        return None
    if name := next((name for name, (matches, _) in _FORMATS.items() if matches(record)), None):
        return name
    if atif.is_trial_result(record):
        return _HARBOR_RESULT
    # New versions of Claude Code add types of lines. So after a line of Claude Code, a line of an unknown
    # type also counts as a line of Claude Code.
    return previous if previous == "claude-code" and isinstance(record.get("type"), str) else None


def _flatten(stored: Iterable[tuple[RecordPlace, Any]]) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield records one by one. A record that is a list is replaced by its items."""
    for place, value in stored:
        if isinstance(value, list) and value and not chat.is_message_list(value):
            for number, item in enumerate(value, 1):
                yield replace(place, tag=f"{place.tag}{'.' if place.tag else ':'}{number}"), item
        else:
            yield place, value
