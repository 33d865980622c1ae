"""Scorers: right and wrong answers of the rules, and functions of the user and of packages as scorers."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal

import packages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.errors import TaskFileError
from practicum.core.types import Score, Task, Trace
from practicum.tasks.scoring.registry import COMPARING, SCORERS, load_scorer
from practicum.tasks.scoring.rules import last_number, named_choices, normalise

CHOICES = ("Basalt", "New York", "York", "C++")


def mark(name: str, target: str, answer: str) -> Score:
    score = load_scorer(name, CHOICES).score(Task("t", "x", target), Trace(answer))
    assert isinstance(score, Score)
    assert score.value == float(score.correct) or name == "list"
    return score


@pytest.mark.parametrize(
    ("scorer", "target", "answer", "right"),
    [
        ("exact", "Basalt", "  bASALT. ", True), ("exact", "Basalt", "\u201cBasalt\u201d", True),
        ("exact", "Basalt", "Basalt team", False), ("exact", "Basalt", "", False),
        ("exact", "caf\u00e9  au\nlait", "Cafe\u0301 au lait", True), ("exact", "STRASSE", "straße", True),
        ("choice", "Basalt", "The team is **Basalt**.", True), ("choice", "Basalt", "Basalt, clearly Basalt", True),
        ("choice", "Basalt", "Basalts", False), ("choice", "Basalt", "Basalt or York", False),
        ("choice", "New York", "It is New York!", True), ("choice", "York", "It is New York!", False),
        ("choice", "C++", "I say c++.", True), ("numeric", "She makes 9 * 2 = 18\n#### 18", "$18.00 a day", True),
        ("numeric", "18", "18.4", False), ("numeric", "18", "18.01", False), ("numeric", "0.0512", "0.05", True),
        ("numeric", "0.05", "0.0512", True), ("numeric", "0.125", "0.12", True), ("numeric", "0.125", "0.13", True),
        ("numeric", "0.001", "0.004", False), ("numeric", "57500", "57501", False),
        ("numeric", "9100000000.0", "$9,100,000,000", True), ("numeric", "-80000000.0", "80,000,000", False),
        ("numeric", "100000000000000000000000", "1.0000000000000001e23", True), ("numeric", "5", "five", False),
        ("contains", "New  York.", "I love NEW york in June", True), ("contains", "Boston", "I love New York", False),
        ("regex", r"^\d+ cats$", "12 cats", True), ("regex", r"^\d+ cats$", "12 Cats", False),
    ],
)  # fmt: skip
def test_a_rule_finds_an_answer_right_or_wrong(scorer: str, target: str, answer: str, right: bool) -> None:
    assert mark(scorer, target, answer).correct is right


@pytest.mark.parametrize(
    ("choices", "text", "named"),
    [
        ("ABCD", "a", "A"), ("ABCD", "I think a reason is given, so (C).", "C"), ("ABCD", "**D**", "D"),
        ("ABCD", "b or c", ""), ("ABCD", "A or B", "AB"), ("ABCD", "Basic", ""), ("abcd", "The answer is b.", "b"),
        ("aA", "a", "a"), ("12", "12", ""), (("A", "vitamin A"), "Take Vitamin A.", ("vitamin A",)),
    ],
)  # fmt: skip
def test_one_letter_in_a_text_is_a_choice_only_in_its_own_case(
    choices: Sequence[str], text: str, named: Sequence[str]
) -> None:
    assert named_choices(tuple(choices), text) == tuple(named)


def test_the_note_of_a_wrong_choice_does_not_contain_the_target() -> None:
    assert mark("choice", "York", "Basalt or C++?").note == "the answer names 2 of the choices"
    assert mark("choice", "York", "dunno").note == "the answer names none of the choices"


NUMBERS = (
    ("so 6 * 7 = <<6*7=42>>42.\n#### 42", "42"), ("#### 42\nchecked in 3 ways", "3"), ("first 1, then 2", "2"),
    ("$1,234,567.89", "1234567.89"), ("-$5", "-5"), ("$-5", "-5"), ("\u22125.5", "-5.5"), ("is -.5", "-0.5"),
    ("5-10", "10"), ("- 7", "7"), ("12.5%", "12.5"), ("an EV/EBITDA of 8.5x", "8.5"), ("(200)", "-200"),
    ("Loss: **($1,200.50)**", "-1200.50"), ("x = (12%)", "-12"), ("it is seven (7)", "7"), (r"\(42\)", "42"),
    (r"\boxed{42}", "42"), ("1e9", "1E+9"), ("-1.5E-3", "-0.0015"), ("1.05 \u00d7 10^9", "1.05E+9"),
    (r"1.05 \times 10^{-9}", "1.05E-9"), ("2*10**3", "2E+3"), ("12 apples in Q3", "12"), ("1,2,3", "3"),
    ("_42_", "42"), ("none", None), ("", None),
)  # fmt: skip


def test_the_last_number_of_a_text_is_its_answer() -> None:
    assert [last_number(text) for text, _ in NUMBERS] == [number and Decimal(number) for _, number in NUMBERS]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_may_be_written_in_all_usual_ways(value: float) -> None:
    written = (repr(value), f"{value:.2f}", f"{value:,.2f}", f"the result is {value:,.4f}.", f"${value:.12e}")
    assert all(mark("numeric", repr(value), answer).correct for answer in written)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_integers_agree_only_if_they_are_equal_or_very_large(a: int, b: int) -> None:
    assert mark("numeric", str(a), f"{b:,}").correct is (abs(a - b) <= max(abs(a), abs(b)) * Decimal("1e-9"))


def test_a_list_is_scored_by_the_share_of_its_positions() -> None:
    for text, value in (("a,B, c", 1), ("A,b", 2 / 3), ("a,x,c", 2 / 3), ("b,a,c", 1 / 3), ("a,b,c,d", 0.75), ("", 0)):
        score = mark("list", "A,B,C", text)
        assert (score.value, score.correct) == (pytest.approx(value), value == 1)


def test_a_pattern_has_a_time_limit_and_a_maximum_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.tasks.scoring.rules.SEARCH_SECONDS", 0.02)
    endless = mark("regex", r"^(?:(?:a{0,1000}){0,1000}){0,1000}$", "a" * 3000 + "b")
    assert (endless.value, endless.untestable) == (0.0, True)
    assert "found no end within 0.02 s" in endless.note
    for pattern in ("a" * 10_001, "("):
        with refused("tasks.invalid_target"):
            mark("regex", pattern, "a")


@pytest.mark.parametrize("name", COMPARING)
@given(answer=st.text(), target=st.text())
def test_rules_score_any_text(name: str, answer: str, target: str) -> None:
    # Warnings of `re` concern the user's pattern.
    with suppress(TaskFileError), warnings.catch_warnings(action="ignore", category=FutureWarning):
        assert 0.0 <= mark(name, target, answer).value <= 1.0  # `list` gives a share


@given(st.text())
def test_an_answer_equal_to_the_target_is_right(text: str) -> None:
    assert mark("exact", text, text).correct
    if normalise(text):
        assert mark("contains", text, f"well, {text}").correct


def test_rules_score_very_long_answers() -> None:
    for text in ("9" * 9000, "1," * 9000, "(" * 9000, "1,111" * 5000, '"' * 9000):
        for name in COMPARING:
            assert not mark(name, "7", text).correct


def test_a_rule_needs_a_target() -> None:
    for name in COMPARING:
        scorer = load_scorer(name, CHOICES)
        assert (scorer.name, scorer.needs_target) == (name, True)
        with refused("tasks.no_target", task="t"):
            scorer.score(Task("t", "x"), Trace("a"))


# ---- functions of the user, and of packages


OWN = """
from practicum.core.types import Score

def half(task, answer): return 0.5
def full(task, answer): return Score(0.4, True, "fine", {"words": 3})
async def later(task, answer): return len(answer) / 10
async def fails_later(task, answer): raise KeyError("two\\nlines")
def words(task, answer): return "good"
def beyond(task, answer): return 1.5
def nan(task, answer): return float("nan")
def lone(task): return 1
number = 3
"""


@pytest.fixture(scope="module", autouse=True)
def _packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module with scorers, a package that registers them, and packages that cannot be imported."""
    folder = tmp_path_factory.mktemp("packages")
    entries = {name: f"own_scorers:{name}" for name in ("half", "full", "lone", "number")}
    packages.install(folder, "own_scorers", OWN, SCORERS.name, **entries, exact="own_scorers:half")
    packages.install(folder, "broken_scorers", "import no_such_module", SCORERS.name, gone="broken_scorers:score")
    (folder / "exiting_scorers.py").write_text("raise SystemExit(3)")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("own_scorers", None)


def settled(name: str) -> Score:
    scorer = load_scorer(name, None)
    assert (scorer.name, scorer.needs_target) == (name, False)
    return asyncio.run(scorer(Task("t", "x", "abc"), Trace("abc")))


def test_a_function_of_a_module_or_a_package_is_a_scorer() -> None:
    assert (settled("own_scorers:half"), settled("own_scorers:later")) == (Score(0.5, True), Score(0.3, False))
    assert settled("full") == Score(0.4, True, "fine", {"words": 3})
    assert load_scorer("exact", None).needs_target, "a package cannot replace a built-in scorer"
    for function in ("fails_later", "words", "beyond", "nan"):
        with refused("scorer.failed") as caught:
            settled(f"own_scorers:{function}")
        assert f"scorer 'own_scorers:{function}' failed on task 't': " in str(caught.value)


def test_a_scorer_that_cannot_be_loaded_is_refused() -> None:
    for code, names in (
        ("scorer.unknown", ["exactly"]), ("settings.missing", ["choice"]), ("plugin.broken", ["gone"]),
        ("scorer.invalid", ["judge", "lone", "own_scorers:lone"]), ("plugin.invalid", ["number"]),
        ("code.cannot_load", [f"own_scorers{name}" for name in (":none", ":number", ":", ".py:half")]),
        ("code.cannot_load", [":half", "broken_scorers:half", "exiting_scorers:half"]),
    ):  # fmt: skip
        for name in names:
            with refused(code):
                load_scorer(name, None)
    with refused("settings.missing"):
        load_scorer("choice", ("a", " "))
