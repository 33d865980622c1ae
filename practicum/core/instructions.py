"""Instruction files of coding agents: CLAUDE.md, AGENTS.md, GEMINI.md.

A part of the file, between the lines BEGIN and END, belongs to practicum: an export replaces it, and keeps every other
byte. As a context, the list items of this part are entries. The text outside of this part has one entry per heading, so
that agents see the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from practicum.core.context import Context, initial_context
from practicum.core.edits import Add, Entry
from practicum.core.errors import ContextFileError
from practicum.core.files import read_bytes
from practicum.core.playbook import export, numbered, read_items
from practicum.core.skills import Part, chunks, part_edits, text_digest

NAMES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "GEMINI.md")
"""Names of files that coding agents read as instructions."""

BEGIN, END = "<!-- practicum:begin -->", "<!-- practicum:end -->"

_MARKS = re.compile(f"^(?:{BEGIN}|{END})(?=[ \\t]*\\r?$)".encode(), re.M)


def is_instructions(path: Path) -> bool:
    """Whether a file has the name of an instruction file, or a part that belongs to practicum."""
    return path.name in NAMES or (path.suffix == ".md" and _MARKS.search(read(path)) is not None)


def load(path: Path) -> Context:
    """Read an instruction file as a context at version 0. The section of the text outside of practicum's part is the
    name of the file. Raises ContextFileError if the file cannot be read or has no text."""
    before, inside, after = _divided(read(path), path)
    try:
        texts = [part.decode("utf-8-sig" if n == 0 else "utf-8") for n, part in enumerate((before, inside, after))]
    except UnicodeDecodeError as error:
        raise ContextFileError("playbook.unreadable", f"cannot read {path}: it is not UTF-8") from error
    about = {"skill": path.name, "file": path.name}
    adds = list[Add]()
    for n, text in enumerate(texts):
        if n == 1:
            adds += [Add(item.section, item.text, sources=("seed",)) for item in read_items(text)[0]]
        elif text.strip():
            pieces = ((path.name, "", chunk) for chunk in chunks(text))
            adds += part_edits(about, pieces, start=len(adds))
    if not adds:
        raise ContextFileError("playbook.empty", f"{path} has no text: write some, or leave out the file")
    return initial_context(adds, numbered((None, str(n)) for n in range(len(adds))))


def is_outside(entry: Entry, names: Collection[str] = NAMES) -> bool:
    """Whether an entry is unchanged text of an instruction file with one of these names, outside of practicum's
    part."""
    part = Part.of(entry)
    return (
        part is not None
        and part.skill == part.file
        and part.file in names
        and part.verbatim == text_digest(entry.text)
    )  # fmt: skip


def with_entries(content: bytes, entries: Iterable[Entry], path: Path, names: Collection[str] = ()) -> bytes:
    """Return the content of an instruction file with these entries as practicum's part. A file without this part gets
    it at the end, after a blank line. Entries that are unchanged text of the file, or of the files `names`, are left
    out. Raises ContextFileError if lines that mark the part are missing or repeated."""
    names = {path.name, *names}
    text = export(Context(), "agents-md", (entry for entry in entries if not is_outside(entry, names)))
    mark = _MARKS.search(content)
    # A carriage return at the end of the file is part of a line break only after the part was appended. So the line
    # breaks of an existing part decide.
    crlf = content[mark.end() :].partition(b"\n")[0].endswith(b"\r") if mark else b"\r\n" in content
    newline = "\r\n" if crlf else "\n"
    block = f"{BEGIN}\n{text}{END}".replace("\n", newline).encode()
    if mark:
        before, _, after = _divided(content, path)
        return before + block + after
    lines = 0 if not content or content.endswith((b"\n\n", b"\r\n\r\n")) else 1 if content.endswith(b"\n") else 2
    return content + newline.encode() * lines + block + newline.encode()


def read(path: Path) -> bytes:
    """Return the content of an instruction file. Raises ContextFileError if it cannot be read."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise ContextFileError("playbook.unreadable", f"cannot read {path}: {error.strerror}") from error


def _divided(content: bytes, path: Path) -> tuple[bytes, bytes, bytes]:
    """Return the content before, inside and after the part of practicum, without the lines that mark the part."""
    marks = [*_MARKS.finditer(content)]
    if not marks:
        return content, b"", b""
    if [mark[0].decode() for mark in marks] != [BEGIN, END]:
        raise ContextFileError(
            "playbook.malformed",
            f"{path} must have one line {BEGIN} and below it one line {END}: remove the other such lines",
        )
    begin, end = marks
    return content[: begin.start()], content[begin.end() : end.start()], content[end.end() :]
