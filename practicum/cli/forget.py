"""`practicum space forget`: what was learned from tasks, sources, tags or users is removed for good."""

from __future__ import annotations

import shlex
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.operations import Key, Space, perform_at, require_user
from practicum.cli.output import Printer, confirm
from practicum.core.errors import StoreError, UsageError
from practicum.core.words import in_number, quantity
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    from practicum.session.forget import ForgetReport

MOST_ALIKE = 20
"""Entries with words of what was forgotten that are listed."""


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
    from practicum.session.forget import forget as unlearn
    from practicum.session.records import free_folder
    from practicum.store.database import Store, as_stored
    from practicum.store.folder import SPACES, is_store

    out = Printer(json_)
    if user is not None:
        if task or source or tag or entry or keep_mixed:
            raise UsageError("settings.conflict", "--user can only be combined with --space, --key and --alike")
        forget_user(where, user, space, key, alike, yes, out)
        return
    require_user(where, space)
    if not (task or source or tag or entry):
        raise UsageError(
            "settings.missing", "nothing is named to be forgotten: give --task, --source, --tag, --entry or --user"
        )
    run, named = Path(where), {"task": task, "source": source, "tag": tag, "entry": entry}
    confirm(f"Remove all that {run} learned from {', '.join(chain.from_iterable(named.values()))}?", yes)
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
    out.result(found.as_json())
    _print_removed(out, found, entry)
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
    options = [f"--{name} {shlex.quote(one)}" for name, some in named.items() for one in some]
    options += ["--keep-mixed", "--alike"] if keep_mixed else ["--alike"]
    again = f"practicum space forget {shlex.quote(str(kept))} {' '.join(options)}" if kept is not None else ""
    _print_alike(out, found, again)


def _print_removed(out: Printer, found: ForgetReport, named: list[str]) -> None:
    """Print what was removed, restored and kept; corrections that were `named` with what is left of their requests."""
    from practicum.core.views import entry_line

    for e in found.removed:
        out.item(f"- {entry_line(e)}", style="red")
        asked = next((source.removeprefix("task:") for source in e.sources if source.startswith("task:")), None)
        if asked and e.id in named and e.id.startswith("c"):
            out.item(f"  its question stays with the interaction {asked}: to remove that, too, give --task {asked}")
    for e in found.restored:
        out.item(f"restored to what it was before: {entry_line(e)}")
    for e in found.kept_mixed:
        out.item(f"kept, because other tasks contributed to it: {entry_line(e)}")
    removed = [quantity(len(found.removed), "entry"), quantity(found.edits, "edit"), quantity(found.rows, "record")]
    out.print(f"{', '.join(removed[:2])} and {removed[2]} removed")
    for name in found.namesakes:
        out.print(f"kept, because it has this name from an earlier run: forget it with --source {shlex.quote(name)}")


def _print_alike(out: Printer, found: ForgetReport, again: str) -> None:
    """Print what still shares words with what was removed, with the command that removes that `again` in the copy."""
    from practicum.core.views import entry_line

    for e, words in found.alike.entries[:MOST_ALIKE]:
        out.item(f"has rare words of it ({', '.join(words[-3:])}): {entry_line(e)}")
    words_too = "; no text that is left has rare words of it"
    if found.alike:
        words_too, rows = "", sum(found.alike.rows.values())
        both = f"{quantity(len(found.alike.entries), 'entry')} and {quantity(rows, 'record')}"
        how = f": to remove them too, forget it in the copy and use that one from then on: {again}" if again else ""
        out.print(f"{both} still have rare words of it, copied or by chance{how}")
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
