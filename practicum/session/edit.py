"""Editing the playbook of a run as a markdown text (`practicum space edit`). The change becomes one more version.

The text is an export below a title that names the version it was made of. So a text that was kept can still be applied
when the run has changed meanwhile, if what it changes has not.
"""

from __future__ import annotations

import re
from pathlib import Path

from practicum.core.bounded import clean
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Update, changed_entries
from practicum.core.errors import ContextFileError, UsageError
from practicum.core.playbook import MarkdownEntry, export, read_items
from practicum.core.visible import visible
from practicum.session.corrections import LETTER, read_corrections
from practicum.store.database import Store
from practicum.store.snapshot import read_context

HAND = ("hand",)
"""The source of what was written by hand."""

HELP = """\
Change texts, remove items, move them to other sections, add new ones without an id
("- If ..., then ..."); then save the file and close the editor. An id says which entry
an item is. Counts (+helpful/-harmful) stay as they are, whatever is written here.
"""

_TITLE = re.compile(r"# Playbook of (.*), version (\d+)$", re.MULTILINE)

_PLAYBOOK = "# Playbook\n"

_OWN_TITLE = re.compile(r"\A# Playbook(?: of .*, version \d+)?$", re.MULTILINE)
"""The title of an export: never a section, though it is the only heading of a run without entries."""


def as_text(run: Path, context: Context) -> str:
    title = f"# Playbook of {run.resolve().name}, version {context.version}\n\n{HELP}"
    return title + _exported(context).removeprefix(_PLAYBOOK)


def _exported(context: Context) -> str:
    """The entries as they are edited: an editor, too, shows what hides. An entry that is not changed keeps it."""
    return visible(export(context, "markdown"))


def read_edits(store: Store, text: str) -> tuple[Context, Delta]:
    """The last version of a run, and the edits of it that this text asks for.

    Without a title that names a version, the text counts as made of the last one. Raises ContextFileError with the line
    that cannot be read, and UsageError for the text of another run, or if what it changes was changed in the run since.
    """
    base = last = read_context(store)
    if titled := _TITLE.match(text):
        if titled[1] != (name := store.folder.resolve().name):
            raise UsageError(
                "edit.refused", f"this is the playbook of {titled[1]}, not of {name}: if it fits, delete its first line"
            )
        base = read_context(store, int(titled[2]))
    delta = _delta(base, text, read_corrections(store))
    for edit in delta.edits:
        for id in changed_entries(edit):
            if _content(base.get(id)) != _content(last.get(id)):
                raise UsageError(
                    "entry.changed",
                    f"{id} was changed in {store.folder} since version {base.version}, of which this text was made: "
                    f"see practicum space diff {store.folder} {base.version} {last.version}",
                    entry=id,
                )
    return last, delta


def _content(entry: Entry | None) -> object:
    return None if entry is None else (entry.section, entry.text, entry.key, entry.data)


def _delta(base: Context, text: str, corrections: Context) -> Delta:
    """What turns a context into what the text says: removals, changes, then new entries. An export also has the
    corrections and notes, which are not edited."""
    if not text.strip():
        raise ContextFileError("playbook.empty", "the text is empty: to remove all entries, leave the headings")
    before = {item.id: item for item in read_items(_exported(base))[0]}
    seen: dict[str, int] = {}
    changed: list[Edit] = []
    added: list[Edit] = []
    for item in read_items(_OWN_TITLE.sub("", text))[0]:
        if item.id is None:
            added.append(Add(item.section, item.text, sources=HAND, reason="added by hand"))
            continue
        if (first := seen.setdefault(item.id, item.line)) != item.line:
            raise ContextFileError(
                "playbook.duplicate_id", f"line {item.line}: {item.id} is the id of line {first} already: {_NEW}"
            )
        if item.id.startswith(LETTER):
            _require_unchanged(item, corrections)
            continue
        entry = base.get(item.id)
        if entry is None or item.id not in before:
            raise ContextFileError(
                "entry.unknown",
                f"line {item.line}: version {base.version} has no entry {item.id}: {_NEW}",
                entry=item.id,
                line=item.line,
            )
        if not item.text:
            raise ContextFileError(
                "playbook.invalid_entry",
                f"line {item.line}: {item.id} has no text: remove the line to delete the entry",
            )
        if (edit := _update(entry, before[item.id], item)) is not None:
            changed.append(edit)
    removed = [Delete(id, reason="removed by hand") for id in before if id is not None and id not in seen]
    return Delta((*removed, *changed, *added))


_NEW = "leave out the id of a new item"


def _require_unchanged(item: MarkdownEntry, corrections: Context) -> None:
    """Raises ContextFileError for a correction or a note that was edited."""
    shown = {one.id: one for one in read_items(visible(export(Context(), "markdown", corrections)))[0]}
    if (known := shown.get(item.id)) is None or known.text != item.text or item.id is None:
        raise ContextFileError(
            "edit.refused",
            f"line {item.line}: {item.id} is a correction or a note, which is not edited here: withdraw it (practicum "
            f"review RUN --reject {item.id} --reason TEXT) and report the right one",
            line=item.line,
        )


def _update(entry: Entry, before: MarkdownEntry, now: MarkdownEntry) -> Update | None:
    """The edit that makes an entry what its item says now; None if that is the same."""
    if (before.section, before.text) == (visible(now.section), visible(now.text)):
        return None
    text, key, data = None, None, dict(entry.data)
    if before.text != now.text:
        text = now.text
        if data.get("answer") is not None:
            question, arrow, answer = text.rpartition("→ ")
            if not arrow:
                raise ContextFileError(
                    "playbook.invalid_entry",
                    f"line {now.line}: the answer of {entry.id} is missing: write it behind '→ '",
                )
            text = clean(question)
            data["answer"] = data["answer"] if answer == visible(str(data["answer"])) else answer
        # What a memory's text was made of says no longer what the text says.
        words = [data.pop(name, "") for name in ("title", "description", "content")]
        if entry.key == "{}. {} {}".format(*words):
            key = ""
    section = now.section if visible(now.section) != before.section else None
    return Update(
        entry.id, text if text != entry.text else None, section, key, data if data != entry.data else None, HAND,
        reason="edited by hand",
    )  # fmt: skip
