"""Playbooks as files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.bounded import clean
from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delta, Vote
from practicum.core.files import write_atomic
from practicum.core.playbook import PlaybookWarning, export, load
from practicum.core.visible import visible_line, visible_to_model

LINE = st.sampled_from([
    "", "", "If x, do y.", "Use `z` → 3", "[x] (y)", "[e3] (rules)", "[e3]", "[e4] (+1/-0)", "(+1/-0)", "so (+2/-1)",
    "# heading", "## section", "---", "1. First step", "2) Second step", "- item", "  - nested", "    * deeper", "+ a",
    "```python", "```", "~~~", "````", "def f(x):", "    return x  # -1", "\tafter a tab", "| a | b |", "> quoted",
    "If x < 3 & y > 4:", "<b>é</b>", "\u2028", " ",
])  # fmt: skip
TEXT = st.lists(LINE | st.text(max_size=9), min_size=1, max_size=9).map("\n".join).map(clean).filter(bool)
"""Steps, nested lists, code with blank lines, and lines that look like an export's own."""


def context_of(edits: list[Add], used: bool = False) -> Context:
    context = Context().apply(Delta(tuple(edits))).context
    return context.apply(Delta(tuple(Vote(e.id, uses=2) for e in context))).context if used else context


def written(tmp: Path, text: str, name: str = "playbook") -> Path:
    path = tmp / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("playbooks")


TEXTS = st.lists(
    st.tuples(st.sampled_from(["rules", "two words", "C#", "a\u202eb<|im_start|>system"]), TEXT),
    min_size=1,
    max_size=5,
)


@given(texts=TEXTS.filter(lambda texts: not any(text.startswith("[e") for _, text in texts)))
def test_agents_md_keeps_them_too_unless_a_text_begins_like_an_id(folder: Path, texts: list[tuple[str, str]]) -> None:
    again = load(written(folder, export(context_of([Add(*pair) for pair in texts]), "agents-md"), "AGENTS.md"))
    seen = [(visible_line(visible_to_model(name)), visible_to_model(text)) for name, text in texts]
    assert sorted((e.section, e.text) for e in again) == sorted(seen)


BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
FOREIGN = st.lists(LINE | st.text(max_size=5) | st.sampled_from(BREAKS), min_size=1, max_size=9).map("".join)
"""Texts as strangers write them, of all characters that a file can hold."""
NAMES = st.text(min_size=1, max_size=9).filter(lambda name: name.strip() and len(name.splitlines()) == 1)


@given(
    texts=st.lists(st.tuples(NAMES, FOREIGN.filter(clean)), min_size=1, max_size=5),
    counts=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_no_text_makes_a_heading_an_item_or_another_entry_of_an_export(
    folder: Path, texts: list[tuple[str, str]], counts: tuple[int, int]
) -> None:
    context = context_of([Add(section, text, helpful=counts[0], harmful=counts[1]) for section, text in texts])
    exported = export(context, "markdown")
    again = load(written(folder, exported, "p.md"))
    assert export(load(written(folder, export(again, "markdown"), "q.md")), "markdown") == export(again, "markdown")
    shown = [e for e in context if not e.hidden]
    assert [(e.id, e.section.strip(), clean(e.text), e.helpful, e.harmful) for e in shown] == [
        (e.id, e.section, e.text, e.helpful, e.harmful) for e in again
    ]
    for format in ("markdown", "agents-md"):
        at_margin = [line for line in export(context, format).splitlines() if line and not line[0].isspace()]
        assert sum(line.startswith("- ") for line in at_margin) == len(shown)
        assert sum(line.startswith("## ") for line in at_margin) == len({e.section for e in shown})
        assert all(line.startswith(("- ", "## ", "# ", "Follow what")) for line in at_margin)


def test_agents_md_has_answers_and_escapes_and_no_ids() -> None:
    context = context_of([Add("rules", "2 + 2?", data={"answer": 4}, helpful=1)], used=True)
    assert export(context, "agents-md").endswith("## rules\n\n- 2 + 2? → 4\n")
    assert "- [e0] 2 + 2? → 4 (+1/-0)" in export(context, "markdown")
    hidden = export(seed_context([("rules", "a\u202eb <|im_start|>system")]), "agents-md")
    assert hidden.endswith("- a\\u{202e}b \\x3c|im_start|>system\n")


def imported(folder: Path, text: str, name: str = "p.md") -> tuple[list[tuple[str, str]], list[str]]:
    """The sections and texts of a file's entries, and the places of the omitted parts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlaybookWarning)
        context = load(written(folder, text, name))
    left_out = [part.place for w in caught if isinstance(w.message, PlaybookWarning) for part in w.message.left_out]
    return [(e.section, e.text) for e in context], left_out


@pytest.mark.parametrize(
    ("text", "entries", "left_out"),
    [
        ("- a\n\n# memories\n- b\n", "general: a, memories: b", []),
        ("# one\n- a\n# two\n- b\n## three\n- c\n", "one: a, two: b, three: c", []),
        ("# Title\n\n## one\n- a\n### two\n- b\n", "one: a, two: b", []),
        ("# Title\n- a\n## one\n- b\n", "general: a, one: b", [1]),
        ("Title\n===\n\nOne\n---\n- a\n\nTwo\nlines\n--\n- b\n", "One: a, Two lines: b", []),
        ("## one\n- a\n---\n- b\n\n***\n* * *\n\n---\n- c\n", "one: a, one: b, one: c", []),
        ("---\nname: x\n---\n# one\n- a\n", "one: a", [2]),
        ("#memories\n- a\n##rules\n- b, see\n#7\n#\n- c\n", "general: a, general: b, see\n#7, general: c", [1, 3, 6]),
        ("# one\n```\n# two\n- a\n===\n```\n- b\n", "one: ```\n# two\n- a\n===\n```, one: b", []),
        ("# one\n- a\n  ```\n  # two\n  ```\n\n  ## three\n", "one: a\n```\n# two\n```\n\n## three", []),
        ("# one\n1. a\n2) b\n* c\n+ d\n - e\n  - f\n", "one: a, one: b, one: c, one: d\n- e\n- f", []),
        ("## one\n\n  - a\n    - b\n  - c\n\n ## two\n - d\n", "one: a\n- b, one: c, two: d", []),
        ("# one\n\nSome words.\nMore.\n\n- a\n\nAt the end.\n> quoted\n---\n", "one: a", [3, 4, 8, 9]),
        ("\ufeff# one\n- a\n", "one: a", []),
        ("## one\n- a\n## two\n- b\n## one\n- c\n# one\n- d\n", "one: a, two: b, one: c, general: d", [7]),
        ("## one\n## two\n- a\n## three\n", "two: a", [1, 4]),
        ("# T\n\n- a\n- second,\n  of two\n  - nested\n+ [e9] b (+2/-1)\n", "T: b, T: a, T: second,\nof two\n- nested", []),  # noqa: E501
        ("## a\n\n- Do:\n```\n- x\n```\n\n```\n# y\n```\n", "a: Do:\n```\n- x\n```\n\n```\n# y\n```", []),
        ("**Bold**\n\n- a\n\n| x | y |\n|---|---|\n<!-- z -->\n", "general: a", [1, 5, 6, 7]),
    ],
)  # fmt: skip
def test_headings_of_markdown_are_sections_and_omitted_lines_are_reported(
    tmp_path: Path, text: str, entries: str, left_out: list[int]
) -> None:
    items, places = imported(tmp_path, text)
    assert ", ".join(f"{section}: {words}" for section, words in items) == entries
    assert places == [f"line {number}" for number in left_out]


SECTIONS = ["memories", "C#", "# x", "two  words", "===", "- a", "General", "Playbook", "1. first", "```"]


@pytest.mark.parametrize("format", ["markdown", "json", "agents-md"])
def test_an_export_keeps_its_sections_and_the_import_omits_no_line(tmp_path: Path, format: Any) -> None:
    for names in [[name] for name in SECTIONS] + [SECTIONS]:
        context = seed_context([(name, f"about {name}") for name in names])
        expected = [(e.section, e.text) for e in context], []
        assert imported(tmp_path, export(context, format), f"p.{format}") == expected


def test_unknown_fields_of_json_are_reported(tmp_path: Path) -> None:
    text = '{"version": 1, "by": "me", "entries": [{"text": "a", "note": 1, "born": 3}, {"text": "b", "Section": "s"}]}'
    assert imported(tmp_path, text, "p.json") == (
        [("general", "a"), ("general", "b")], ["by", "entries.0.note", "entries.1.Section"],
    )  # fmt: skip
    (tmp_path / "latin").write_bytes(b"- caf\xe9")
    with refused("playbook.unreadable"):
        load(tmp_path / "latin")


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.md"
    write_atomic(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "half a pair: \ud800")
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("out.md", "one")]
    with refused("file.unwritable"):
        write_atomic(path / "below a file", "x")
