"""`practicum space memory`: lists, searches, adds and removes the memories of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.edits import entry_json
from practicum.core.errors import UsageError
from practicum.core.trust import Trust
from practicum.core.words import one_line, quantity

if TYPE_CHECKING:
    from practicum.core.context import Context
    from practicum.retrieval.search import Filter

ALL = "all"
"""Value of --section for all sections that are not hidden."""

LISTED = 50
"""Default number of listed memories."""

Section = Annotated[str, opt.option()]
TagFilter = Annotated[list[str] | None, opt.option("--tag")]
Outcome = Annotated[Literal["success", "failure"] | None, Option(help="Only memories with this outcome.")]


def list_(
    run: opt.RunFolder,
    section: Section = "memories",
    tag: TagFilter = None,
    outcome: Outcome = None,
    trust: opt.TrustFilter = None,
    k: int | None = Option(None, "-k", min=1, help=f"List the newest N (default: {LISTED}; with --json, all)."),
    json_: opt.Json = False,
) -> None:
    """List the memories, the oldest first.

    --section all lists the entries of all sections.
    """

    out, context, where = Printer(json_), _context(run), _filter(section, tag, outcome, trust)
    matches = [entry for entry in context if where(entry)]
    entries = [entry_json(entry) for entry in (matches[-k:] if k is not None else matches)]
    out.result({"run": str(run), "version": context.version, "entries": entries})
    if not matches:
        _print_why_empty(out, run, context, where)
        return
    shown = matches[-(k or LISTED) :]
    foreign = any(entry.trust != "own" for entry in shown)
    rows = [
        (
            e.id, e.data.get("outcome"), one_line(e.data.get("title") or e.solved), e.helpful, e.harmful, e.uses,
            e.born, *((e.trust,) if foreign else ()),
        )
        for e in shown
    ]  # fmt: skip
    columns = ("entry", "outcome", "text", "helpful", "harmful", "used", "born", *(("trust",) if foreign else ()))
    out.table(columns, rows, text=("entry", "outcome", "text", "trust"))
    older = f"; {len(matches) - len(shown):,} older not shown" if len(matches) > len(shown) else ""
    out.print(f"{quantity(len(matches), 'entry')} in version {context.version}{older}")


@opt.settings("embedder")
def search(
    run: opt.RunFolder,
    text: str = Argument(..., help="The text to find similar memories for."),
    section: Section = "memories",
    tag: TagFilter = None,
    outcome: Outcome = None,
    trust: opt.TrustFilter = None,
    k: int = Option(5, "-k", min=1, help="Number of memories to show."),
    embedder: str | None = None,
    trust_run: opt.TrustRun = False,
    json_: opt.Json = False,
) -> None:
    """Find the memories that are most similar to a text.

    --section all searches the entries of all sections.
    """
    from practicum.cli.running import run_work
    from practicum.session import memories

    if not text.strip():
        raise UsageError("query.empty", "the text to search for is empty")
    out, where = Printer(json_), _filter(section, tag, outcome, trust)
    matches = run_work(lambda stop: memories.search(run, text, k, where, embedder, trust_run=trust_run), out)
    entries = [{**entry_json(match.entry), "similarity": round(match.similarity, 4)} for match in matches]
    out.result({"run": str(run), "text": text, "entries": entries})
    if not matches:
        _print_why_empty(out, run, _context(run), where)
        return
    rows = [(match.entry.id, f"{match.similarity:z.2f}", match.entry.solved) for match in matches]
    out.table(("entry", "similarity", "text"), rows, text=("entry", "text"))


def add(
    run: opt.RunFolder,
    file: Path = Argument(..., help="Memories as JSON lines, or a playbook."),
    section: Section = "memories",
    trust_run: opt.TrustRun = False,
    json_: opt.Json = False,
) -> None:
    """Add memories from a file."""
    from practicum.cli.running import run_work
    from practicum.core.views import entry_line
    from practicum.session import memories

    if section == ALL:
        raise UsageError("section.invalid", f"--section {ALL} means all sections: name the section to add to")
    out = Printer(json_)
    added = run_work(lambda stop: memories.add(run, file, section, trust_run=trust_run), out)
    entries, version = [*map(entry_json, added.entries)], added.context.version
    out.result({"run": str(run), "version": version, "added": entries, "same": added.same})
    for entry in added.entries:
        same = added.same.get(entry.id)
        out.item(f"+ {entry_line(entry)}" + (f"  (the same text as {same})" if same else ""), style="green")
    duplicates = f", {len(added.same):,} of these memories with the text of an existing entry" if added.same else ""
    out.print(f"{len(added.entries):,} added{duplicates}: version {version} of {run}")


def remove(run: opt.RunFolder, id: str = Argument(..., help="The id of an entry."), json_: opt.Json = False) -> None:
    """Remove one entry.

    A rollback restores the entry.
    """
    from practicum.core.views import entry_line
    from practicum.session import memories

    context, removed = memories.remove(run, id)
    out = Printer(json_)
    out.result({"run": str(run), "version": context.version, "removed": entry_json(removed)})
    out.item(f"- {entry_line(removed)}", style="red")
    undo = f"practicum space rollback {run} {context.version - 1}"
    out.print(f"removed in version {context.version} of {run}; undo the removal with {undo}")


@opt.settings("embedder")
def reembed(
    run: opt.RunFolder,
    embedder: str | None = None,
    trust_run: opt.TrustRun = False,
    json_: opt.Json = False,
) -> None:
    """Embed all entries again.

    With --embedder, also changes the embedder of the run.
    """
    from practicum.cli.running import run_work
    from practicum.session import memories
    from practicum.session.records import run_config

    out = Printer(json_)
    count = run_work(lambda stop: memories.reembed(run, embedder, trust_run=trust_run), out)
    name = run_config(run)["embedder"]
    out.result({"run": str(run), "embedder": name, "embedded": count})
    out.print(f"{quantity(count, 'text')} of {run} embedded by {name}")


def _context(run: Path) -> Context:
    from practicum.session.records import read_by_origin
    from practicum.store.database import Store
    from practicum.store.names import shown_version

    with Store.read(run) as store:
        return read_by_origin(store, shown_version(store))


def _filter(section: str, tags: list[str] | None, outcome: str | None, trust: Trust | None) -> Filter:
    from practicum.retrieval.search import Filter

    return Filter(section=None if section == ALL else section, tags=tuple(tags or ()), outcome=outcome, trust=trust)


def _print_why_empty(out: Printer, run: Path, context: Context, where: Filter) -> None:
    """Print why no memory matches the filter `where`. If the section is empty, also print the sections that have
    entries."""
    kind = "entries" if where.section is None else where.section
    if number := sum(not e.hidden and where.section in (None, e.section) for e in context):
        out.print(f"none of the {number:,} {kind} in {run} match")
        return
    sections = Counter(e.section for e in context if not e.hidden)
    there = ", ".join(f"{name} ({count:,})" for name, count in sections.items())
    other = f"; other sections with entries: {there} (pass --section NAME)" if there else ", and no other entries"
    out.print(f"no {kind} in {run} yet{other}")
