"""`practicum export` writes a context or outcomes to a file; `practicum space import` makes a space from a playbook."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.operations import Key, Space, perform_at, require_user
from practicum.cli.output import Printer
from practicum.core.errors import StoreError, UsageError
from practicum.core.files import read_bytes, write_atomic
from practicum.core.visible import visible
from practicum.core.words import in_number, quantity
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    from practicum.core.context import Context
    from practicum.core.edits import Entry


def export(
    where: str = Argument(
        ...,
        metavar="SPACE",
        help="A run, a space or a playbook file; with --user also a store of many spaces or the address of a service.",
    ),
    format: Literal["markdown", "json", "agents-md", "skills", "tools", "tasks", "traces"] = opt.option("markdown"),
    version: str | None = opt.option(None),
    output: Path | None = opt.option(None),
    model: str | None = opt.option(None, help="A model that names and describes the skills."),
    user: str | None = opt.option(None),
    space: Space = None,
    key: Key = None,
    json_: opt.Json = False,
) -> None:
    """Write a context or the outcomes of a space as a file.

    The formats `markdown`, `json` and `agents-md` write a context as one file, `skills` as a folder of Agent Skills:
    one for each section, or for each topic of the entries. With `agents-md`, --output may name an existing file: only
    the part that belongs to practicum is replaced. The format `tools` writes the descriptions of tools. The formats
    `tasks` and `traces` write outcomes as JSON lines; `traces` includes the answers. --user writes all stored data of
    an end user as JSON lines, from one --space or from all spaces of a store.
    """
    if user is not None:
        export_user(where, user, space, key, output, Printer(json_))
        return
    require_user(where, space)
    run = Path(where)
    if model is not None and format != "skills":
        raise UsageError(
            "settings.unused", "only skills are described by a model: omit --model, or add --format skills"
        )
    if format == "tasks" or format == "traces":
        export_outcomes(run, format, version, output, Printer(json_))
    else:
        export_context(run, format, version, output, model, Printer(json_))


def export_context(
    run: Path, format: Literal["markdown", "json", "agents-md", "skills", "tools"], version: str | None,
    output: Path | None, model: str | None, out: Printer,
) -> None:  # fmt: skip
    """Write a version of a context, with the corrections and notes if agents see this version."""
    from practicum.core import playbook
    from practicum.core.context import Context
    from practicum.session.corrections import read_corrections
    from practicum.session.records import load_context, split_version
    from practicum.session.result import waiting_line
    from practicum.session.review import held_of
    from practicum.store.database import Store
    from practicum.store.folder import is_run
    from practicum.store.names import shown_version

    context, corrections = load_context(run, version), Context()
    folder, named = split_version(run)
    if is_run(folder):
        with Store.read(folder) as store:
            # Corrections apply to the current view of agents, and are not part of a version.
            if shown_version(store, version or named) == shown_version(store):
                corrections = read_corrections(store)
    text, held = "", held_of(run)
    if format == "skills":
        out.result({"skills": write_skills(run, context, corrections, model, output)})
    else:
        text = playbook.export(context, format, corrections)
    if output is not None:
        if format == "agents-md":
            write_instructions(output, (*context, *corrections))
        elif format != "skills":
            write_atomic(output, text)
        out.print(
            f"version {context.version} with {quantity(len(context) + len(corrections), 'entry')} written to {output}"
        )
        if foreign := sum(entry.trust != "own" for entry in (*context, *corrections)):
            origin = in_number(
                foreign,
                "of these entries [depends|depend] on more than your own tasks (practicum show marks [it|them])",
            )
            out.print(f"{foreign:,} {origin}")
    elif not out.as_json:
        # Escape invisible characters on a terminal only: a file must get the exact text.
        sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    out.result({"format": format, "text": text, "output": str(output) if output else None, "held": held})
    if held:
        # Print to standard error, because standard output may be the exported text.
        Printer(True).print(waiting_line(held, split_version(run)[0]))


def write_instructions(output: Path, entries: Iterable[Entry]) -> None:
    """Write entries as practicum's part of an instruction file of coding agents; every other byte stays."""
    from practicum.core.instructions import with_entries

    # A link, such as CLAUDE.md to AGENTS.md, stays a link.
    path = output.resolve()
    try:
        content = read_bytes(path) if path.exists() else b""
    except OSError as error:
        raise StoreError("file.unreadable", f"cannot read {output}: {error.strerror}") from error
    write_atomic(path, with_entries(content, entries, output))


def write_skills(
    run: Path, context: Context, corrections: Context, model: str | None, output: Path | None
) -> list[dict[str, Any]]:  # fmt: skip
    """Write a context as Agent Skills, and return the skills as JSON values."""
    from practicum import run_sync
    from practicum.session.records import load_versions
    from practicum.session.skills import export_skills
    from practicum.store.versions import rebuild

    if output is None:
        raise UsageError("settings.missing", "skills are a folder: name it with --output DIR", setting="output")
    first = rebuild(load_versions(run)[:1])
    skills = run_sync(export_skills(output, context, corrections, first, model))
    return [{"name": skill.name, "files": [*skill.files], "entries": skill.entries} for skill in skills]


def export_outcomes(run: Path, format: str, version: str | None, output: Path | None, out: Printer) -> None:
    """Write the outcomes of a space as tasks, or as traces with the recorded answers and their scores."""
    from practicum.session.outcome_tasks import load_outcomes
    from practicum.tasks.formats import as_json_lines

    if version is not None:
        raise UsageError("settings.unused", f"outcomes have no version: omit --version or --format {format}")
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
    """Write all data of a user in the spaces of a store or service."""
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


def import_(
    file: Path = Argument(
        ...,
        help="A playbook (markdown list items under headings, or JSON), a run, a folder of Agent Skills, or a "
        "prompt in a registry: mlflow:PROMPT@prod, langfuse:PROMPT@prod.",
    ),
    folder: Path = opt.output(..., "--out"),
    trust: Literal["own", "foreign"] = opt.task("own"),
    store: opt.StoreUrl = None,
    json_: opt.Json = False,
) -> None:
    """Make a space from a playbook or from Agent Skills.

    You can evaluate the space, and learn further from the space. Flagged entries of a playbook wait for review. Skills
    are kept byte for byte, so their parts only wait with --trust foreign.
    """
    from practicum.core.playbook import PlaybookWarning
    from practicum.core.screen import flags
    from practicum.core.skills import is_skills
    from practicum.session.records import create_seed, load_context

    with warnings.catch_warnings(record=True) as caught:
        context = load_context(file)
    for warning in caught:
        warnings.warn(warning.message, stacklevel=1)
    left_out = [asdict(part) for w in caught if isinstance(w.message, PlaybookWarning) for part in w.message.left_out]
    of_skills = is_skills(file)
    waiting = create_seed(folder, context, trust, store=store or None, flag=not of_skills)
    flagged = sum(any(flag.kind != "length" for flag in flags(entry.text)) for entry in context if of_skills)
    out, stored = Printer(json_), len(context) - waiting
    out.result({"run": str(folder), "entries": stored, "waiting": waiting, "left_out": left_out})
    if of_skills:
        out.result({"flagged": flagged})
    if stored or not waiting:
        entries = quantity(stored, "entry")
        out.print(
            f"{entries} stored in {folder}. To learn from this space: "
            f"practicum learn TASKS.jsonl --seed-playbook {folder} --model NAME"
        )
    if flagged and not waiting:
        parts = in_number(flagged, f"{flagged:,} part[ has|s have]")
        out.print(f"{parts} links, secrets or phrases that steer a model: to review them, import with --trust foreign")
    if waiting:
        out.print(f"{in_number(waiting, f'{waiting:,} entr[y waits|ies wait]')} for review: practicum review {folder}")
