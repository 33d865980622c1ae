"""`practicum space forget`: permanently removes everything learned from tasks, sources, tags or users."""

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
"""Maximum number of listed entries that share rare words with the removed text."""


def forget(
    where: str = Argument(
        ...,
        metavar="SPACE",
        help="The folder of a run or space; with --user also a store with many spaces, or the address of a service.",
    ),
    task: list[str] = opt.option([]),
    source: list[str] = Option([], help="A source of entries, as practicum show --entry lists it."),
    tag: list[str] = opt.option([]),
    entry: list[str] = opt.option([]),
    user: str | None = opt.option(None),
    space: Space = None,
    key: Key = None,
    keep_mixed: bool = Option(False, "--keep-mixed", help="Keep entries that other tasks also contributed to."),
    alike: bool = Option(False, "--alike", help="Also remove text that shares rare words with the removed text."),
    copy: bool = Option(True, help="Keep a copy of the unchanged run next to the folder of the run."),
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Remove data learned from tasks, sources, tags or users.

    The removal is permanent. Text that may still repeat removed text is reported.
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
            "settings.missing", "nothing to forget is named: pass --task, --source, --tag, --entry or --user"
        )
    run, named = Path(where), {"task": task, "source": source, "tag": tag, "entry": entry}
    confirm(f"Remove all that {run} learned from {', '.join(chain.from_iterable(named.values()))}?", yes)
    # If the space is in a store with many spaces, the copy is a run next to the folder of the store.
    whole = run.parent.parent
    base = whole.with_name(f"{whole.name}-{run.name}") if run.parent.name == SPACES and is_store(whole) else run
    earlier_copies = sorted(base.resolve().parent.glob(f"{base.name}-before-forget*"))
    with as_stored(run), Store.open(run) as store:
        has_forgotten = store.has_forgotten
        copied = free_folder(base.with_name(f"{base.name}-before-forget")) if copy else None
        report = unlearn(
            store, tasks=task, sources=source, tags=tag, entries=entry, keep_mixed=keep_mixed, alike=alike,
            copy_to=copied,
        )  # fmt: skip
    out.result(report.as_json())
    _print_removed(out, report, entry)
    if report.left:
        contain = in_number(report.left, "still contain[s|] forgotten data, because kept entries depend on this data")
        raise StoreError("forget.incomplete", f"{quantity(report.left, 'record')} in {run} {contain}")
    if has_forgotten:
        out.print("an earlier `practicum space forget` of this run was interrupted; this command finished the removal")
    if copied is not None and not copied.exists():
        copied = None
    if copied is not None:
        out.print(f"a copy of the unchanged run is in {copied}: delete the copy when you no longer need it")
    for earlier in earlier_copies:
        out.print(
            f"an earlier copy of the run, with the data that was removed since, is in {earlier}: delete this copy too"
        )
    options = [f"--{name} {shlex.quote(one)}" for name, some in named.items() for one in some]
    options += ["--keep-mixed", "--alike"] if keep_mixed else ["--alike"]
    again = f"practicum space forget {shlex.quote(str(copied))} {' '.join(options)}" if copied is not None else ""
    _print_alike(out, report, again)


def _print_removed(out: Printer, report: ForgetReport, named: list[str]) -> None:
    """Print the entries that were removed, restored and kept. `named` are the ids passed with --entry. If one of these
    ids is the id of a correction, also print the interaction that still contains the question of the correction."""
    from practicum.core.views import entry_line

    for e in report.removed:
        out.item(f"- {entry_line(e)}", style="red")
        asked = next((source.removeprefix("task:") for source in e.sources if source.startswith("task:")), None)
        if asked and e.id in named and e.id.startswith("c"):
            out.item(
                f"  the question of {e.id} remains in the interaction {asked}: to remove the interaction, pass --task "
                f"{asked}"
            )
    for e in report.restored:
        out.item(f"restored to its earlier text: {entry_line(e)}")
    for e in report.mixed_origin:
        out.item(f"kept, because other tasks contributed to the entry: {entry_line(e)}")
    removed = [quantity(len(report.removed), "entry"), quantity(report.edits, "edit"), quantity(report.rows, "record")]
    out.print(f"{', '.join(removed[:2])} and {removed[2]} removed")
    for name in report.namesakes:
        out.print(
            f"the source {name} of an earlier run is kept: to forget this source, pass --source {shlex.quote(name)}"
        )


def _print_alike(out: Printer, report: ForgetReport, again: str) -> None:
    """Print the remaining texts that share rare words with the removed text. `again` is a command for the copy of the
    unchanged run: it removes these texts too. Empty without a copy."""
    from practicum.core.views import entry_line

    for e, words in report.alike.entries[:MOST_ALIKE]:
        out.item(f"shares rare words with the removed text ({', '.join(words[-3:])}): {entry_line(e)}")
    words_too = "; no remaining text shares rare words with the removed text"
    if report.alike:
        words_too, rows = "", sum(report.alike.rows.values())
        both = f"{quantity(len(report.alike.entries), 'entry')} and {quantity(rows, 'record')}"
        advice = f"; to remove these texts too, use the copy from now on, and run: {again}" if again else ""
        out.print(f"{both} still share rare words with the removed text (copies, or the same words by chance){advice}")
    out.print(
        "checked: no record names the forgotten data, and no text quotes this data, except words that another "
        "source also contains"
        f"{words_too}. Paraphrases cannot be detected"
    )


def forget_user(
    where: str, user: str, space: str | None, key: str | None, alike: bool, yes: bool, out: Printer
) -> None:  # fmt: skip
    """Remove all data of a user from the spaces of a store or service, and print the counts for each space."""
    from practicum.session import users

    question = f"Remove all data of user {user} from {where}"
    if where.startswith(ADDRESSES):
        confirm(f"{question}? No copy is kept.", yes)
        results = [perform_at("forget_user", where, space, key, user=user, alike=alike).as_json()]
    else:
        with users.spaces_of(Path(where), user, space) as spaces:
            confirm(f"{question}, in {', '.join(each.name for each in spaces)}? No copy is kept.", yes)
            results = [users.forget_user(each, user, alike=alike).as_json() for each in spaces]
    out.result({"user": user, "spaces": results})
    for counts in results:
        rows = [quantity(counts[f"{name}s"], name) for name in ("interaction", "outcome", "correction")]
        learned = f"{quantity(counts['entries'], 'entry')} and {quantity(counts['records'], 'record')}"
        out.print(f"space {counts['space']}: {', '.join(rows)} removed; learned from the user: {learned} removed")
        if counts["again"]:
            out.print(
                f"{quantity(counts['again'], 'outcome')} of sessions shared with other users: "
                "learning will use these outcomes again"
            )
        if counts["alike"]:
            records = f"{counts['alike']:,} record[|s] of the run still share[s|] rare words with the removed text"
            out.print(f"{in_number(counts['alike'], records)} (copies, or the same words by chance)")
    if left := sum(counts["left"] for counts in results):
        contain = in_number(left, "still contain[s|] forgotten data, because kept entries depend on this data")
        raise StoreError("forget.incomplete", f"{quantity(left, 'record')} in {where} {contain}")
    out.print(
        "checked: no record names the user, and no file contains an interaction of the user. "
        "Paraphrases cannot be detected"
    )
