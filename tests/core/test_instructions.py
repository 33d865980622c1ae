"""CLAUDE.md and AGENTS.md: practicum's part is replaced, and every other byte stays and is seen by agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import run_command
from hypothesis import given
from hypothesis import strategies as st

from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.errors import ContextFileError
from practicum.core.instructions import BEGIN, END, is_outside, load, with_entries
from practicum.core.views import render_full
from practicum.session.records import load_context

FILE = Path("CLAUDE.md")
LEARNED = initial_context([Add("prices", "Use Decimal."), Add("prices", f"A text\n{END}\n# of\n{BEGIN}\nothers.")])
PART = f"{BEGIN}\n# What was learned about the tasks here\n\nFollow what applies.\n\n## prices\n\n- Use Decimal.\n"
OWN = "Read this first.\n\n# Build\n\n```sh\n# not a heading\nmake\n```\n\n## Style\n- No tabs.\n-  Short.\n"


@given(st.binary(max_size=60), st.sampled_from(["", "\n", "\n\n", "\r\n"]), st.binary(max_size=20))
def test_every_other_byte_stays(before: bytes, end: str, after: bytes) -> None:
    content = before + end.encode()
    once = with_entries(content, LEARNED, FILE)
    assert once.startswith(content)
    assert with_entries(once, LEARNED, FILE) == once
    newline = b"\r\n" if b"\r\n" in content else b"\n"
    with_text_behind = once + newline + after
    fewer = with_entries(with_text_behind, [*LEARNED][:1], FILE)
    assert fewer.startswith(content)
    assert fewer.endswith(END.encode() + newline * 2 + after)
    assert b"others" not in fewer[len(content) : len(fewer) - len(after)]


def test_a_file_without_the_part_gets_it_after_a_blank_line() -> None:
    for text, gap in (("", ""), ("a", "\n\n"), ("a\n", "\n"), ("a\n\n", "")):
        new = with_entries(text.encode(), [*LEARNED][:1], FILE).decode()
        assert new == f"{text}{gap}{PART}{END}\n"


@pytest.mark.parametrize("text", [f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n"])
def test_lines_that_mark_no_part_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    for do in (lambda: with_entries(text.encode(), LEARNED, FILE), lambda: load(tmp_path / FILE)):
        with pytest.raises(ContextFileError) as caught:
            do()
        assert caught.value.code == "playbook.malformed"


def test_agents_see_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(with_entries(OWN.encode(), LEARNED, path) + b"\n# Last\nlines\n")
    context = load_context(path)
    outside = [entry for entry in context if is_outside(entry)]
    texts = [entry.text for entry in outside]
    assert texts[:2] == ["Read this first.", "# Build\n\n```sh\n# not a heading\nmake\n```"]
    assert "".join(e.text + e.data["part"]["after"] for e in outside[:3]) == f"{OWN}\n"
    assert [e.text for e in context if not is_outside(e)] == [e.text for e in LEARNED]
    shown = "\n".join(render_full(context).pages)
    for line in OWN.splitlines():
        assert line in shown
    assert with_entries(path.read_bytes(), context, path) == path.read_bytes()


@pytest.mark.parametrize("name", ["CLAUDE.md", "AGENTS.md", "notes.md"])
def test_a_file_is_evaluated_imported_and_exported(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(with_entries(OWN.encode(), [*LEARNED][:1], path))
    (tmp_path / "t.jsonl").write_text('{"input": "Which tabs?", "target": "none"}\n')
    rule = {"match": "No tabs", "answer": "none"}
    (tmp_path / "s.jsonl").write_text(json.dumps(rule) + "\n" + json.dumps({"answer": "some"}) + "\n")
    done = run_command(("eval", "t.jsonl", "--context", name, "--model", "scripted:s.jsonl", "--json"), tmp_path)
    assert done.json["score"] == 1
    assert run_command(("space", "import", name, "--out", "run"), tmp_path).code == 0
    before = path.read_bytes()
    assert run_command(("export", "run", "--format", "agents-md", "--output", name), tmp_path).code == 0
    assert path.read_bytes() == before
    other = tmp_path / "new" / "AGENTS.md"
    assert run_command(("export", "run", "--format", "agents-md", "--output", other), tmp_path).code == 0
    assert ("No tabs" in other.read_text()) == (name != "AGENTS.md")


def test_an_export_keeps_a_link(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(OWN)
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    (tmp_path / "p.md").write_text("## a\n- b\n")
    assert run_command(("export", "p.md", "--format", "agents-md", "--output", "CLAUDE.md"), tmp_path).code == 0
    assert (tmp_path / "CLAUDE.md").is_symlink()
    assert (tmp_path / "AGENTS.md").read_text().startswith(OWN)
