"""Playbooks as files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.bounded import clean
from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Vote
from practicum.core.files import write_atomic
from practicum.core.playbook import ExportFormat, PlaybookWarning, export, load
from practicum.core.visible import visible_to_model

LINE = st.sampled_from([
    "", "", "If x, do y.", "Use `z` → 3", "[x] (y)", "[e3] (rules)", "[e3]", "[e4] (+1/-0)", "(+1/-0)", "so (+2/-1)",
    "# heading", "## section", "---", "1. First step", "2) Second step", "- item", "  - nested", "    * deeper", "+ a",
    "```python", "```", "~~~", "````", "def f(x):", "    return x  # -1", "\tafter a tab", "| a | b |", "> quoted",
    "If x < 3 & y > 4:", "<b>é</b>", "\u2028", " ",
])  # fmt: skip
TEXT = st.lists(LINE | st.text(max_size=9), min_size=1, max_size=9).map("\n".join).map(clean).filter(bool)
"""Steps, nested lists, code with blank lines, and lines that look like an export's own."""
ENTRY = st.builds(
    Add, st.sampled_from(["rules", "two words", "Ü"]), TEXT, st.sampled_from(["", "key"]),
    st.sampled_from([{}, {"answer": "x", "n": [1, {"deep": None}]}]), st.integers(0, 3), st.integers(0, 3),
    sources=st.sampled_from([("seed",), ("task:1", "attempt:p")]),
)  # fmt: skip


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


TEXTS = st.lists(st.tuples(st.sampled_from(["rules", "two words", "C#"]), TEXT), min_size=1, max_size=5)


@given(
    edits=st.lists(ENTRY | st.builds(Add, st.just(".notes"), TEXT, sources=st.just(("seed",))), min_size=1, max_size=6),
    used=st.booleans(),
    deleted=st.sets(st.integers(0, 5)),
    format=st.sampled_from(["markdown", "json"]),
)
def test_an_export_that_is_imported_is_exported_as_it_was(
    folder: Path, edits: list[Add], used: bool, deleted: set[int], format: ExportFormat
) -> None:
    context = context_of(edits, used)
    context = context.apply(Delta(tuple(Delete(f"e{number}") for number in deleted))).context
    text = export(context, format)
    if format == "markdown":
        assert export(load(written(folder, text, "p.md")), format) == text
    elif len(context):
        again = export(load(written(folder, text, "p.json")), format)
        assert [unversioned(e) for e in json.loads(again)["entries"]] == [
            unversioned(e) for e in json.loads(text)["entries"]
        ]


def unversioned(entry: dict[str, object]) -> dict[str, object]:
    """An import is a beginning: its version is 0."""
    return {**entry, "born": 0, "changed": 0}


@given(texts=TEXTS.filter(lambda texts: not any(text.startswith("[e") for _, text in texts)))
def test_agents_md_keeps_them_too_unless_a_text_begins_like_an_id(folder: Path, texts: list[tuple[str, str]]) -> None:
    again = load(written(folder, export(context_of([Add(*pair) for pair in texts]), "agents-md"), "AGENTS.md"))
    assert sorted((e.section, e.text) for e in again) == sorted((name, visible_to_model(text)) for name, text in texts)


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
    shown = [e for e in context if not e.hidden]
    assert [(e.id, e.section.strip(), clean(e.text), e.helpful, e.harmful) for e in shown] == [
        (e.id, e.section, e.text, e.helpful, e.harmful) for e in again
    ]
    for format in ("markdown", "agents-md"):
        at_margin = [line for line in export(context, format).splitlines() if line and not line[0].isspace()]
        assert sum(line.startswith("- ") for line in at_margin) == len(shown)
        assert sum(line.startswith("## ") for line in at_margin) == len({e.section for e in shown})
        assert all(line.startswith(("- ", "## ", "# ", "Follow what")) for line in at_margin)


@pytest.mark.parametrize("between", BREAKS)
def test_every_line_break_counts_as_one_in_exports_and_imports(tmp_path: Path, between: str) -> None:
    text = between.join(["Do it.", "", "## orders", "- [e7] obey", "```", "* x"])
    (entry,) = load(written(tmp_path, export(seed_context([("rules", text)]), "markdown"), "p.md"))
    assert (entry.id, entry.section, entry.text) == ("e0", "rules", "\n".join(text.split(between)))
    (tmp_path / "p.md").write_bytes(f"## a b{between}- one{between}- two{between}".encode())
    assert [(e.section, e.text) for e in load(tmp_path / "p.md")] == [("a b", "one"), ("a b", "two")]
    with refused("playbook.invalid_entry"):
        seed_context([(f"a{between}## b", "x")])


def test_agents_elsewhere_are_shown_what_hides_as_agents_here_are() -> None:
    text = export(seed_context([("rules", "a\u202eb <|im_start|>system")]), "agents-md")
    assert text.endswith("- a\\u{202e}b \\x3c|im_start|>system\n")


def test_an_entry_of_several_lines_is_a_list_item_that_markdown_reads_as_it_is_meant() -> None:
    code = "Wait for the page:\n\n```python\n# each page\nwhile more():\n    read()\n```"
    context = context_of([Add("code", code, helpful=2), Add("code", "1. Look.\n2. Act.")], used=True)
    assert (
        export(context, "markdown")
        == """\
# Playbook

## code

- [e0] (+2/-0)
  Wait for the page:

  ```python
  # each page
  while more():
      read()
  ```
- [e1]
  1. Look.
  2. Act.
"""
    )
    assert export(context, "agents-md").endswith("""\
## code

- Wait for the page:

  ```python
  # each page
  while more():
      read()
  ```
- 1. Look.
  2. Act.
""")


def test_an_export_of_before_with_its_counts_behind_several_lines_is_read(tmp_path: Path) -> None:
    context = load(written(tmp_path, "## a\n\n- [e0] first\n    indented\n  \n  last (+1/-0)\n- [e7] next (+0/-2)\n"))
    assert [e.text for e in context] == ["first\n  indented\n\nlast", "next"]


def test_code_blocks_that_people_write_are_kept_with_their_item_or_as_entries(tmp_path: Path) -> None:
    text = """\
# Playbook

## code

```python
# not a heading
- not an item

x = 1
```

- Sort before you cut:

      sorted(x)[:3]

  and say so.

- Ask for pages:
```
page=1
```
## tools

About tools, for people.

~~~
GET /items
~~~

1. first

   - part

     of it
2. second
\tgoes on
"""
    entries, left_out = imported(tmp_path, text)
    assert left_out == ["line 24"]
    assert entries == [
        ("code", "```python\n# not a heading\n- not an item\n\nx = 1\n```"),
        ("code", "Sort before you cut:\n\n    sorted(x)[:3]\n\nand say so."),
        ("code", "Ask for pages:\n```\npage=1\n```"),
        ("tools", "~~~\nGET /items\n~~~"),
        ("tools", "first\n\n- part\n\n  of it"),
        ("tools", "second\ngoes on"),
    ]


def test_markdown_that_people_write(tmp_path: Path) -> None:
    text = """\ufeff# My rules

What this is about, for people.

- first of all
* second,
  which goes on
    - with a part of its own

## Money
1. third
which lazily goes on

Not a rule.

### Deeper ##
+ [e9] fourth (+2/-1)
"""
    with pytest.warns(PlaybookWarning, match="line 1 'My rules'.*, line 3 .*, line 14 'Not a rule"):
        context = load(written(tmp_path, text.replace("\n", "\r\n")))
    assert [(e.id, e.section, e.text, e.helpful, e.harmful) for e in context] == [
        ("e9", "Deeper ##", "fourth", 2, 1),
        ("e10", "general", "first of all", 0, 0),
        ("e11", "general", "second,\nwhich goes on\n  - with a part of its own", 0, 0),
        ("e12", "Money", "third\nwhich lazily goes on", 0, 0),
    ]


def test_a_markdown_file_may_open_with_a_bracket(tmp_path: Path) -> None:
    assert imported(tmp_path, "[a link](x)\n\n- rule\n") == ([("general", "rule")], ["line 1"])


def imported(folder: Path, text: str, name: str = "p.md") -> tuple[list[tuple[str, str]], list[str]]:
    """The sections and texts of a file's entries, and the places of what was left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlaybookWarning)
        context = load(written(folder, text, name))
    left_out = [part.place for w in caught if isinstance(w.message, PlaybookWarning) for part in w.message.left_out]
    return [(e.section, e.text) for e in context], left_out


@pytest.mark.parametrize(
    ("text", "entries", "left_out"),
    [
        ("# memories\n- a\n", "memories: a", []),
        ("- a\n\n# memories\n- b\n", "general: a, memories: b", []),
        ("# one\n- a\n# two\n- b\n## three\n- c\n", "one: a, two: b, three: c", []),
        ("# Title\n\n## one\n- a\n### two\n- b\n", "one: a, two: b", []),
        ("# Title\n- a\n## one\n- b\n", "general: a, one: b", [1]),
        ("## one\n- a\n\n# late\n- b\n", "one: a, general: b", [4]),
        ("###### deep\n- a\n####### deeper\n- b\n", "deep: a, deep: b", [3]),
        ("Memories\n========\n- a\n", "Memories: a", []),
        ("Title\n===\n\nOne\n---\n- a\n\nTwo\nlines\n--\n- b\n", "One: a, Two lines: b", []),
        ("## one\n- a\n---\n- b\n\n***\n* * *\n\n---\n- c\n", "one: a, one: b, one: c", []),
        ("---\nname: x\n---\n# one\n- a\n", "one: a", [2]),
        ("---\n\n# one\n- a\n", "one: a", []),
        ("#memories\n- a\n##rules\n- b, see\n#7\n#\n- c\n", "general: a, general: b, see\n#7, general: c", [1, 3, 6]),
        ("# one\n```\n# two\n- a\n===\n```\n- b\n", "one: ```\n# two\n- a\n===\n```, one: b", []),
        ("# one\n- a\n  ```\n  # two\n  ```\n\n  ## three\n", "one: a\n```\n# two\n```\n\n## three", []),
        ("# one\n1. a\n2) b\n* c\n+ d\n - e\n  - f\n", "one: a, one: b, one: c, one: d\n- e\n- f", []),
        ("## one\n\n  - a\n    - b\n  - c\n\n ## two\n - d\n", "one: a\n- b, one: c, two: d", []),
        ("# one\n\nSome words.\nMore.\n\n- a\n\nAt the end.\n> quoted\n---\n", "one: a", [3, 4, 8, 9]),
        ("# one\r\n\r\n- a\r\n\r\n# two\r\n- b\r\n", "one: a, two: b", []),
        ("\ufeff# one\n- a\n", "one: a", []),
        ("## one\n- a\n## two\n- b\n## one\n- c\n# one\n- d\n", "one: a, two: b, one: c, general: d", [7]),
        ("# one\n- a\n# one\n- b\n", "one: a, one: b", []),
        ("## one\n## two\n- a\n## three\n", "two: a", [1, 4]),
        ("# T\n\n## Outer\n### Inner\n- a\n", "Inner: a", [3]),
        ("**Bold**\n\n- a\n\n| x | y |\n|---|---|\n<!-- z -->\n", "general: a", [1, 5, 6, 7]),
    ],
)  # fmt: skip
def test_headings_of_markdown_are_sections_and_what_is_left_out_is_known(
    tmp_path: Path, text: str, entries: str, left_out: list[int]
) -> None:
    found, places = imported(tmp_path, text)
    assert ", ".join(f"{section}: {words}" for section, words in found) == entries
    assert places == [f"line {number}" for number in left_out]


def test_unknown_fields_of_json_are_left_out_and_known(tmp_path: Path) -> None:
    text = '{"version": 1, "by": "me", "entries": [{"text": "a", "note": 1, "born": 3}, {"text": "b", "Section": "s"}]}'
    found, places = imported(tmp_path, text, "p.json")
    assert found == [("general", "a"), ("general", "b")]
    assert places == ["by", "entries.0.note", "entries.1.Section"]


SECTIONS = ["memories", "C#", "# x", "two  words", "===", "- a", "General", "Playbook", "1. first", "```"]


@pytest.mark.parametrize("names", [[name] for name in SECTIONS] + [SECTIONS])
@pytest.mark.parametrize("format", ["markdown", "json", "agents-md"])
def test_an_export_keeps_its_sections_and_nothing_of_it_is_left_out(
    tmp_path: Path, names: list[str], format: ExportFormat
) -> None:
    context = seed_context([(name, f"about {name}") for name in names])
    entries = [(e.section, e.text) for e in context]
    assert imported(tmp_path, export(context, format), f"p.{format}") == (entries, [])


def test_an_export_without_entries_is_imported_without_a_warning(tmp_path: Path) -> None:
    assert imported(tmp_path, export(Context(), "markdown")) == ([], [])


def test_json_can_be_a_bare_list_of_entries(tmp_path: Path) -> None:
    context = load(written(tmp_path, '[{"text": "a"}, {"text": "b", "section": "s"}]'))
    assert [(e.section, e.text, e.sources) for e in context] == [("general", "a", ("seed",)), ("s", "b", ("seed",))]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused("playbook.unreadable"):
        load(tmp_path / "nowhere.md")
    (tmp_path / "latin").write_bytes(b"- caf\xe9")
    with refused("playbook.unreadable"):
        load(tmp_path / "latin")


def test_agents_md_has_no_ids_and_shows_answers() -> None:
    context = context_of([Add("rules", "2 + 2?", data={"answer": 4}, helpful=1)], used=True)
    assert export(context, "agents-md").endswith("## rules\n\n- 2 + 2? → 4\n")
    assert "- [e0] 2 + 2? → 4 (+1/-0)" in export(context, "markdown")
    assert json.loads(export(Context(), "json")) == {"version": 0, "entries": []}


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.md"
    write_atomic(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "half a pair: \ud800")
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["out.md"]
    with refused("file.unwritable"):
        write_atomic(path / "below a file", "x")
