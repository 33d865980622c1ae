"""`practicum space edit`: changes the playbook of a run in an editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import typer
from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer, confirm
from practicum.cli.versions import diff_json, print_diff
from practicum.core.errors import PracticumError, UsageError


def edit(
    run: opt.RunFolder,
    file: Path | None = Option(None, help="Apply this edited export of the playbook (markdown); open no editor."),
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Change the playbook in your editor.

    Opens the playbook in $VISUAL or $EDITOR and saves your changes as a new version. To change one entry of a running
    service, use `practicum space edit ADDRESS ID`.
    """
    from practicum.core import playbook
    from practicum.session.amend import require_ended
    from practicum.session.edit import as_text
    from practicum.store.database import Store
    from practicum.store.snapshot import read_context

    out = Printer(json_)
    if file is not None:
        text = playbook.read_file(file)
        if playbook.is_json(file, text):
            raise UsageError(
                "playbook.malformed",
                f"{file} is JSON: edit a markdown file (practicum export {run} --output playbook.md)",
            )
        _apply(run, text, yes, out)
        return
    with Store.read(run) as store:
        require_ended(store)
        text = as_text(run, read_context(store))
    path = _edited(run, text)
    now = playbook.read_file(path)
    try:
        if now == text:
            _print_unchanged(run, out)
        else:
            _apply(run, now, yes, out)
    except (PracticumError, typer.Abort) as error:
        advice = f"your text is saved; to try again, run: practicum space edit {run} --file {path}"
        if isinstance(error, typer.Abort):
            raise UsageError("edit.empty", f"nothing was changed; {advice}") from error
        error.args = (f"{error}; {advice}",)
        raise
    path.unlink()


def _edited(run: Path, text: str) -> Path:
    """Write the text to a file, open the file in the user's editor, and return the path of the file. Raise UsageError
    if no editor is set, or if the editor fails."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    by_file = f"practicum export {run} --output playbook.md, and then practicum space edit {run} --file playbook.md"
    if not editor:
        raise UsageError(
            "editor.unavailable", f"no editor is set: set an editor (export EDITOR=nano), or use {by_file}"
        )
    with tempfile.NamedTemporaryFile("w", prefix="practicum-", suffix=".md", encoding="utf-8", delete=False) as file:
        file.write(text)
    path = Path(file.name)
    try:
        code = subprocess.run([*editor, str(path)]).returncode
        problem = f"ended with status {code}" if code else ""
    except OSError as error:
        problem = f"cannot be started ({error.strerror})"
    if problem:
        saved = ""
        if path.read_bytes() == text.encode():
            path.unlink()
        else:
            saved = f"; your text is in {path}"
        raise UsageError(
            "editor.unavailable",
            f"the editor {editor[0]} {problem}, so nothing was changed{saved}. Set another editor, or use {by_file}",
        )
    return path


def _apply(run: Path, text: str, yes: bool, out: Printer) -> None:
    """Show the changes in an edited text, and save them as a new version."""
    from practicum.core.edits import Delete
    from practicum.session.amend import apply_edits, require_ended
    from practicum.session.edit import read_edits
    from practicum.store.database import Store, as_stored
    from practicum.store.versions import diff_contexts

    with as_stored(run), Store.open(run) as store:
        require_ended(store)
        before, delta = read_edits(store, text)
        if not delta:
            _print_unchanged(run, out)
            return
        difference = diff_contexts(before, before.apply(delta).context)
        print_diff(out, *difference)
        if deleted := [edit.id for edit in delta.edits if isinstance(edit, Delete)]:
            confirm(f"Delete {', '.join(deleted)} from {run}?", yes)
        after = apply_edits(store, lambda last: delta).context
    out.result({"run": str(run), "version": after.version, **diff_json(*difference)})
    out.print(f"version {after.version} of {run}; undo the edit with practicum space rollback {run} {before.version}")


def _print_unchanged(run: Path, out: Printer) -> None:
    out.result({"run": str(run), "version": None, **diff_json([], [], [])})
    out.print("nothing was changed")
