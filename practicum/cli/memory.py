"""`practicum memory`: the memories of a run, listed, searched, shown, added and removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from practicum.core.context import Context
    from practicum.core.edits import Entry
    from practicum.retrieval.search import Filter

Opt = typer.Option

ALL = "all"
"""The section that stands for every one that is not hidden."""

LISTED, FOUND = 50, 5
"""Entries shown where no number is given: by list, and by search."""


def memory(
    run: Path = typer.Argument(..., help="The run's folder."),
    action: str = typer.Argument("list", help='list, search "TEXT", show ID, add FILE, remove ID or reembed.'),
    what: str | None = typer.Argument(None, help="The text, id or file of the action."),
    section: str | None = Opt(None, help="Section of the entries (default: memories); all for every one."),
    tag: list[str] = Opt([], help="list, search: only what was learned from tasks with this tag."),
    outcome: str | None = Opt(None, help="list, search: only memories of a success, or of a failure."),
    k: int | None = Opt(None, "-k", min=1, help=f"Most entries shown (list: the newest {LISTED}, search: {FOUND})."),
    embedder: str | None = Opt(None, help="search: the run's own; reembed: the one to take from now on."),
    json_: opt.Json[bool] = False,
) -> int:
    """Look at the memories of a run, or change them. What is changed is a new version, which rollback can undo."""
    options = {"--section": section, "--tag": tag or None, "--outcome": outcome, "-k": k, "--embedder": embedder}
    if action not in ACTIONS:
        raise UsageError(f"there is no {action!r}: practicum memory RUN {WAYS}")
    needs, taken = ACTIONS[action]
    if needs and what is None:
        raise UsageError(f"{action} what? practicum memory {run} {action} {needs}")
    if not needs and what is not None:
        raise UsageError(f"{action} takes nothing, but {what!r} was given")
    for name, value in options.items():
        if value is not None and name not in taken:
            raise UsageError(f"{name} is not for {action}: leave it out")
    given, named = what or "", section or "memories"
    if action in ("list", "search"):
        where = _filter(named, tag, outcome)
        if action == "list":
            return _list(run, where, k, json_)
        return _search(run, given, where, k or FOUND, embedder, json_)
    changes: dict[str, Callable[[], int]] = {
        "show": lambda: _show(run, given, json_),
        "add": lambda: _add(run, Path(given), named, json_),
        "remove": lambda: _remove(run, given, json_),
        "reembed": lambda: _reembed(run, embedder, json_),
    }
    return changes[action]()


ACTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "list": ("", ("--section", "--tag", "--outcome", "-k")),
    "search": ('"TEXT"', ("--section", "--tag", "--outcome", "-k", "--embedder")),
    "show": ("ID", ()),
    "add": ("FILE", ("--section",)),
    "remove": ("ID", ()),
    "reembed": ("", ("--embedder",)),
}
"""What each action needs, and the options it takes."""

WAYS = ", ".join(f"{action} {needs}".strip() for action, (needs, _) in ACTIONS.items())


def _context(run: Path) -> Context:
    from practicum.session.records import RUN
    from practicum.store.database import Store
    from practicum.store.snapshot import read_context

    with Store.read(run) as store:
        return read_context(store, RUN)


def _filter(section: str, tags: Sequence[str], outcome: str | None) -> Filter:
    from practicum.retrieval.search import Filter

    if outcome not in (None, "success", "failure"):
        raise UsageError(f"--outcome {outcome}: memories are of a success or of a failure")
    return Filter(section=None if section == ALL else section, tags=tuple(tags), outcome=outcome)


def _list(run: Path, where: Filter, most: int | None, json_: bool) -> int:
    from practicum.cli.running import console_for, print_json
    from practicum.core.edits import entry_json

    context = _context(run)
    found = [entry for entry in context if where(entry)]
    if json_:
        # All of them, where no number was given: a program has no screen to fill.
        shown = found[-most:] if most is not None else found
        print_json({"run": str(run), "version": context.version, "entries": [entry_json(entry) for entry in shown]})
        return 0
    console = console_for(json_)
    if not found:
        _nothing(console, run, context, where)
        return 0
    from practicum.cli.tables import print_table, table

    made = table("entry", "outcome", "what it says", "helpful", "harmful", "used", "born", numbers=NUMBERS)
    k = most or LISTED
    for e in found[-k:]:
        counts = (e.helpful, e.harmful, e.uses, e.born)
        made.add_row(e.id, _outcome(e), _title(e), *map(str, counts))
    print_table(console, made)
    older = len(found) - k
    console.print(f"{len(found):,} in version {context.version}" + (f", {older:,} older ones not shown" * (older > 0)))
    return 0


NUMBERS = ("helpful", "harmful", "used", "born", "similarity")


def _search(run: Path, text: str, where: Filter, k: int, embedder: str | None, json_: bool) -> int:
    from practicum.cli.running import console_for, print_json, run_work
    from practicum.core.edits import entry_json
    from practicum.session.memories import search

    if not text.strip():
        raise UsageError("the text to search for is empty")
    console = console_for(json_)
    found = run_work(lambda stop: search(run, text, k, where, embedder), console)
    if json_:
        near = [{**entry_json(f.entry), "similarity": round(f.similarity, 4)} for f in found]
        print_json({"run": str(run), "text": text, "entries": near})
        return 0
    if not found:
        _nothing(console, run, _context(run), where)
        return 0
    from practicum.cli.tables import print_table, table

    made = table("entry", "similarity", "what it says", numbers=NUMBERS)
    for f in found:
        made.add_row(f.entry.id, f"{f.similarity:z.2f}", _whole(f.entry))
    print_table(console, made)
    return 0


def _show(run: Path, id: str, json_: bool) -> int:
    from practicum.cli.context import show_entry
    from practicum.session.records import RUN, read_run
    from practicum.store.database import Store
    from practicum.store.versions import read_versions

    with Store.read(run) as store:
        versions, (_, splits, _) = read_versions(store, RUN), read_run(store)
    return show_entry(run, versions, id, splits, json_)


def _add(run: Path, file: Path, section: str, json_: bool) -> int:
    from practicum.cli.running import console_for, print_json, run_work
    from practicum.core.edits import entry_json
    from practicum.core.views import entry_line
    from practicum.session.memories import add

    if section == ALL:
        raise UsageError(f"--section {ALL} stands for every section: name the one to add to")
    console = console_for(json_)
    added = run_work(lambda stop: add(run, file, section), console)
    if json_:
        entries = [entry_json(entry) for entry in added.entries]
        print_json({"run": str(run), "version": added.context.version, "added": entries, "same": added.same})
    for entry in added.entries:
        same = added.same.get(entry.id)
        again = f"  (word for word what {same} says)" if same else ""
        console.print(f"+ {entry_line(entry)}{again}", style="green")
    twice = f", {len(added.same):,} of them said already" if added.same else ""
    console.print(f"{len(added.entries):,} added{twice}: version {added.context.version} of {run}")
    return 0


def _remove(run: Path, id: str, json_: bool) -> int:
    from practicum.cli.running import console_for, print_json
    from practicum.core.edits import entry_json
    from practicum.core.views import entry_line
    from practicum.session.memories import remove

    context, gone = remove(run, id)
    console = console_for(json_)
    if json_:
        print_json({"run": str(run), "version": context.version, "removed": entry_json(gone)})
    console.print(f"- {entry_line(gone)}", style="red")
    undo = f"practicum rollback {run} {context.version - 1}"
    console.print(f"version {context.version} of {run} is without it; undo it: {undo}")
    return 0


def _reembed(run: Path, embedder: str | None, json_: bool) -> int:
    from practicum.cli.running import console_for, print_json, run_work
    from practicum.session.memories import reembed
    from practicum.session.records import run_config

    console = console_for(json_)
    count = run_work(lambda stop: reembed(run, embedder), console)
    name = run_config(run)["embedder"]
    if json_:
        print_json({"run": str(run), "embedder": name, "embedded": count})
    console.print(f"{count:,} texts of {run} embedded by {name}")
    return 0


def _nothing(console: Console, run: Path, context: Context, where: Filter) -> None:
    """Why there is nothing to show, and what there is."""
    from collections import Counter

    inside = [e for e in context if not e.hidden and where.section in (None, e.section)]
    kind = "entries" if where.section is None else where.section
    if inside:
        console.print(f"none of the {len(inside):,} {kind} in {run} is of this kind")
        return
    sections = Counter(e.section for e in context if not e.hidden)
    there = ", ".join(f"{name} ({count:,})" for name, count in sections.items())
    other = f"; its entries are in: {there} (--section NAME)" if there else ", and nothing else either"
    console.print(f"there are no {kind} in {run} yet{other}")


def _outcome(entry: Entry) -> str:
    return str(entry.data.get("outcome", "-"))


def _title(entry: Entry) -> str:
    """What an entry is about, on one line."""
    title: Any = entry.data.get("title") or _whole(entry)
    said = " ".join(str(title).split())
    return said if len(said) <= SHOWN else said[: SHOWN - 1] + "…"


SHOWN = 80
"""Characters of an entry in a list."""


def _whole(entry: Entry) -> str:
    answer = entry.data.get("answer")
    return entry.text + (f" → {answer}" if answer is not None else "")
