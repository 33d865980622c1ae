"""How a table prints that is too wide for a terminal."""

from __future__ import annotations

import pytest

from practicum.cli.output import Printer


def test_a_table_that_is_too_wide_for_a_terminal_becomes_texts_and_no_word_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Printer(False)
    out._force_terminal, out.soft_wrap, out.width = True, False, 40
    row = ("combee", "12,345", "some words in a text that go on", None)
    out.table(("way", "tokens", "contents", "cost"), [row], text=("way", "contents"))
    lines = capsys.readouterr().out.splitlines()
    assert any("combee" in line and "12,345" in line for line in lines)
    out.width = 24
    out.table(("way", "tokens", "contents", "cost"), [row], text=("way", "contents"))
    assert " ".join(capsys.readouterr().out.split()) == "way combee · tokens 12,345 · contents " + row[2]
