"""Change what a run learned, or carry it elsewhere: export, import, forget, rollback; and `diff`."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.operations import Key, Space, perform_at
from practicum.cli.output import Printer, confirm
from practicum.core.edits import Entry, entry_json
from practicum.core.errors import StoreError, UsageError
from practicum.core.files import write_atomic
from practicum.core.visible import visible
from practicum.core.words import in_number, quantity
from practicum.models.keys import ADDRESSES

MOST_ALIKE = 20
"""Entries with words of what was forgotten that are listed."""


def diff(
    run: Path = Argument(..., help="A run or a playbook file."),
    other: str = Argument(..., help="A version of the run or its name, or another run or playbook file."),
    new: str | None = Argument(None, help="Another version of the run, or its name."),
    json_: opt.Json = False,
) -> None:
    """Show the difference of two versions or two spaces."""
    from practicum.session.records import load_context, load_versions
    from practicum.store.versions import diff_contexts, diff_runs, rebuild

    out = Printer(json_)
    sides = {}
    if new is not None:
        difference = diff_contexts(load_context(run, other), load_context(run, new))
    elif "/" not in other and not Path(other.rpartition("@")[0] or other).exists():
        raise UsageError(
            "run.not_found", f"no run or file {other}; of two versions give both: practicum space diff {run} OLD NEW"
        )
    else:
        versions, others = load_versions(run), load_versions(other)
        difference = diff_runs(versions, others)
        sides = {"old": (run, rebuild(versions)), "new": (other, rebuild(others))}
    about = {
        side: {"path": str(path), "version": context.version, "entries": len(context)}
        for side, (path, context) in sides.items()
    }
    out.result({**about, **diff_json(*difference)})
    for side, (path, context) in sides.items():
        sign = "---" if side == "old" else "+++"
        out.item(f"{sign} {path}, version {context.version}: {quantity(len(context), 'entry')}")
    print_diff(out, *difference)


def diff_json(
    added: Sequence[Entry], removed: Sequence[Entry], changed: Sequence[tuple[Entry, Entry]]
) -> dict[str, Any]:
    """A difference of two contexts as plain values."""
    both = [{"before": entry_json(before), "after": entry_json(after)} for before, after in changed]
    return {"added": [*map(entry_json, added)], "removed": [*map(entry_json, removed)], "changed": both}


def print_diff(
    out: Printer, added: Sequence[Entry], removed: Sequence[Entry], changed: Sequence[tuple[Entry, Entry]]
) -> None:
    """Print a difference of two contexts: what was removed, what changed, what was added, and how much of each."""
    from practicum.core.views import entry_line

    for entry in removed:
        out.item(f"- {entry_line(entry)}", style="red")
    for before, after in changed:
        out.item(f"- {entry_line(before)}", style="red")
        out.item(f"+ {entry_line(after)}{trust_mark(after)}", style="green")
    for entry in added:
        out.item(f"+ {entry_line(entry)}{trust_mark(entry)}", style="green")
    out.print(f"{len(added)} added, {len(removed)} removed, {len(changed)} changed")


def trust_mark(entry: Entry) -> str:
    """The trust of an entry, where it is not the operator's own."""
    return "" if entry.trust == "own" else f"  ({entry.trust})"


def export(
    where: str = Argument(
        ...,
        metavar="SPACE",
        help="A run, a space, or a playbook file; with --user also a store of many spaces or the address of a service.",
    ),
    format: Literal["markdown", "json", "agents-md", "tasks", "traces"] = opt.option("markdown"),
    version: str | None = opt.option(None),
    output: Path | None = opt.option(None),
    user: str | None = opt.option(None),
    space: Space = None,
    key: Key = None,
    json_: opt.Json = False,
) -> None:
    """Write a context or the outcomes of a space as a file.

    A context is written as markdown, JSON or AGENTS.md, outcomes as JSON lines: tasks, or traces with what was
    answered. With --user, all that is kept of an end user is written as JSON lines, of one --space or of all in a
    store.
    """
    if user is not None:
        export_user(where, user, space, key, output, Printer(json_))
        return
    _require_user(where, space)
    run = Path(where)
    if format == "tasks" or format == "traces":
        export_outcomes(run, format, version, output, Printer(json_))
        return
    from practicum.core import playbook
    from practicum.core.context import Context
    from practicum.session.corrections import read_corrections
    from practicum.session.records import load_context, split_version
    from practicum.session.result import waiting_line
    from practicum.session.review import held_of
    from practicum.store.database import Store
    from practicum.store.folder import is_run
    from practicum.store.names import shown_version

    context, corrections, out = load_context(run, version), Context(), Printer(json_)
    folder, named = split_version(run)
    if is_run(folder):
        with Store.read(folder) as store:
            # Corrections hold in what agents see now, and belong to no version.
            if shown_version(store, version or named) == shown_version(store):
                corrections = read_corrections(store)
    text, held = playbook.export(context, format, corrections), held_of(run)
    if output is not None:
        write_atomic(output, text)
        out.print(
            f"version {context.version} with {quantity(len(context) + len(corrections), 'entry')} written to {output}"
        )
        if foreign := sum(entry.trust != "own" for entry in (*context, *corrections)):
            rest = in_number(foreign, "[does|do] not rest on your own tasks alone (practicum show says which)")
            out.print(f"{foreign:,} of them {rest}")
    elif not json_:
        # A file gets the text as it is, a terminal what can be seen of it.
        sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    out.result({"format": format, "text": text, "output": str(output) if output else None, "held": held})
    if held:
        # Standard output may be the text.
        Printer(True).print(waiting_line(held, split_version(run)[0]))


def export_outcomes(run: Path, format: str, version: str | None, output: Path | None, out: Printer) -> None:
    """Write the outcomes of a space as tasks, or as traces: with the recorded answers and their scores."""
    from practicum.session.outcome_tasks import load_outcomes
    from practicum.tasks.formats import as_json_lines

    if version is not None:
        raise UsageError("settings.unused", f"outcomes have no version: leave out --version, or --format {format}")
    tasks = load_outcomes(run)
    text = as_json_lines(tasks, attempts=format == "traces")
    if output is not None:
        write_atomic(output, text, private=True)
        out.print(f"{quantity(len(tasks), 'outcome')} of {run} written to {output}")
    elif not out.as_json:
        sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    out.result({"format": format, "text": text, "output": str(output) if output else None, "outcomes": len(tasks)})


def export_user(
    where: str, user: str, space: str | None, key: str | None, output: Path | None, out: Printer
) -> None:  # fmt: skip
    """Write all that the spaces at a place keep of a user."""
    from practicum.session import users

    if where.startswith(ADDRESSES):
        items = perform_at("export_user", where, space, key, user=user).as_json()["items"]
    else:
        with users.spaces_of(Path(where), user, space) as spaces:
            items = [{**item, "space": each.name} for each in spaces for item in users.export_user(each, user)]
    lines = "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in items)
    if output is not None:
        write_atomic(output, lines, private=True)
        out.print(f"{quantity(len(items), 'record')} of user {user} written to {output}")
    elif not out.as_json:
        sys.stdout.write(visible(lines) if sys.stdout.isatty() else lines)
    out.result({"user": user, "items": items, "output": str(output) if output else None})


def _require_user(where: str, space: str | None) -> None:
    """Raises UsageError for what only goes with --user."""
    if where.startswith(ADDRESSES):
        raise UsageError("settings.missing", f"{where} is the address of a service: give --user, or a folder")
    if space is not None:
        raise UsageError("settings.unused", "--space is for --user: of a store with many spaces, this one alone")


def import_(
    file: Path = Argument(..., help="A playbook: markdown list items under headings, or JSON; or a run."),
    folder: Path = opt.output(..., "--out"),
    trust: Literal["own", "foreign"] = opt.what("own"),
    store: opt.StoreUrl = None,
    json_: opt.Json = False,
) -> None:
    """Make a space from a playbook.

    It can be evaluated, and learned on. Flagged entries wait for review.
    """
    from practicum.core.playbook import PlaybookWarning
    from practicum.session.records import create_seed, load_context

    with warnings.catch_warnings(record=True) as caught:
        context = load_context(file)
    for warning in caught:
        warnings.warn(warning.message, stacklevel=1)
    left_out = [asdict(part) for w in caught if isinstance(w.message, PlaybookWarning) for part in w.message.left_out]
    waiting = create_seed(folder, context, trust, store=store or None)
    out, kept = Printer(json_), len(context) - waiting
    out.result({"run": str(folder), "entries": kept, "waiting": waiting, "left_out": left_out})
    if kept or not waiting:
        entries = quantity(kept, "entry")
        out.print(f"{entries} in {folder}: practicum learn TASKS.jsonl --seed-playbook {folder} --model NAME")
    if waiting:
        out.print(f"{in_number(waiting, f'{waiting:,} entr[y waits|ies wait]')} for review: practicum review {folder}")


def forget(
    where: str = Argument(
        ...,
        metavar="SPACE",
        help="The folder of a run or of a space; with --user also of a store with many spaces, or the address of a "
        "service.",
    ),
    task: list[str] = opt.option([]),
    source: list[str] = Option([], help="Forget what was learned from this source (see show --entry)."),
    tag: list[str] = opt.option([]),
    entry: list[str] = opt.option([]),
    user: str | None = opt.option(None),
    space: Space = None,
    key: Key = None,
    keep_mixed: bool = Option(False, "--keep-mixed", help="Keep entries that other tasks contributed to."),
    alike: bool = Option(False, "--alike", help="Also remove text that shares distinctive words with it."),
    copy: bool = Option(True, help="Keep a copy of the run as it was beside its folder."),
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Remove what was learned from tasks, sources, tags or users.

    It is removed for good, and what may be left of it is reported.
    """
    from practicum.core.views import entry_line
    from practicum.session.forget import forget as unlearn
    from practicum.session.records import free_folder
    from practicum.store.database import Store, as_stored
    from practicum.store.folder import SPACES, is_store

    if user is not None:
        if task or source or tag or entry or keep_mixed:
            raise UsageError(
                "settings.conflict",
                "--user can only be combined with --space, --key and --alike",
            )
        forget_user(where, user, space, key, alike, yes, Printer(json_))
        return
    _require_user(where, space)
    run = Path(where)
    if not (task or source or tag or entry):
        raise UsageError(
            "settings.missing", "nothing is named to be forgotten: give --task, --source, --tag, --entry or --user"
        )
    named = {"task": task, "source": source, "tag": tag, "entry": entry}
    about = ", ".join(chain.from_iterable(named.values()))
    confirm(f"Remove all that {run} learned from {about}?", yes)
    # Of a space among many, the copy is a run beside the whole store.
    whole = run.parent.parent
    beside = whole.with_name(f"{whole.name}-{run.name}") if run.parent.name == SPACES and is_store(whole) else run
    copies = sorted(beside.resolve().parent.glob(f"{beside.name}-before-forget*"))
    with as_stored(run), Store.open(run) as store:
        has_forgotten = store.has_forgotten
        kept = free_folder(beside.with_name(f"{beside.name}-before-forget")) if copy else None
        found = unlearn(
            store, tasks=task, sources=source, tags=tag, entries=entry, keep_mixed=keep_mixed, alike=alike,
            copy_to=kept,
        )  # fmt: skip
    out = Printer(json_)
    entries = {"removed": found.removed, "restored": found.restored, "kept_mixed": found.kept_mixed}
    numbers = {"edits": found.edits, "rows": found.rows, "left": found.left}
    matches = {
        "entries": [{**entry_json(e), "words": words} for e, words in found.alike.entries],
        "rows": found.alike.rows,
    }
    lists = {name: [*map(entry_json, some)] for name, some in entries.items()}
    out.result({**lists, **numbers, "alike": matches, "namesakes": [*found.namesakes]})
    for e in found.removed:
        out.item(f"- {entry_line(e)}", style="red")
        asked = next((source.removeprefix("task:") for source in e.sources if source.startswith("task:")), None)
        if asked and e.id in entry and e.id.startswith("c"):
            out.item(f"  its question stays with the interaction {asked}: to remove that, too, give --task {asked}")
    for e in found.restored:
        out.item(f"restored to what it was before: {entry_line(e)}")
    for e in found.kept_mixed:
        out.item(f"kept, because other tasks contributed to it: {entry_line(e)}")
    removed = [quantity(len(found.removed), "entry"), quantity(found.edits, "edit"), quantity(found.rows, "record")]
    out.print(f"{', '.join(removed[:2])} and {removed[2]} removed")
    for name in found.namesakes:
        out.print(f"kept, because it has this name from an earlier run: forget it with --source {shlex.quote(name)}")
    if found.left:
        left = in_number(found.left, "record[|s] still hold[s|] it")
        raise StoreError("forget.incomplete", f"{found.left:,} {left} in {run}, because what stays rests on it, too")
    if has_forgotten:
        out.print("an earlier forget of this run, which was interrupted, is finished: no byte of it is left in the run")
    if kept is not None and not kept.exists():
        kept = None
    if kept is not None:
        out.print(f"a copy of the run as it was is in {kept}: delete it when you do not need it, because it holds all")
    for earlier in copies:
        out.print(f"an earlier copy of the run, which holds all of then, is in {earlier}: delete it, too")
    for e, words in found.alike.entries[:MOST_ALIKE]:
        out.item(f"has rare words of it ({', '.join(words[-3:])}): {entry_line(e)}")
    if found.alike:
        entries_left, rows_left = len(found.alike.entries), sum(found.alike.rows.values())
        both = f"{quantity(entries_left, 'entry')} and {quantity(rows_left, 'record')}"
        options = [f"--{name} {shlex.quote(one)}" for name, some in named.items() for one in some]
        options += ["--keep-mixed"] if keep_mixed else []
        where = (
            ": to remove them too, forget it in the copy with --alike and use that one from then on: practicum space "
            f"forget {shlex.quote(str(kept))} {' '.join(options)} --alike"
            if kept is not None
            else ""
        )
        out.print(f"{both} still have rare words of it, copied or by chance{where}")
    words_too = "; no text that is left has rare words of it" if not found.alike else ""
    out.print(
        f"checked: no record names it, and no text has its words that does not have them from elsewhere{words_too}. "
        "Paraphrases are not found"
    )


def forget_user(
    where: str, user: str, space: str | None, key: str | None, alike: bool, yes: bool, out: Printer
) -> None:  # fmt: skip
    """Remove all that the spaces at a place keep of a user, and say what was removed in each space."""
    from practicum.session import users

    question = f"Remove all that {where} keeps of user {user}"
    if where.startswith(ADDRESSES):
        confirm(f"{question}? No copy is kept.", yes)
        found = [perform_at("forget_user", where, space, key, user=user, alike=alike).as_json()]
    else:
        with users.spaces_of(Path(where), user, space) as spaces:
            confirm(f"{question}, in {', '.join(each.name for each in spaces)}? No copy is kept.", yes)
            found = [users.forget_user(each, user, alike=alike).as_json() for each in spaces]
    out.result({"user": user, "spaces": found})
    for counts in found:
        rows = [quantity(counts[f"{name}s"], name) for name in ("interaction", "outcome", "correction")]
        learned = f"{quantity(counts['entries'], 'entry')} and {quantity(counts['records'], 'record')}"
        out.print(f"space {counts['space']}: {', '.join(rows)} removed; of what was learned {learned}")
        if counts["again"]:
            out.print(f"{quantity(counts['again'], 'outcome')} of sessions with others will be learned from again")
        if counts["alike"]:
            records = f"{counts['alike']:,} record[|s] of the run still ha[s|ve] rare words of it"
            out.print(f"{in_number(counts['alike'], records)}, copied or by chance")
    if left := sum(counts["left"] for counts in found):
        records = in_number(left, "record[|s] still hold[s|] it")
        raise StoreError("forget.incomplete", f"{left:,} {records} in {where}, because what stays rests on it, too")
    out.print("checked: no record names it, and no file holds an interaction of it. Paraphrases are not found")


def rollback(
    run: opt.RunFolder,
    version: str = Argument(..., help="The version to go back to, or its name."),
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Make an earlier version the last one again.

    That is a new version, and nothing is lost. At the address of a service, all requests see VERSION at once (default:
    the one before).
    """
    from practicum.session.amend import roll_back
    from practicum.store.database import Store, as_stored
    from practicum.store.names import find_version
    from practicum.store.snapshot import read_context

    with as_stored(run), Store.open(run) as store:
        number = find_version(store, version)
        was, now = read_context(store), read_context(store, number)
        if now.version == was.version:
            raise UsageError("version.unchanged", f"version {was.version} is the last one of {run} already")
        sizes = f"{quantity(len(was), 'entry')} now, {len(now):,} then"
        confirm(f"Go from version {was.version} of {run} back to version {now.version} ({sizes})?", yes)
        made = roll_back(store, now.version)
    out = Printer(json_)
    out.result({"run": str(run), "version": made, "as": now.version})
    out.print(f"version {made} of {run} is version {now.version} again; learn on from it: practicum space resume {run}")
