"""Scorers: what counts as right, and how a user's own function is loaded and run."""

from __future__ import annotations

import asyncio
import pickle
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import packages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.errors import AgentError, TaskFileError, UsageError
from practicum.core.types import Score, Task, Trace
from practicum.tasks.scoring.registry import COMPARING, SCORERS, AnswerScorer, load_scorer
from practicum.tasks.scoring.rules import last_number, named_choices, normalise

CHOICES = ("Basalt", "New York", "York", "C++")


def mark(name: str, target: str, answer: str) -> Score:
    score = load_scorer(name, CHOICES).score(Task("t", "x", target), Trace(answer))
    assert isinstance(score, Score)
    assert score.value == float(score.correct) or name == "list"
    return score


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Basalt", True),
        ("  bASALT. ", True),
        ('"Basalt."', True),
        ("'Basalt'.", True),
        ("\u201cBasalt\u201d", True),
        ("Basalt team", False),
        ("", False),
    ],
)
def test_exact(answer: str, right: bool) -> None:
    assert mark("exact", "Basalt", answer).correct is right


def test_exact_folds_spaces_and_forms_of_letters() -> None:
    assert mark("exact", "caf\u00e9  au\nlait", "Cafe\u0301 au lait").correct
    assert mark("exact", "STRASSE", "straße").correct


@pytest.mark.parametrize(
    ("target", "answer", "right"),
    [
        ("Basalt", "basalt", True),
        ("Basalt", "The team is **Basalt**.", True),
        ("Basalt", "Basalt, clearly Basalt", True),
        ("Basalt", "Basalts", False),
        ("Basalt", "Basalt or York", False),
        ("Basalt", "none of them", False),
        ("New York", "It is New York!", True),
        ("York", "It is New York!", False),
        ("York", "in York", True),
        ("C++", "I say c++.", True),
        ("Basalt", "York", False),
    ],
)
def test_choice(target: str, answer: str, right: bool) -> None:
    assert mark("choice", target, answer).correct is right


@pytest.mark.parametrize(
    ("choices", "text", "named"),
    [
        ("ABCD", "a", "A"),
        ("ABCD", "The answer is B.", "B"),
        ("ABCD", "I think a reason is given, so (C).", "C"),
        ("ABCD", "**D**", "D"),
        ("ABCD", "b or c", ""),
        ("ABCD", "A or B", "AB"),
        ("ABCD", "Basic", ""),
        ("abcd", "The answer is b.", "b"),
        ("aA", "a", "a"),
        ("12", "12", ""),
        (("A", "vitamin A"), "Take Vitamin A.", ("vitamin A",)),
    ],
)
def test_one_letter_inside_a_text_is_a_choice_only_as_it_is_written(
    choices: Sequence[str], text: str, named: Sequence[str]
) -> None:
    assert named_choices(tuple(choices), text) == tuple(named)


def test_choice_says_why_it_is_wrong_without_giving_the_target_away() -> None:
    assert mark("choice", "York", "Basalt or C++?").note == "the answer names 2 of the choices"
    assert mark("choice", "York", "dunno").note == "the answer names none of the choices"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", "42"),
        ("so 6 * 7 = <<6*7=42>>42.\n#### 42", "42"),
        ("#### 42\nchecked in 3 ways", "3"),
        ("first 1, then 2", "2"),
        ("$1,234,567.89", "1234567.89"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("\u22125.5", "-5.5"),
        ("is -.5", "-0.5"),
        ("5-10", "10"),
        ("- 7", "7"),
        ("12.5%", "12.5"),
        ("an EV/EBITDA of 8.5x", "8.5"),
        ("(200)", "-200"),
        ("Loss: **($1,200.50)**", "-1200.50"),
        ("x = (12%)", "-12"),
        ("it is seven (7)", "7"),
        (r"\(42\)", "42"),
        (r"\boxed{42}", "42"),
        ("1e9", "1E+9"),
        ("-1.5E-3", "-0.0015"),
        ("1.05 \u00d7 10^9", "1.05E+9"),
        (r"1.05 \times 10^{-9}", "1.05E-9"),
        ("2*10**3", "2E+3"),
        ("12 apples in Q3", "12"),
        ("1,2,3", "3"),
        ("_42_", "42"),
        ("none", None),
        ("", None),
    ],
)
def test_the_last_number(text: str, number: str | None) -> None:
    assert last_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("target", "answer", "right"),
    [
        ("She makes 9 * 2 = 18\n#### 18", "$18.00 a day", True),
        ("18", "18.4", False),
        ("18", "18.01", False),
        ("0.0512", "0.05", True),
        ("0.05", "0.0512", True),
        ("0.125", "0.12", True),
        ("0.125", "0.13", True),
        ("0.001", "0.004", False),
        ("57500", "57501", False),
        ("9100000000.0", "$9,100,000,000", True),
        ("100000000000000000000000", "1.0000000000000001e23", True),
        ("-80000000.0", "80,000,000", False),
        ("5", "five", False),
    ],
)
def test_numeric(target: str, answer: str, right: bool) -> None:
    assert mark("numeric", target, answer).correct is right


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_may_be_written_in_all_usual_ways(value: float) -> None:
    written = (repr(value), f"{value:.2f}", f"{value:,.2f}", f"the result is {value:,.4f}.", f"${value:.12e}")
    assert all(mark("numeric", repr(value), answer).correct for answer in written)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_integers_agree_only_when_equal_or_very_large(a: int, b: int) -> None:
    assert mark("numeric", str(a), f"{b:,}").correct is (abs(a - b) <= max(abs(a), abs(b)) * Decimal("1e-9"))


def test_contains_and_regex() -> None:
    assert mark("contains", "New  York.", "I love NEW york in June").correct
    assert not mark("contains", "Boston", "I love New York").correct
    assert mark("regex", r"^\d+ cats$", "12 cats").correct
    assert not mark("regex", r"^\d+ cats$", "12 Cats").correct


def test_a_pattern_cannot_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.tasks.scoring.rules.SEARCH_SECONDS", 0.02)
    endless = mark("regex", r"^(?:(?:a{0,1000}){0,1000}){0,1000}$", "a" * 3000 + "b")
    assert (endless.value, endless.untestable) == (0.0, True)
    assert "found no end within 0.02 s" in endless.note
    with refused("tasks.invalid_target"):
        mark("regex", "a" * 10_001, "a")


@pytest.mark.parametrize("name", COMPARING)
@given(answer=st.text(), target=st.text())
def test_rules_score_any_text(name: str, answer: str, target: str) -> None:
    # Warnings of `re` are about the user's pattern, not about us.
    with suppress(TaskFileError), warnings.catch_warnings(action="ignore", category=FutureWarning):
        assert 0.0 <= mark(name, target, answer).value <= 1.0  # `list` gives a share


@given(st.text())
def test_an_answer_equal_to_the_target_is_right(text: str) -> None:
    assert mark("exact", text, text).correct
    if normalise(text):
        assert mark("contains", text, f"well, {text}").correct


@pytest.mark.parametrize("text", ["9" * 50_000, "1," * 50_000, "(" * 50_000, "1,111" * 20_000, '"' * 20_000])
def test_rules_score_very_long_answers(text: str) -> None:
    for name in COMPARING:
        assert not mark(name, "7", text).correct


@pytest.mark.parametrize("name", COMPARING)
def test_a_rule_without_target_names_the_task(name: str) -> None:
    scorer = load_scorer(name, CHOICES)
    assert (scorer.name, scorer.needs_target) == (name, True)
    with refused("tasks.no_target"):
        scorer.score(Task("t", "x"), Trace("a"))


def test_a_bad_pattern_names_the_task() -> None:
    with refused("tasks.invalid_target"):
        mark("regex", "(", "a")


def test_rules_can_be_pickled() -> None:
    for name in COMPARING:
        scorer, task = load_scorer(name, CHOICES), Task("t", "x", "York 7")
        copy = pickle.loads(pickle.dumps(scorer))
        assert [copy.score(task, Trace(answer)) for answer in ("York 7", "8")] == [
            scorer.score(task, Trace(answer)) for answer in ("York 7", "8")
        ]


@pytest.mark.parametrize(
    ("name", "choices", "code"),
    [
        (
            "exactly",
            None,
            "scorer.unknown",
        ),
        ("choice", None, "settings.missing"),
        ("choice", ("a", " "), "settings.missing"),
        ("judge", None, "scorer.invalid"),
    ],
)
def test_names_that_cannot_be_loaded(name: str, choices: tuple[str, ...] | None, code: str) -> None:
    with refused(code):
        load_scorer(name, choices)


OWN = """
from practicum.core.types import Score

def half(task, answer): return 0.5
def little(task, answer): return 0.25
def same(task, answer): return answer == task.target
def full(task, answer): return Score(0.4, True, "fine", {"words": 3})
async def later(task, answer): return len(answer) / 10
def fails(task, answer): raise KeyError("two\\nlines")
async def fails_later(task, answer): raise KeyError("oh")
def words(task, answer): return "good"
def beyond(task, answer): return 1.5
def nan(task, answer): return float("nan")
def lone(task): return 1
number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_broken.py").write_text("import no_such_module")
    (tmp_path / f"{name}_exits.py").write_text("raise SystemExit(3)")
    return name


def settled(scorer: AnswerScorer, answer: str) -> Score:
    return asyncio.run(scorer(Task("t", "x", "abc"), Trace(answer)))


@pytest.mark.parametrize(
    ("function", "score"),
    [
        ("half", Score(0.5, True)),
        ("little", Score(0.25, False)),
        ("same", Score(1.0, True)),
        ("full", Score(0.4, True, "fine", {"words": 3})),
        ("later", Score(0.3, False)),
    ],
)
def test_own_functions(own: str, function: str, score: Score) -> None:
    scorer = load_scorer(f"{own}:{function}", None)
    assert (scorer.name, scorer.needs_target) == (f"{own}:{function}", False)
    assert settled(scorer, "abc") == score


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("fails", "KeyError: 'two\\nlines'"),
        ("fails_later", "KeyError: 'oh'"),
        ("words", "it returned str, not a number, a bool or a Score"),
        ("beyond", "it returned 1.5, which is not between 0 and 1"),
        ("nan", "it returned nan, which is not between 0 and 1"),
    ],
)
def test_own_functions_that_fail_are_named_with_the_task(own: str, function: str, text: str) -> None:
    with pytest.raises(AgentError) as caught:
        settled(load_scorer(f"{own}:{function}", None), "abc")
    assert str(caught.value).startswith(f"scorer '{own}:{function}' failed on task 't': ")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("{own}:none", "has no attribute 'none'"),
        ("{own}:number", "is a int, not a function"),
        ("{own}:", "has no attribute ''"),
        ("{own}:lone", "must take (task, answer)"),
        ("{own}.py:half", "cannot load"),
        (":half", "cannot load"),
        ("{own}_broken:half", "No module named 'no_such_module'"),
        ("{own}_exits:half", "SystemExit: 3"),
    ],
)
def test_own_functions_that_cannot_be_loaded(own: str, name: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_scorer(name.format(own=own), None)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def scorer_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two installed packages that register scorers, one of which cannot be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    names = ("half", "full", "later", "words", "lone", "number")
    entries = {name: f"own_scorers:{name}" for name in names}
    packages.install(tmp_path, "own_scorers", OWN, SCORERS.name, **entries, exact="own_scorers:half")
    packages.install(tmp_path, "broken_scorers", "import no_such_module", SCORERS.name, gone="broken_scorers:score")
    monkeypatch.delitem(sys.modules, "own_scorers", raising=False)


@pytest.mark.usefixtures("scorer_packages")
def test_a_package_registers_scorers() -> None:
    scorer = load_scorer("half", None)
    assert (scorer.name, scorer.needs_target) == ("half", False)
    assert settled(scorer, "abc") == Score(0.5, True)
    assert settled(load_scorer("full", None), "abc") == Score(0.4, True, "fine", {"words": 3})
    assert settled(load_scorer("later", None), "abc") == Score(0.3, False)
    with refused("scorer.failed"):
        settled(load_scorer("words", None), "abc")
    assert load_scorer("exact", None).needs_target, "a package cannot replace a built-in scorer"


@pytest.mark.usefixtures("scorer_packages")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gone", "plugin.broken"),
        ("lone", "scorer.invalid"),
        ("number", "plugin.invalid"),
        ("none", "scorer.unknown"),
    ],
)
def test_a_scorer_of_a_package_that_cannot_be_loaded(name: str, code: str) -> None:
    with refused(code):
        load_scorer(name, None)


@pytest.mark.parametrize(
    ("answer", "value"),
    [("a,B, c", 1.0), ("A,b", 2 / 3), ("a,x,c", 2 / 3), ("b,a,c", 1 / 3), ("a,b,c,d", 0.75), ("", 0.0)],
)
def test_a_list_is_scored_by_the_share_of_its_positions(answer: str, value: float) -> None:
    score = asyncio.run(load_scorer("list", None)(Task("t", "x", "A,B,C"), Trace(answer)))
    assert score.value == pytest.approx(value)
    assert score.correct is (value == 1.0)
