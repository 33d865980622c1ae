"""Contexts as files: markdown for people, JSON without loss, and AGENTS.md for other agents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from practicum.core.bounded import clean
from practicum.core.context import Context, initial_context, seed_context
from practicum.core.edits import Add, Edit, Entry, Vote, entry_json
from practicum.core.errors import ContextFileError
from practicum.core.views import indented

ExportFormat = Literal["markdown", "json", "agents-md"]


def export(context: Context, format: ExportFormat) -> str:
    """The context as a text of this format, with a newline at the end. Hidden entries are in JSON only."""
    if format == "json":
        entries = [entry_json(e) for e in context]
        return json.dumps({"version": context.version, "entries": entries}, ensure_ascii=False, indent=2) + "\n"
    title = "# Playbook" if format == "markdown" else "# What was learned about the tasks here\n\nFollow what applies."
    sections: dict[str, list[str]] = {}
    for entry in context:
        if not entry.hidden:
            sections.setdefault(entry.section, []).append(_item(entry, format))
    return "\n\n".join([title, *(f"## {name}\n\n" + "\n".join(items) for name, items in sections.items())]) + "\n"


def _item(entry: Entry, format: ExportFormat) -> str:
    """An entry as a list item, with its lines indented as markdown wants it. Lines of a text that has several stand
    below the id and the counts, so that a fence or a heading among them is at the beginning of a line."""
    text, several = entry.text, "\n" in entry.text
    answer = entry.data.get("answer")
    if answer is not None:
        text += f"{chr(10) if several else ' '}→ {answer}"
    if format == "agents-md":
        return f"- {indented(text)[2:]}"
    # A text that ends like counts needs counts behind it, so that they are what `load` takes away.
    shown = entry.uses or (not several and _COUNTS.search(text))
    counts = f" (+{entry.helpful}/-{entry.harmful})" if shown else ""
    return f"- [{entry.id}]{counts}\n{indented(text)}" if several else f"- [{entry.id}] {text}{counts}"


class _FileEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")

    section: str = "general"
    text: str
    key: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
    helpful: int = Field(default=0, ge=0)
    harmful: int = Field(default=0, ge=0)
    uses: int = Field(default=0, ge=0)
    sources: tuple[str, ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    entries: list[_FileEntry]


def load(path: Path) -> Context:
    """Read a hand-written or exported playbook, as a context at version 0 with new ids.

    Raises ContextFileError if it cannot be read or has no entries.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ContextFileError(f"cannot read the playbook {path}: {getattr(error, 'strerror', error)}") from error
    try:
        is_json = path.suffix != ".md" and text.lstrip().startswith(("{", "["))
        return _from_json(text) if is_json else _from_markdown(text)
    except ContextFileError as error:
        raise ContextFileError(f"{path}: {error}") from error


def _from_json(text: str) -> Context:
    try:
        raw = json.loads(text)
        file = _File.model_validate({"entries": raw} if isinstance(raw, list) else raw)
    except json.JSONDecodeError as error:
        raise ContextFileError(f"line {error.lineno} is not JSON: {error.msg}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ContextFileError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if not file.entries:
        raise ContextFileError("it has no entries")
    edits: list[Edit] = []
    for e in file.entries:
        edits.append(Add(e.section, e.text, e.key, e.data, e.helpful, e.harmful, sources=e.sources or ("seed",)))
    edits += [Vote(f"e{number}", uses=e.uses) for number, e in enumerate(file.entries) if e.uses]
    return initial_context(edits)


_ID = re.compile(r"^\[e\d+\]\s*")
_COUNTS = re.compile(r"\s*\(\+\d+/-\d+\)$")
_ABOVE = re.compile(r"\[e\d+\](?:\s*\(\+\d+/-\d+\))?")
_HEADING = re.compile(r"#{2,6}\s+(.+)$")
_ITEM = re.compile(r"((?:[-*+]|\d+[.)])\s+)(.+)$")
_FENCE = re.compile(r"(`{3,}|~{3,})(?!.*`)")


def _from_markdown(text: str) -> Context:
    """Headings of level two and below are sections, and list items are entries.

    To an item belong the indented lines after it, with the blank lines among them, and lines that follow it directly. A
    code block at the margin belongs to the item before it or, right below a heading, is an entry. Other lines are
    ignored.
    """
    section, items = "general", list[tuple[str, list[str]]]()
    # The lines of the item that is read, whether the next line at the margin belongs to it, and its indentation.
    item: list[str] = []
    follows, width, fence = False, 0, ""
    for raw in text.split("\n"):
        line = raw.rstrip()
        opening = None if fence else _FENCE.match(line)
        if opening and not item:
            items.append((section, item := []))
        if fence or opening:
            item.append(line)
            closed = fence and line.startswith(fence) and not line.strip(fence[0])
            fence = opening[1] if opening else "" if closed else fence
            follows = False
        elif heading := _HEADING.match(line):
            section, item, follows = heading[1].strip(), [], False
        elif found := _ITEM.match(line):
            item, follows, width = [found[2]], True, len(found[1])
            items.append((section, item))
        elif item and line and (follows or line[0].isspace()) and not line.startswith("# "):
            indentation = len(line) - len(line.lstrip(" "))
            item.append(line.removeprefix("\t")[min(indentation, width) :])
        elif line:
            item, follows = [], False
        elif item:
            item.append(line)
            follows = False
    # An empty context is exported as headings alone.
    headings_only = bool(text.strip()) and all(line.startswith("#") for line in text.split("\n") if line.strip())
    if not items and not headings_only:
        raise ContextFileError(
            "it has no entries: write each as a list item ('- If ..., then ...') under a '## section'"
        )
    return seed_context((section, _text_of(lines)) for section, lines in items)


def _text_of(lines: list[str]) -> str:
    """The text of a list item without id and counts, which stand around a single line and above several."""
    text = clean("\n".join(lines))
    first, _, rest = text.partition("\n")
    if rest and _ABOVE.fullmatch(first):
        return clean(rest)
    # What has no id was not written by `export`, and keeps its words.
    return _COUNTS.sub("", _ID.sub("", text)) if _ID.match(text) else text
