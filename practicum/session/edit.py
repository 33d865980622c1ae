"""Editing of a run's playbook as markdown text (`practicum space edit`). An edit adds one version.

The text is an export below a title that names the exported version. So an old text can still be applied after the run
has changed, unless an entry that the text edits has changed too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from practicum.core.bounded import clean
from practicum.core.context import Context
from practicum.core.edits import RETIRED, Add, Delete, Delta, Edit, Entry, Update, changed_entries
from practicum.core.errors import ContextFileError, UsageError
from practicum.core.playbook import MarkdownEntry, export, read_items
from practicum.core.visible import visible
from practicum.session.corrections import LETTER, read_corrections
from practicum.store.database import Store
from practicum.store.snapshot import read_context

HAND = ("hand",)
"""Source of text written by hand."""

HELP = """\
Change texts, remove items, move items to other sections, or add items without an id
("- If ..., then ..."); then save the file and close the editor. An id identifies the entry
of an item. Changes of the counts (+helpful/-harmful) are ignored. A retired item that you
move to another section is used again, and its counts start at 0.
"""

_RETIRED = "Retired: "
"""Beginning of the headings above retired entries."""

_TITLE = re.compile(r"# Playbook of (.*), version (\d+)$", re.MULTILINE)

_PLAYBOOK = "# Playbook\n"

_OWN_TITLE = re.compile(r"\A# Playbook(?: of .*, version \d+)?$", re.MULTILINE)
"""Title of an export. The title is not a section, even if it is the only heading, as in a run without entries."""


def as_text(run: Path, context: Context) -> str:
    title = f"# Playbook of {run.resolve().name}, version {context.version}\n\n{HELP}"
    return title + _exported(context, retired=True).removeprefix(_PLAYBOOK)


def _exported(context: Context, *, retired: bool) -> str:
    """Return the entries as markdown for an editor, with hidden characters made visible, and retired entries on
    request. The run keeps the hidden characters of entries that are not edited."""
    more = [replace(one, section=_RETIRED + one.section.removeprefix(RETIRED)) for one in context if one.retired]
    return visible(export(context, "markdown", more if retired else ()))


def read_edits(store: Store, text: str) -> tuple[Context, Delta]:
    """Return the last version of a run, and the edits in this text.

    The edits are the differences from the version that the title names, or from the last version if no title names a
    version. Raises ContextFileError with the line that cannot be read. Raises UsageError for the text of another run,
    or if an edited entry was changed in the run since the version that the title names.
    """
    base = last = read_context(store)
    if title := _TITLE.match(text):
        if title[1] != (name := store.folder.resolve().name):
            raise UsageError(
                "edit.refused",
                f"this is the playbook of {title[1]}, not of {name}: to apply the text anyway, delete the first line "
                "of the text",
            )
        base = read_context(store, int(title[2]))
    delta = _delta(base, text, read_corrections(store), retired=title is not None)
    for edit in delta.edits:
        for id in changed_entries(edit):
            if _content(base.get(id)) != _content(last.get(id)):
                raise UsageError(
                    "entry.changed",
                    f"{id} was changed in {store.folder} since version {base.version}, the version of this text: see "
                    f"practicum space diff {store.folder} {base.version} {last.version}",
                    entry=id,
                )
    return last, delta


def _content(entry: Entry | None) -> object:
    return None if entry is None else (entry.section, entry.text, entry.key, entry.data)


def _delta(base: Context, text: str, corrections: Context, *, retired: bool) -> Delta:
    """Return the edits that turn a context into the text: removals, changes, then new entries. `retired`: whether the
    text was made with the retired entries, so that a missing one was removed.

    An export also contains the corrections and notes, which cannot be edited.
    """
    if not text.strip():
        raise ContextFileError(
            "playbook.empty", "the text is empty: to remove all entries, delete the items and keep the headings"
        )
    before = {item.id: item for item in read_items(_exported(base, retired=retired))[0]}
    seen: dict[str, int] = {}
    changed: list[Edit] = []
    added: list[Edit] = []
    for item in read_items(_OWN_TITLE.sub("", text))[0]:
        if item.id is None:
            added.append(Add(_section(item), item.text, sources=HAND, reason="added by hand"))
            continue
        if (first := seen.setdefault(item.id, item.line)) != item.line:
            raise ContextFileError(
                "playbook.duplicate_id", f"line {item.line}: {item.id} is already the id of line {first}: {_NEW_ITEM}"
            )
        if item.id.startswith(LETTER):
            _require_unchanged(item, corrections)
            continue
        entry = base.get(item.id)
        if entry is None or item.id not in before:
            raise ContextFileError(
                "entry.unknown",
                f"line {item.line}: version {base.version} has no entry {item.id}: {_NEW_ITEM}",
                entry=item.id,
                line=item.line,
            )
        if not item.text:
            raise ContextFileError(
                "playbook.invalid_entry",
                f"line {item.line}: {item.id} has no text: remove the line to delete the entry",
            )
        if edit := _update(entry, before[item.id], item):
            changed.append(edit)
    removed = [Delete(id, reason="removed by hand") for id in before if id is not None and id not in seen]
    return Delta((*removed, *changed, *added))


_NEW_ITEM = "if the item is new, remove the id of the item"


def _require_unchanged(item: MarkdownEntry, corrections: Context) -> None:
    """Raise ContextFileError for a correction or a note that was edited."""
    shown = {one.id: one for one in read_items(visible(export(Context(), "markdown", corrections)))[0]}
    if (original := shown.get(item.id)) is None or original.text != item.text or item.id is None:
        raise ContextFileError(
            "edit.refused",
            f"line {item.line}: {item.id} is a correction or a note, which cannot be edited here: withdraw "
            f"{item.id} (practicum review RUN --reject {item.id} --reason TEXT) and report a new correction or note",
            line=item.line,
        )


def _section(item: MarkdownEntry) -> str:
    """Return the section of an item. An item below the heading of retired entries is retired."""
    return RETIRED + item.section.removeprefix(_RETIRED) if item.section.startswith(_RETIRED) else item.section


def _update(entry: Entry, before: MarkdownEntry, now: MarkdownEntry) -> Update | None:
    """Return the edit that gives an entry the text and the section of the item `now`, or None if text and section are
    unchanged."""
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
                    f"line {now.line}: the answer of {entry.id} is missing: write the answer after '→ '",
                )
            text = clean(question)
            data["answer"] = data["answer"] if answer == visible(str(data["answer"])) else answer
        # A key that was derived from the fields of a memory does not match the new text, so the key is removed.
        words = [data.pop(name, "") for name in ("title", "description", "content")]
        if entry.key == "{}. {} {}".format(*words):
            key = ""
    section = _section(now) if visible(now.section) != before.section else None
    return Update(
        entry.id, text if text != entry.text else None, section, key, data if data != entry.data else None, HAND,
        reason="edited by hand",
    )  # fmt: skip
