"""Contexts as files: markdown for people, JSON without loss, and AGENTS.md for other agents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from practicum.core.bounded import clean
from practicum.core.context import MOST_ENTRIES, Context, initial_context
from practicum.core.edits import Add, Applied, Entry, Vote, entry_json
from practicum.core.errors import ContextFileError, UsageError
from practicum.core.files import read_text
from practicum.core.views import indented
from practicum.core.visible import lines, visible_to_model
from practicum.core.words import fault, one_line

ExportFormat = Literal["markdown", "json", "agents-md"]


def export(context: Context, format: ExportFormat) -> str:
    """The context as a text of this format, with a newline at the end. Hidden entries are in JSON only. Raises
    UsageError for another format."""
    if format not in get_args(ExportFormat):
        raise UsageError(
            "settings.invalid",
            f"unknown format {format!r}: it is one of {', '.join(get_args(ExportFormat))}",
            setting="format",
            known=[*get_args(ExportFormat)],
        )
    if format == "json":
        entries = [entry_json(e) for e in context]
        return json.dumps({"version": context.version, "entries": entries}, ensure_ascii=False, indent=2) + "\n"
    title = "# Playbook" if format == "markdown" else "# What was learned about the tasks here\n\nFollow what applies."
    sections: dict[str, list[str]] = {}
    for entry in context:
        if not entry.hidden:
            sections.setdefault(entry.section, []).append(_item(entry, format))
    parts = [f"## {' '.join(lines(name))}\n\n" + "\n".join(items) for name, items in sections.items()]
    return "\n\n".join([title, *parts]) + "\n"


def _item(entry: Entry, format: ExportFormat) -> str:
    """An entry as a list item, with its lines indented as markdown wants it, so that none of them is a heading or an
    item of the file. Lines of a text that has several stand below the id and the counts, so that a fence or a heading
    among them is at the beginning of a line. Agents elsewhere are shown what agents here are shown."""
    text = clean(_shown_text(entry))
    if format == "agents-md":
        return f"- {indented(visible_to_model(text))[2:]}"
    several = "\n" in text
    # A text that ends like counts needs counts behind it, so that they are what `load` takes away.
    shown = entry.helpful or entry.harmful or (not several and _COUNTS.search(text))
    counts = f" (+{entry.helpful}/-{entry.harmful})" if shown else ""
    return f"- [{entry.id}]{counts}\n{indented(text)}" if several else f"- [{entry.id}] {text}{counts}"


def _shown_text(entry: Entry) -> str:
    """The text of an entry with its answer, if it has one."""
    answer = entry.data.get("answer")
    return entry.text if answer is None else f"{entry.text}{chr(10) if chr(10) in entry.text else ' '}→ {answer}"


MOST_COUNTED = 10**15 - 1
"""The highest count in a file: 15 digits."""


def _with_steps(data: dict[str, Any]) -> dict[str, Any]:
    steps = data.get("steps", [])
    if not isinstance(steps, list) or not all(
        isinstance(step, list) and [*map(type, step)] == [str, str] for step in steps
    ):
        raise ValueError("steps must be a list of [kind, text]")
    return data


class _FileEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, StringConstraints(pattern="^e(0|[1-9][0-9]*)$")] | None = None
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


def load(path: Path) -> Context:
    """Read a hand-written or exported playbook, as a context at version 0. Entries keep the ids that the file gives
    them; others get new ones.

    Raises ContextFileError if it cannot be read, has no entries, or gives an id twice.
    """
    text = read_file(path)
    try:
        return _from_json(text) if is_json(path, text) else _from_markdown(text)
    except ContextFileError as error:
        raise ContextFileError("playbook.malformed", f"{path}: {error}") from error


def read_file(path: Path) -> str:
    """The text of a playbook file. Raises ContextFileError if it cannot be read."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ContextFileError(
            "playbook.unreadable", f"cannot read the playbook {path}: {getattr(error, 'strerror', error)}"
        ) from error


def is_json(path: Path, text: str) -> bool:
    """Whether the text of a playbook file is JSON rather than markdown."""
    return path.suffix != ".md" and text.lstrip().startswith(("{", "["))


def _from_json(text: str) -> Context:
    try:
        # Unlike `json`, this refuses NaN, halves of surrogate pairs, and lists in lists without end.
        raw = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ContextFileError("playbook.malformed", f"it is not JSON: {error}") from error
    try:
        file = _File.model_validate({"entries": raw} if isinstance(raw, list) else raw)
    except ValidationError as error:
        raise ContextFileError("playbook.malformed", fault(error)) from error
    if not file.entries:
        raise ContextFileError("playbook.empty", "it has no entries")
    ids = _numbered((e.id, f"entries.{number}") for number, e in enumerate(file.entries))
    edits = [
        Add(e.section, e.text, e.key, e.data, e.helpful, e.harmful, sources=e.sources or ("seed",))
        for e in file.entries
    ]
    used = [Applied(Vote(id, uses=e.uses), id) for id, e in zip(ids, file.entries, strict=True) if e.uses]
    return initial_context(edits, ids).replay(used, 0)


def _numbered(given: Iterable[tuple[str | None, str]]) -> list[str]:
    """An id for each entry of a file, given with its place there: its own, or a new one after all of these. Raises
    ContextFileError for an id that is given twice or is too large."""
    ids, places = list[str | None](), dict[str, str]()
    for id, place in given:
        # Python refuses to read a number of thousands of digits.
        if id is not None and (len(id) > 20 or int(id[1:]) >= MOST_ENTRIES):
            raise ContextFileError(
                "playbook.invalid_entry",
                f"{place}: the id {one_line(id)} is too large: the highest is e{MOST_ENTRIES - 1}",
            )
        if id is not None and (first := places.setdefault(id, place)) != place:
            raise ContextFileError(
                "playbook.duplicate_id", f"{place}: {id} is the id of {first} already: leave it out for a new entry"
            )
        ids.append(id)
    new = count(max((int(id[1:]) for id in places), default=-1) + 1)
    return [f"e{next(new)}" if id is None else id for id in ids]


_COUNTS = re.compile(r"\s*\(\+([0-9]{1,15})/-([0-9]{1,15})\)$")
_ID = re.compile(r"\[(e(?:0|[1-9][0-9]*))\]\s*")
_ABOVE = re.compile(rf"{_ID.pattern}(?:{_COUNTS.pattern[:-1]})?")
_HEADING = re.compile(r"#{2,6}\s+(.+)$")
_ITEM = re.compile(r"((?:[-*+]|\d+[.)])\s+)(.+)$")
_FENCE = re.compile(r"(`{3,}|~{3,})(?!.*`)")


@dataclass(frozen=True)
class Item:
    """An entry as it stands in a markdown file, from this line on. `id` is None if the file gives none."""

    line: int
    section: str
    id: str | None
    text: str
    helpful: int = 0
    harmful: int = 0


def _from_markdown(text: str) -> Context:
    items = read_items(text)
    # An empty context is exported as headings alone.
    headings_only = bool(text.strip()) and all(line.startswith("#") for line in lines(text) if line.strip())
    if not items and not headings_only:
        raise ContextFileError(
            "playbook.empty", "it has no entries: write each as a list item ('- If ..., then ...') under a '## section'"
        )
    ids = _numbered((item.id, f"line {item.line}") for item in items)
    edits = [
        Add(item.section, item.text, helpful=item.helpful, harmful=item.harmful, sources=("seed",)) for item in items
    ]
    return initial_context(edits, ids)


def read_items(text: str) -> list[Item]:
    """The entries of a markdown text. Headings of level two and below are sections, and list items are entries.

    To an item belong the indented lines after it, with the blank lines among them, and lines that follow it directly. A
    code block at the margin belongs to the item before it or, right below a heading, is an entry. Other lines are
    ignored.
    """
    section, items = "general", list[tuple[int, str, list[str]]]()
    # The lines of the item that is read, whether the next line at the margin belongs to it, and its indentation.
    item: list[str] = []
    follows, width, fence = False, 0, ""
    for number, raw in enumerate(lines(text), 1):
        line = raw.rstrip()
        opening = None if fence else _FENCE.match(line)
        if opening and not item:
            items.append((number, section, item := []))
        if fence or opening:
            item.append(line)
            closed = fence and line.startswith(fence) and not line.strip(fence[0])
            fence = opening[1] if opening else "" if closed else fence
            follows = False
        elif heading := _HEADING.match(line):
            section, item, follows = heading[1].strip(), [], False
        elif found := _ITEM.match(line):
            item, follows, width = [found[2]], True, len(found[1])
            items.append((number, section, item))
        elif item and line and (follows or line[0].isspace()) and not line.startswith("# "):
            indentation = len(line) - len(line.lstrip(" "))
            item.append(line.removeprefix("\t")[min(indentation, width) :])
        elif line:
            item, follows = [], False
        elif item:
            item.append(line)
            follows = False
    return [_item_of(*item) for item in items]


def _item_of(line: int, section: str, item: list[str]) -> Item:
    """A list item with its id and counts, which stand around a single line and above several."""
    text = clean("\n".join(item))
    first, _, rest = text.partition("\n")
    found = (rest and _ABOVE.fullmatch(first)) or _ID.match(text)
    if not found:
        # What has no id was not written by `export`, and keeps its words.
        return Item(line, section, None, text)
    if found.re is _ABOVE:
        text, counts = clean(rest), found.groups("0")[1:]
    else:
        text = text[found.end() :]
        behind = _COUNTS.search(text)
        text, counts = (text[: behind.start()], behind.groups()) if behind else (text, ("0", "0"))
    return Item(line, section, found[1], text, *map(int, counts))
