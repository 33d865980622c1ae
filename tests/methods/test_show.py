"""Names of sections, as models write them, and views of the whole history."""

from __future__ import annotations

import pytest
from helpers import world
from runs import indoors

from practicum import run_sync
from practicum.core.context import initial_context
from practicum.core.counts import Count
from practicum.core.edits import Add
from practicum.core.types import Task
from practicum.methods.blocks.show import fitting_turns, section_of, similar_turns

NAMES = {
    "Strategy": "strategies", "2. formulas": "facts and formulas", "code to run": "code", "pitfalls!": "pitfalls",
    "": "strategies", "colours": "strategies", "code and checks": "strategies",
}  # fmt: skip
"""The section of a name. A name that fits no section, or several, is of the first section."""


def test_a_section_is_selected_by_its_words() -> None:
    run = indoors(world, profile="full")
    assert {name: section_of(name, run) for name in NAMES} == NAMES
    assert run.counts[Count.UNKNOWN_SECTIONS] == 2


HISTORY = initial_context(
    [Add("examples", f"{colour} paint for the fence", data={"answer": colour}) for colour in ("red", "green", "blue")]
)


@pytest.mark.parametrize(
    ("tokens", "nearest", "answers"),
    [
        (None, False, ["red", "green", "blue"]),
        (60, False, ["green", "blue"]),
        (60, True, ["blue", "red"]),
        (5, False, []),
    ],
)
def test_the_whole_history_is_shown_as_far_as_it_fits(tokens: int | None, nearest: bool, answers: list[str]) -> None:
    show = fitting_turns("examples", tokens, nearest)
    run = indoors(world, profile="full")
    view = run_sync(show(HISTORY, Task("t", "red paint for the fence or blue"), run))
    assert [turn.assistant for turn in view.turns] == answers


@pytest.mark.parametrize(("words", "shown"), [(1, 16), (90, 8), (600, 4)])
def test_similar_tasks_are_shown_up_to_a_number_and_tokens_but_at_least_four(words: int, shown: int) -> None:
    text = "paint for the fence" + " and the gate" * (words // 3)
    solved = initial_context([Add("episodes", f"{text} number {n}", data={"answer": str(n)}) for n in range(20)])
    run = indoors(world, profile="full")
    view = run_sync(similar_turns(16, "episodes", 1000)(solved, Task("t", f"{text} number 3"), run))
    assert len(view.turns) == shown
    assert (view.tokens <= 1000) == (shown > 4)
    assert view.turns[-1].assistant == "3"
