"""Lessons that say nothing: repetitions of the instructions, and rules that name no answer of a choice."""

from __future__ import annotations

import pytest
from helpers import world
from runs import indoors

from practicum import run_sync
from practicum.core.counts import Count
from practicum.core.types import Attempt, Feedback, Lesson, Profile, Task, Trace
from practicum.engine.run import Run
from practicum.methods.blocks.telling import telling
from practicum.retrieval.vectors import Vectors, WordLlama

ACCESS = "Decide whether a user may do a task on a web site. Answer allow or deny."
DESKS = "You send letters to a desk of the library. Answer with the name of the desk only."


def read(
    rule: str, task: str, instructions: str, choices: tuple[str, ...] = (), profile: Profile = "small"
) -> tuple[Lesson, Run]:
    run = indoors(world, choices=choices, profile=profile)
    run._state.instructions, run._state.vectors = instructions, Vectors(WordLlama())
    attempt = Attempt(Task("t", task), Trace("x"), None, Feedback(False, "wrong"), "a")
    further = Lesson("l.2", "Letters about fines go to Kite.", of="l")
    lesson = Lesson("l", rule, votes={"e0": "harmful"}, further=(further,))
    return run_sync(telling(lesson, attempt, run)), run


@pytest.mark.parametrize(
    ("rule", "task", "instructions", "stays"),
    [
        ("If a user is not allowed to do a web task, answer deny.", "A guest uploads a file.", ACCESS, False),
        ("If a user is allowed to do a web task, answer allow.", "An editor publishes a page.", ACCESS, False),
        ("If a guest uploads a file, answer deny.", "A guest wants to upload a photo.", ACCESS, True),
        ("If a letter is for a desk, answer with the desk.", "My book is lost, what now?", DESKS, False),
        ("If a reader lost a book, answer Heath.", "My book is lost, what now?", DESKS, True),
        ("Wenn ein Brief kommt, antworte Heath.", "My book is lost, what now?", DESKS, True),
        ("If a letter is for a desk, answer with the desk.", "My book is lost, what now?", "", True),
    ],
)
def test_a_small_models_rule_that_repeats_the_instructions_is_dropped(
    rule: str, task: str, instructions: str, stays: bool
) -> None:
    lesson, run = read(rule, task, instructions)
    assert (lesson.text, [x.text for x in lesson.further]) == (
        rule if stays else "",
        ["Letters about fines go to Kite."],
    )
    assert lesson.votes == {"e0": "harmful"}
    assert run.counts[Count.RESTATING_LESSONS] == int(not stays)


def test_a_capable_models_insight_counts_as_a_repetition_only_with_the_same_meaning() -> None:
    detailed = (
        "If a letter is for a desk, answer with the desk, and spell the name as on the sign: Heath, Kite or Moor."
    )
    assert read(detailed, "My book is lost.", DESKS, profile="full")[0].text == detailed
    assert read(DESKS, "My book is lost.", DESKS, profile="full")[0].text == ""


@pytest.mark.parametrize(
    ("rule", "choices", "stays"),
    [
        ("If a reader lost a book, answer as the desk does.", ("Heath", "Kite"), False),
        ("If a reader lost a book, answer Heath or Kite.", ("Heath", "Kite"), False),
        ("If a reader lost a book, answer Heath.", ("Heath", "Kite"), True),
        # Letters mean something else in each task.
        ("If a reader lost a book, look for the costs.", ("A", "B"), True),
        ("If a reader lost a book, look for the costs.", (), True),
    ],
)
def test_a_small_models_rule_for_a_choice_names_an_answer(rule: str, choices: tuple[str, ...], stays: bool) -> None:
    lesson, run = read(rule, "My book is lost.", "", choices)
    assert (lesson.text == rule, run.counts[Count.RULES_WITHOUT_ANSWER]) == (stays, int(not stays))
    capable, _ = read(rule, "My book is lost.", "", choices, "full")
    assert capable.text == rule
