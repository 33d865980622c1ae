"""How commands print: tables, usage and counts, and the one JSON object."""

from __future__ import annotations

import json

import pytest
from rich.text import Text

from practicum.cli.output import Printer, print_error
from practicum.core.counts import Count
from practicum.core.words import one_line


def test_counts_are_printed_by_their_meaning_those_that_need_attention_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Printer(False).counts({Count.DUPLICATE_ENTRIES: 1_200, Count.LOST_REFLECTIONS: 2, Count.NO_MEMORIES: 0}, refused=3)
    assert capsys.readouterr().out.splitlines() == [
        "counted (! marks what needs your attention):",
        f"  ! 2 {Count.LOST_REFLECTIONS.meaning}",
        f"    1,200 {Count.DUPLICATE_ENTRIES.meaning}",
        "    3 edits refused, because they do not fit the context",
    ]
    Printer(False).counts({Count.REPAIRED_OUTPUTS: 1}, refused=1)
    assert capsys.readouterr().out.splitlines() == [
        "counted:",
        "    1 answer requested again, because it did not fit its schema",
        "    1 edit refused, because it does not fit the context",
    ]


def test_nothing_is_printed_without_counts(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(False).counts({Count.NO_MEMORIES: 0})
    assert capsys.readouterr().out == ""


def test_a_row_of_a_table_is_one_line_outside_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(False).table(
        ("entry", "score", "text"), [("e1", 12, "x" * 300), ("e22", None, "[y]")], text=("entry", "text")
    )
    head, first, second, end = capsys.readouterr().out.splitlines()
    assert (head.split(), end) == (["entry", "score", "text"], "")
    assert first == f"e1        12  {'x' * 300}"
    assert second == "e22        -  [y]"


def test_a_table_that_is_too_wide_for_a_terminal_becomes_texts_and_no_word_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Printer(False)
    out._force_terminal, out.soft_wrap, out.width = True, False, 40
    row = ("combee", "12,345", "some words in a text that go on", None)
    out.table(("way", "tokens", "what it says", "cost"), [row], text=("way", "what it says"))
    lines = capsys.readouterr().out.splitlines()
    assert any("combee" in line and "12,345" in line for line in lines)
    out.width = 24
    out.table(("way", "tokens", "what it says", "cost"), [row], text=("way", "what it says"))
    assert " ".join(capsys.readouterr().out.split()) == "way combee · tokens 12,345 · what it says " + row[2]


def test_the_rest_of_a_long_line_is_indented_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out, text = Printer(False), "[e0] (code) " + "word " * 20 + "\n  def f():\n      return " + "x, " * 30 + "\n\n  end"
    out.item(text)
    assert capsys.readouterr().out == f"{text}\n"
    out._force_terminal, out.soft_wrap, out.width = True, False, 80
    out.item(text)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 2, 6, 8, 0, 2]
    assert "".join(lines).split() == text.split()


def test_long_texts_are_cut_to_one_line() -> None:
    assert one_line(" a\n b ", 3) == "a b"
    assert one_line("abcd", 3) == "ab…"


HOSTILE = "a\x1b[2J\u202eb\u200b\x9b \U000e0041\ud800"


def test_what_hides_is_printed_as_escapes_and_json_says_it_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    seen, out = r"a\x1b[2J\u{202e}b\u{200b}\x9b \u{e0041}\u{d800}", Printer(False)
    out.print(HOSTILE, Text("drawn"))
    out.item(f"{HOSTILE}\n  c")
    out.table(("text",), [(f"{HOSTILE}\nx",)], text=("text",))
    assert capsys.readouterr().out == f"{seen} drawn\n{seen}\n  c\ntext\n{seen}\\nx\n\n"
    print_error(HOSTILE)
    assert capsys.readouterr().err == f"practicum: {seen}\n"
    out = Printer(True)
    out.result({HOSTILE: "ü"})
    assert [*out.each({}, "all", [HOSTILE], lambda text: {"is": text})] == [HOSTILE]
    one, many = capsys.readouterr().out.splitlines()
    assert [json.loads(one), json.loads(many)] == [{HOSTILE: "ü"}, {"all": [{"is": HOSTILE}]}]
    assert (one + many).replace("ü", "").isascii()
    assert one_line(HOSTILE, 200) == seen
