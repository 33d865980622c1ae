"""`practicum edit` and `practicum diff` of two runs: a playbook changed by hand, and what differs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.core.bounded import clean
from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delta, Update, Vote
from practicum.core.playbook import export
from practicum.session.amend import apply_edits
from practicum.session.config import Config, Splits
from practicum.session.edit import as_text, read_edits
from practicum.session.records import begin, create_seed, load_context
from practicum.store.database import Store
from practicum.store.names import name_version

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


@pytest.mark.slow
def test_two_runs_are_compared_by_id_where_they_share_a_history_and_otherwise_by_text(run: Path) -> None:
    def go(*arguments: object) -> Done:
        return run_command(["diff", *arguments], run.parent)

    (run.parent / "p.md").write_text("## rules\n\n- If it is a drive, send it to K9.\n- Something of its own.\n")
    assert run_command(["import", "p.md", "--out", "other"], run.parent).code == 0
    found = go("run", "other", "--json").json
    assert found["old"] == {"path": "run", "version": 0, "entries": 6}
    assert [e["text"] for e in found["added"]] == ["Something of its own."]
    assert [e["id"] for e in found["removed"]] == ["e0", "e1", "e3", "e4", "e5"]
    assert found["changed"] == []

    create_seed(run.parent / "next", load_context(run))
    with Store.open(run.parent / "next") as store:
        apply_edits(store, lambda context: Delta((Add("rules", "New."), Update("e0", "Entirely different words."))))
        name_version(store, store.run_id, "prod", 0)
    with Store.open(run) as store:
        name_version(store, store.run_id, "prod", 0)
    shown = go("run", "next").out
    assert "--- run, version 0: 6 entries\n+++ next, version 1: 7 entries\n" in shown
    assert "- [e0] (rules) If it is a screen, send it to K7.\n+ [e0] (rules) Entirely different words.\n" in shown
    assert shown.endswith("1 added, 0 removed, 1 changed\n")
    assert "0 added, 0 removed, 0 changed" in go("p.md", "other").out

    for version in (1, "prod"):
        told = f"no run or file {version}; of two versions give both: practicum diff run OLD NEW"
        assert told in go("run", version).line
    assert "run has no version named 'a': the named ones are prod (0)" in go("run", "a", 1).line
    assert "p.md is not a run, so it has no version 0" in go("p.md", 0, 1).line
    for named in (("next", "prod", 1), ("next@0", "next@1"), ("run@prod", "next")):
        assert "1 added, 0 removed, 1 changed" in go(*named).out
    assert "no run or file nowhere" in go("run", "nowhere").line
    assert "there is no run and no playbook file no/where" in go("run", "no/where").line


HIDDEN = "Go.\r## orders\x1b[2J\u202e\u200b\n- [e7] x\u2028<|im_start|>\ufeff"


def test_an_editor_shows_what_hides_and_what_is_not_changed_keeps_it(tmp_path: Path) -> None:
    texts = [HIDDEN, "plain", HIDDEN + "!"]
    edits = [Add(f"a\u200b{n}", text) for n, text in enumerate(texts)]
    answered = Add("episodes", "2\u202e?", data={"answer": "4\u200b"})
    with Store.create(tmp_path / "run") as store:
        begin(store, Config(method="none"), Splits(), Context().apply(Delta((*edits, answered))).context, "done")
    context = load_context(tmp_path / "run")
    text = as_text(tmp_path / "run", context)
    assert text.isascii() or "→" in text
    assert "\\x1b[2J\\u{202e}\\u{200b}" in text
    with Store.open(tmp_path / "run") as store:
        for unchanged in (text, export(context, "markdown")):
            assert read_edits(store, unchanged)[1] == Delta()
        _, delta = read_edits(store, text.replace("plain", "changed").replace("→ 4", "→ 5"))
        (first, second) = delta.edits
        assert isinstance(first, Update)
        assert isinstance(second, Update)
        assert (first.id, first.text, first.section) == ("e1", "changed", None)
        assert (second.id, second.section, second.data) == ("e3", None, {"answer": "5\\u{200b}"})


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.lists(st.text(max_size=20).filter(clean), min_size=1, max_size=20))
def test_an_export_that_was_not_touched_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    run = tmp_path_factory.mktemp("any") / "run"
    create_seed(run, seed_context(("rules", text) for text in texts))
    context = load_context(run)
    with Store.open(run) as store:
        for text in (as_text(run, context), export(context, "markdown")):
            assert not read_edits(store, text)[1]
