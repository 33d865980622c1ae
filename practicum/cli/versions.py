"""`practicum space name`, `rollback` and `diff`: name, restore and compare versions of a space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer, confirm
from practicum.core.edits import Entry, entry_json
from practicum.core.errors import UsageError
from practicum.core.words import quantity


def name(
    run: opt.RunFolder,
    name: str | None = Argument(None, help="A name, such as prod (default: list the names)."),
    version: str | None = Argument(None, help="The version, or one of its names (default: the last version)."),
    delete: bool = Option(False, "--delete", help="Delete the name, and keep the version."),
    push: str | None = Option(
        None,
        "--push",
        metavar="REGISTRY[:PROMPT]",
        help="Also register the text in a prompt registry, mlflow or langfuse, and move the label NAME to this text.",
    ),
    json_: opt.Json = False,
) -> None:
    """Name a version, list the names, or delete a name.

    Use a name in place of its version: RUN@prod, --version prod.
    """
    from practicum.session.records import load_context
    from practicum.session.registries import push_context
    from practicum.store.database import Store, as_stored
    from practicum.store.names import delete_name, name_version, read_names

    if delete and (name is None or version is not None):
        raise UsageError("settings.conflict", "--delete needs a name and no version: pass the name only")
    if push is not None and (name is None or delete):
        raise UsageError("settings.conflict", "--push needs the name of a version, and no --delete")
    out = Printer(json_)
    if name is None:
        with Store.read(run) as store:
            names = read_names(store)
        out.result({"run": str(run), "names": names})
        for one, number in names.items():
            out.item(f"{one}: version {number}")
        if not names:
            out.print(f"no version of {run} has a name; to name the last version: practicum space name {run} prod")
        return
    with as_stored(run), Store.open_shared(run) as store:
        if delete:
            delete_name(store, name)
        else:
            number = name_version(store, name, version)
        out.result({"run": str(run), "names": read_names(store)})
    out.print(f"name {name} deleted from {run}" if delete else f"{name} is version {number} of {run}")
    if push is not None:
        pushed = push_context(load_context(run, number), name, push, run)
        out.result({"pushed": asdict(pushed)})
        out.print(f"{name} is version {pushed.version} of the prompt {pushed.prompt} in {pushed.registry}")


def rollback(
    run: opt.RunFolder,
    version: str = Argument(..., help="The version to go back to, or its name."),
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Go back to an earlier version.

    Adds a new version with the content of the earlier version, so nothing is lost. At the address of a service,
    makes VERSION (default: the previous version) live for all requests.
    """
    from practicum.session.amend import roll_back
    from practicum.store.database import Store, as_stored
    from practicum.store.names import find_version
    from practicum.store.snapshot import read_context

    with as_stored(run), Store.open(run) as store:
        number = find_version(store, version)
        last, earlier = read_context(store), read_context(store, number)
        if earlier.version == last.version:
            raise UsageError("version.unchanged", f"version {last.version} is already the last version of {run}")
        sizes = f"{quantity(len(last), 'entry')} now, {len(earlier):,} after the rollback"
        confirm(f"Go from version {last.version} of {run} back to version {earlier.version} ({sizes})?", yes)
        added = roll_back(store, earlier.version)
    out = Printer(json_)
    out.result({"run": str(run), "version": added, "as": earlier.version})
    out.print(
        f"version {added} of {run} equals version {earlier.version}; to learn further from version {added}: "
        f"practicum space resume {run}"
    )


def diff(
    run: Path = Argument(..., help="A run or a playbook file."),
    other: str = Argument(
        ..., help="A version of this run (a number or a name), another run, a playbook file, or mlflow:PROMPT@prod."
    ),
    new: str | None = Argument(None, help="The version of this run to compare with the first one."),
    json_: opt.Json = False,
) -> None:
    """Show the differences of two versions or two spaces."""
    from practicum.session.records import load_context, load_versions
    from practicum.session.registries import is_prompt
    from practicum.store.versions import diff_contexts, diff_runs, rebuild

    out = Printer(json_)
    sides = {}
    if new is not None:
        difference = diff_contexts(load_context(run, other), load_context(run, new))
    elif "/" not in other and not Path(other.rpartition("@")[0] or other).exists() and not is_prompt(Path(other)):
        raise UsageError(
            "run.not_found",
            f"no run or file {other}; to compare versions, pass two versions: practicum space diff {run} OLD NEW",
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
    """Return the difference between two contexts as JSON values. Each pair in `changed` is an entry before and
    after."""
    both = [{"before": entry_json(before), "after": entry_json(after)} for before, after in changed]
    return {"added": [*map(entry_json, added)], "removed": [*map(entry_json, removed)], "changed": both}


def print_diff(
    out: Printer, added: Sequence[Entry], removed: Sequence[Entry], changed: Sequence[tuple[Entry, Entry]]
) -> None:
    """Print the difference of two contexts: removed, changed and added entries, and the count of each kind."""
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
    """Return the trust level of an entry in parentheses, or an empty text for the level `own`."""
    return "" if entry.trust == "own" else f"  ({entry.trust})"
