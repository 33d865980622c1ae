"""`practicum edit` and `practicum diff` of two runs: a playbook changed by hand, and what differs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, run_command

from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Update, Vote
from practicum.session.amend import apply_edits
from practicum.session.edit import as_text
from practicum.session.records import create_seed, load_context
from practicum.store.database import Store

CODE = "Go on until a page is empty:\n\n```python\nwhile api.list(page):\n    page += 1\n```"

MEMORY = {"title": "Pages", "description": "end", "content": "Stop."}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with rules, code, an episode, a memory and a hidden note; e0 has votes and a source."""
    edits = (
        Add("rules", "If it is a screen, send it to K7.", sources=("task:r7",)),
        Add("code", CODE, sources=("task:r8",)),
        Add("rules", "If it is a drive, send it to K9."),
        Add("episodes", "2 + 2?", data={"answer": 4}),
        Add("memories", "Pages: end. Stop.", "Pages. end Stop.", MEMORY),
        Add(".notes", "of the learner"),
    )  # fmt: skip
    create_seed(tmp_path / "run", Context().apply(Delta((*edits, Vote("e0", 2, 1, 3)))).context)
    return tmp_path / "run"


@pytest.fixture
def edit(run: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs the command with an editor that executes these Python lines on `text`."""
    program = run.parent / "editor.py"
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"'{sys.executable}' '{program}'")
    monkeypatch.setattr("tempfile.tempdir", str(run.parent))

    def start(lines: str, *options: object, code: int = 0) -> Done:
        program.write_text(
            "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n"
            f"{lines}\npath.write_text(text)\n"
        )
        done = run_command(["edit", "run", *options], run.parent)
        assert done.code == code, done.out + done.err
        return done

    return start


def content(run: Path) -> dict[str, tuple[object, ...]]:
    return {
        e.id: (e.section, e.text, e.key, dict(e.data), e.helpful, e.harmful, e.uses, e.sources)
        for e in load_context(run)
    }


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("text = text.replace('[e2]', '[e0]')", r"line \d+: e0 is the id of line \d+ already: leave out the id"),
        ("text = text.replace('[e2]', '[e77]')", r"line \d+: version 0 has no entry e77: leave out the id"),
        ("text = text.replace('[e2]', '[e5]')", r"line \d+: version 0 has no entry e5"),
        ("text = text.replace(' If it is a drive, send it to K9.', '')", r"line \d+: e2 has no text: remove the line"),
        ("text = text.replace('→ 4', '')", r"line \d+: the answer of e3 is missing: write it behind '→ '"),
        ("text = ''", "the text is empty"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_read_changes_nothing_and_is_kept(run: Path, edit: Any, lines: str, problem: str) -> None:
    line = edit(lines, code=2).line
    assert re.match(problem, line), line
    assert load_context(run).version == 0
    (kept,) = run.parent.glob("practicum-*.md")
    assert line.endswith(f"; your text is kept: practicum edit run --file {kept}")


def test_a_text_of_an_older_version_is_applied_if_what_it_changes_is_as_it_was(run: Path) -> None:
    text = as_text(run, load_context(run)).replace("K7", "K8")
    (run.parent / "kept.md").write_text(text)
    with Store.open(run) as store:
        apply_edits(store, lambda context: Delta((Update("e2", "Other."), Add("rules", "New."))))
    assert "0 added, 0 removed, 1 changed" in run_command(["edit", "run", "--file", "kept.md"], run.parent).out
    now = load_context(run)
    assert [e.text for e in now.in_section("rules")] == ["If it is a screen, send it to K8.", "Other.", "New."]
    assert run_command(["edit", "run", "--file", "kept.md"], run.parent).line == (
        "e0 was changed in run since version 0, of which this text was made: see practicum diff run 0 2"
    )
    create_seed(run.parent / "other", load_context(run))
    refused = run_command(["edit", "other", "--file", "kept.md"], run.parent).line
    assert refused == "this is the playbook of run, not of other: if it fits, delete its first line"
