"""Contexts as files: markdown for people, JSON without loss, and AGENTS.md for other agents."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from practicum.core.bounded import clean
from practicum.core.context import MOST_ENTRIES, Context, initial_context
from practicum.core.edits import Add, Applied, Entry, Vote, entry_json
from practicum.core.errors import ContextFileError, PracticumWarning, UsageError
from practicum.core.files import read_text
from practicum.core.tool_texts import read_tools, stored_tools, tool_entries
from practicum.core.views import indented
from practicum.core.visible import line_visible_to_model, lines, visible_to_model
from practicum.core.words import fault, one_line, quantity

ExportFormat = Literal["markdown", "json", "agents-md", "tools"]


def export(context: Context, format: ExportFormat, more: Iterable[Entry] = ()) -> str:
    """Return the context as a text in this format, with a newline at the end. `more` entries, such as corrections,
    follow the entries of the context. Only JSON includes hidden entries. The format "tools" has the descriptions of
    tools, as MCP lists tools. Raises UsageError for an unknown format."""
    exported = [*context, *more]
    if format not in get_args(ExportFormat):
        raise UsageError(
            "settings.invalid",
            f"unknown format {format!r}: use one of {', '.join(get_args(ExportFormat))}",
            setting="format",
            valid=[*get_args(ExportFormat)],
        )
    if format == "json":
        entries = [entry_json(e) for e in exported]
        return json.dumps({"version": context.version, "entries": entries}, ensure_ascii=False, indent=2) + "\n"
    if format == "tools":
        tools = [{"name": t.name, "description": t.description, "inputSchema": t.schema} for t in stored_tools(context)]
        return json.dumps({"tools": tools}, ensure_ascii=False, indent=2) + "\n"
    title = "# Playbook" if format == "markdown" else f"# What was learned about the tasks here\n\n{ADVICE}"
    sections: dict[str, list[str]] = {}
    for entry in exported:
        if not entry.hidden:
            sections.setdefault(entry.section, []).append(_item(entry, format))
    headings = {name: " ".join(lines(name)) for name in sections}
    if format == "agents-md":
        headings = {name: line_visible_to_model(heading) for name, heading in headings.items()}
    parts = [f"## {headings[name]}\n\n" + "\n".join(items) for name, items in sections.items()]
    return "\n\n".join([title, *parts]) + "\n"


ADVICE = "Follow what applies."
"""Text below the title of AGENTS.md and of a skill."""


def _item(entry: Entry, format: ExportFormat) -> str:
    """Format an entry as a list item. The lines of its text are indented as markdown requires, so that a heading or a
    list in the text stays inside the item. A text of several lines begins on the line below the id and the counts, so
    that the first line of the text may also be a fence or a heading. In AGENTS.md, the text is escaped as for
    practicum's agents."""
    text = clean(shown_text(entry))
    if format == "agents-md":
        return f"- {indented(visible_to_model(text))[2:]}"
    multiline = "\n" in text
    # `load` removes counts at the end of an item. If the text itself ends with counts, append the counts of the entry,
    # even counts of 0, so that `load` removes the appended counts and keeps the whole text.
    with_counts = entry.helpful or entry.harmful or (not multiline and _COUNTS.search(text))
    counts = f" (+{entry.helpful}/-{entry.harmful})" if with_counts else ""
    return f"- [{entry.id}]{counts}\n{indented(text)}" if multiline else f"- [{entry.id}] {text}{counts}"


def shown_text(entry: Entry) -> str:
    """Return the text of an entry with its answer and, for a correction, the comment on the wrong answer."""
    answer, wrong = entry.data.get("answer"), entry.data.get("comment")
    text = entry.text if answer is None else f"{entry.text}{chr(10) if chr(10) in entry.text else ' '}→ {answer}"
    return text if wrong is None else f"{text}\nwrong: {wrong}"


MOST_COUNTED = 10**15 - 1
"""Highest count of an entry in a playbook file: 15 digits."""


def _with_steps(data: dict[str, Any]) -> dict[str, Any]:
    steps = data.get("steps", [])
    if not isinstance(steps, list) or not all(
        isinstance(step, list) and [*map(type, step)] == [str, str] for step in steps
    ):
        raise ValueError("steps must be a list of [kind, text]")
    return data


class _FileEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, StringConstraints(pattern="^[a-z](0|[1-9][0-9]*)$")] | None = None
    section: str = "general"
    text: str
    key: str = ""
    data: Annotated[dict[str, Any], AfterValidator(_with_steps)] = Field(default_factory=dict)
    helpful: int = Field(default=0, ge=0, le=MOST_COUNTED)
    harmful: int = Field(default=0, ge=0, le=MOST_COUNTED)
    uses: int = Field(default=0, ge=0, le=MOST_COUNTED)
    sources: tuple[str, ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    entries: list[_FileEntry]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Part of a playbook file that did not become part of an entry: its place in the file (`line 3`, `entries.0.note`),
    its text, and the reason why it was left out."""

    place: str
    text: str
    reason: str


class PlaybookWarning(PracticumWarning):
    """Parts of a playbook file were ignored. `left_out` has all these parts, in the order of the file."""

    def __init__(self, path: Path, left_out: Sequence[LeftOut]) -> None:
        self.left_out = tuple(left_out)
        shown = ", ".join(f"{o.place} {one_line(o.text, 40)!r} ({o.reason})" for o in left_out[:_MOST_NAMED])
        more = f" and {len(left_out) - _MOST_NAMED:,} more" if len(left_out) > _MOST_NAMED else ""
        super().__init__(f"{path}: {quantity(len(left_out), 'part')} ignored: {shown}{more}")


_MOST_NAMED = 3
"""Maximum number of parts in the text of a PlaybookWarning."""


def load(path: Path) -> Context:
    """Read a hand-written or exported playbook as a context at version 0. Entries keep the ids from the file; entries
    without an id get new ids. A list of tools (see `read_tools`) becomes entries with their descriptions.

    Warns with PlaybookWarning about lines and fields that are not in any entry. Raises ContextFileError if the file
    cannot be read, has no entries, or contains an id twice.
    """
    return parse(read_file(path), path)


def parse(text: str, source: Path) -> Context:
    """Read the text of a playbook, as `load` does. `source` is the place of the text in messages; the text of a source
    that ends with `.md` is markdown."""
    try:
        context, left_out = _from_json(text) if is_json(source, text) else _from_markdown(text)
    except ContextFileError as error:
        raise ContextFileError(error.code, f"{source}: {error}", **error.fields) from error
    if left_out:
        warnings.warn(PlaybookWarning(source, left_out), stacklevel=3)
    return context


def read_file(path: Path) -> str:
    """Return the text of a playbook file. Raises ContextFileError if the file cannot be read."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ContextFileError(
            "playbook.unreadable", f"cannot read the playbook {path}: {getattr(error, 'strerror', error)}"
        ) from error


def is_json(path: Path, text: str) -> bool:
    """Whether the text of a playbook file is JSON, not markdown."""
    return path.suffix != ".md" and text.lstrip().startswith(("{", "["))


def _from_json(text: str) -> tuple[Context, list[LeftOut]]:
    try:
        # Unlike `json`, this parser refuses NaN, unpaired surrogates and excessively nested lists.
        raw = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ContextFileError("playbook.malformed", f"not valid JSON: {error}") from error
    if tools := read_tools(raw):
        return initial_context(tool_entries(tools)), []
    try:
        whole = {"entries": raw} if isinstance(raw, list) else raw
        file = _File.model_validate(whole)
    except ValidationError as error:
        raise ContextFileError("playbook.malformed", fault(error)) from error
    if not file.entries:
        raise ContextFileError("playbook.empty", "the playbook has no entries: add at least one")
    ids = numbered((e.id, f"entries.{number}") for number, e in enumerate(file.entries))
    edits = [
        Add(e.section, e.text, e.key, e.data, e.helpful, e.harmful, sources=e.sources or ("seed",))
        for e in file.entries
    ]
    used = [Applied(Vote(id, uses=e.uses), id) for id, e in zip(ids, file.entries, strict=True) if e.uses]
    return initial_context(edits, ids).replay(used, 0), _unknown_fields(whole)


def _unknown_fields(file: dict[str, Any]) -> list[LeftOut]:
    """Return the fields of a JSON playbook that neither an import reads nor an export writes."""
    names = {*_FileEntry.model_fields, *(f.name for f in fields(Entry)), "trust"}
    unknown = [(name, value) for name, value in file.items() if name not in ("version", "entries")]
    unknown += [
        (f"entries.{n}.{name}", value)
        for n, entry in enumerate(file["entries"])
        for name, value in entry.items()
        if name not in names
    ]
    return [LeftOut(place, one_line(value), "unknown field") for place, value in unknown]


def numbered(entries: Iterable[tuple[str | None, str]]) -> list[str]:
    """Return an id for each entry of a file, given (id or None, place in the file) pairs. Entries without an id, or
    with an id that does not begin with e (such as c5, the id of a correction), get new ids, with numbers above the
    numbers of all ids that are kept. Raises ContextFileError for an id that occurs twice or is too large."""
    ids, places = list[str | None](), dict[str, str]()
    for stored_id, place in entries:
        id = stored_id if stored_id is not None and stored_id.startswith("e") else None
        # Python does not parse a number of thousands of digits.
        if id is not None and (len(id) > 20 or int(id[1:]) >= MOST_ENTRIES):
            raise ContextFileError(
                "playbook.invalid_entry",
                f"{place}: the id {one_line(id)} is too large: use at most e{MOST_ENTRIES - 1}",
            )
        if id is not None and (first := places.setdefault(id, place)) != place:
            raise ContextFileError(
                "playbook.duplicate_id",
                f"{place}: {first} already has the id {id}: omit the id here, and the entry gets a new id",
            )
        ids.append(id)
    new = count(max((int(id[1:]) for id in places), default=-1) + 1)
    return [f"e{next(new)}" if id is None else id for id in ids]


_COUNTS = re.compile(r"\s*\(\+([0-9]{1,15})/-([0-9]{1,15})\)$")
_ID = re.compile(r"\[([a-z](?:0|[1-9][0-9]*))\]\s*")
_ABOVE = re.compile(rf"{_ID.pattern}(?:{_COUNTS.pattern[:-1]})?")
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.+)$")
_UNDERLINE = re.compile(r"={2,}|-{2,}")
_BREAK = re.compile(r"-{3,}|(?:\*\s*){3,}|(?:_\s*){3,}")
_ITEM = re.compile(r"( {0,3}(?:[-*+]|\d+[.)])\s+)(.+)$")
_FENCE = re.compile(r"(`{3,}|~{3,})(?!.*`)")


@dataclass(frozen=True)
class MarkdownEntry:
    """Entry in a markdown file. `line` is the number of its first line. `id` is None if the file has no id for the
    entry."""

    line: int
    section: str
    id: str | None
    text: str
    helpful: int = 0
    harmful: int = 0


def _from_markdown(text: str) -> tuple[Context, list[LeftOut]]:
    items, left_out = read_items(text)
    # An empty context is exported as headings only.
    headings_only = bool(text.strip()) and all(line.startswith("#") for line in lines(text) if line.strip())
    if not items and not headings_only:
        raise ContextFileError(
            "playbook.empty",
            "the playbook has no entries: write each as a list item ('- If ..., then ...') under a '## section'",
        )
    ids = numbered((item.id, f"line {item.line}") for item in items)
    edits = [
        Add(item.section, item.text, helpful=item.helpful, harmful=item.harmful, sources=("seed",)) for item in items
    ]
    return initial_context(edits, ids), left_out


def read_items(text: str) -> tuple[list[MarkdownEntry], list[LeftOut]]:
    """Return the entries of a markdown text, and the lines that are not in any entry.

    List items are entries. Headings, including underlined headings, are sections. If the text has exactly one
    first-level heading and also deeper headings, the first-level heading is the title. Entries directly below the
    title, or above all headings, are in the section `general`.

    An item continues over the lines directly below its first line, indented or not, up to a blank line. After the blank
    line, it only continues over indented lines. A code block without indentation belongs to the item directly above the
    block; without such an item, the block is an entry.
    """
    reader = _Reader()
    numbered = list(enumerate(lines(text), 1))
    for number, raw in numbered[reader.skip_front_matter(numbered) :]:
        reader.read(number, raw.rstrip())
    return reader.items(), reader.left_out()


@dataclass(frozen=True, slots=True)
class _Heading:
    line: int
    level: int
    name: str


@dataclass
class _Reader:
    """Line-by-line reader of markdown."""

    headings: list[_Heading] = field(default_factory=list)
    entries: list[tuple[int, _Heading | None, list[str]]] = field(default_factory=list)
    """Line number, heading above, and lines of each item."""
    prose: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Lines outside of items, by line number, each with the reason why the line is not part of an item."""
    paragraph: list[int] = field(default_factory=list)
    """Line numbers of the paragraph that ends at the previous line. If the next line is an underline (=== or ---), this
    paragraph is a heading."""
    item: list[str] = field(default_factory=list)
    """Lines of the open item; empty if no item is open."""
    follows: bool = False
    """Whether the next line without indentation belongs to the open item."""
    indent: int = 0
    """Columns before the list marker of the open item."""
    width: int = 0
    """Columns before the text of the open item."""
    fence: str = ""
    """Fence (such as three backticks) that closes the open code block without indentation; empty if no such block is
    open."""

    def skip_front_matter(self, numbered: Sequence[tuple[int, str]]) -> int:
        """Return the number of lines of YAML front matter at the beginning of the file."""
        if not numbered or numbered[0][1].rstrip() != "---":
            return 0
        end = next((n for n, line in numbered[1:] if line.rstrip() in ("---", "...")), 0)
        self.prose |= {n: (line, "front matter") for n, line in numbered[1 : max(end - 1, 0)] if line.strip()}
        return end

    def read(self, number: int, line: str) -> None:
        if self.fence or _FENCE.match(line):
            self._code(number, line)
        elif self.paragraph and _UNDERLINE.fullmatch(line):
            name = " ".join(self.prose.pop(n)[0] for n in self.paragraph)
            self._open_section(_Heading(self.paragraph[0], 1 if line[0] == "=" else 2, name))
        elif (heading := _HEADING.match(line)) and not self._is_inside(line):
            self._open_section(_Heading(number, len(heading[1]), heading[2].strip()))
        elif _BREAK.fullmatch(line):
            self._close()
        elif (new_item := _ITEM.match(line)) and (not self.item or _indent(line) <= self.indent):
            self._open_item(number, new_item[2])
            self.follows, self.indent, self.width = True, _indent(line), len(new_item[1])
        elif self.item and line and (line[0].isspace() or (self.follows and not re.match(r"#+(?!\d)", line))):
            self.item.append(line.removeprefix("\t")[min(_indent(line), self.width) :])
        elif line:
            self._keep_out(number, line)
        elif self.item:
            self.item.append(line)
            self.follows = False
        else:
            self.paragraph = []

    def _is_inside(self, line: str) -> bool:
        """Whether a line is indented at least as far as the text of the open item."""
        return bool(self.item) and _indent(line) >= self.width

    def _code(self, number: int, line: str) -> None:
        opening = None if self.fence else _FENCE.match(line)
        if opening and not self.item:
            self._open_item(number)
        self.item.append(line)
        closed = self.fence and line.startswith(self.fence) and not line.strip(self.fence[0])
        self.fence = opening[1] if opening else "" if closed else self.fence
        self.follows = False

    def _open_section(self, heading: _Heading) -> None:
        self._close()
        self.headings.append(heading)

    def _open_item(self, number: int, *text: str) -> None:
        self._close()
        self.item = [*text]
        self.entries.append((number, self.headings[-1] if self.headings else None, self.item))

    def _close(self) -> None:
        self.item, self.follows, self.paragraph = [], False, []

    def _keep_out(self, number: int, line: str) -> None:
        self.item, self.follows = [], False
        if line == ADVICE:
            return
        spaceless = re.match(r"#{1,6}[^#\s]", line)
        self.prose[number] = (line, "a heading needs a space after #" if spaceless else "not a list item")
        if not line[0].isspace() and line[0] != ">":
            self.paragraph.append(number)
        else:
            self.paragraph = []

    def _title(self) -> _Heading | None:
        """Return the heading that is the title of the file and not a section, or None."""
        first = [h for h in self.headings if h.level == 1]
        return first[0] if len(first) == 1 and (len(self.headings) > 1 or not self.entries) else None

    def items(self) -> list[MarkdownEntry]:
        title = self._title()
        return [
            _item_of(line, "general" if heading in (None, title) else heading.name, text)
            for line, heading, text in self.entries
        ]

    def left_out(self) -> list[LeftOut]:
        title, used = self._title(), {heading for _, heading, _ in self.entries}
        parts = dict(self.prose)
        for heading in self.headings:
            if heading == title and heading in used:
                parts[heading.line] = (heading.name, "a title: entries directly below it are in 'general'")
            elif heading != title and heading not in used:
                parts[heading.line] = (heading.name, "a section without entries")
        return [LeftOut(f"line {number}", text.strip(), reason) for number, (text, reason) in sorted(parts.items())]


def _indent(line: str) -> int:
    """Return the number of spaces at the beginning of a line."""
    return len(line) - len(line.lstrip(" "))


def _item_of(line: int, section: str, item: list[str]) -> MarkdownEntry:
    """Parse a list item. A text of one line is between the id and the counts; a text of several lines is below the line
    with the id and the counts."""
    text = clean("\n".join(item))
    first, _, rest = text.partition("\n")
    match = (rest and _ABOVE.fullmatch(first)) or _ID.match(text)
    if not match:
        # An item without an id was not written by `export`, so the text of the item is kept unchanged.
        return MarkdownEntry(line, section, None, text)
    if match.re is _ABOVE:
        text, counts = clean(rest), match.groups("0")[1:]
    else:
        text = text[match.end() :]
        end_counts = _COUNTS.search(text)
        text, counts = (text[: end_counts.start()], end_counts.groups()) if end_counts else (text, ("0", "0"))
    return MarkdownEntry(line, section, match[1], text, *map(int, counts))
