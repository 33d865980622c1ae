"""Which concepts a text uses."""

from __future__ import annotations

import pytest
from refusals import refused

from practicum.core.types import Score, Task, Trace
from practicum.tasks.load import require_meta
from practicum.tasks.scoring.coverage import concept_coverage
from practicum.tasks.scoring.registry import load_scorer


@pytest.mark.parametrize(
    ("concept", "text"),
    [
        ("dog", "Two dogs, one park."),
        ("run", "She was running."),
        ("run", "He RAN."),
        ("wear", "They wore hats"),
        ("tooth", "white teeth"),
        ("celebrate", "a day of celebrating"),
        ("tie", "tying it"),
        ("policeman", "the policemen\u2019s car"),
        ("shot", "a shot"),
        ("shoot", "he shot"),
        ("ice skate", "with ice skates on"),
    ],
)
def test_a_concept_is_found_in_any_form(concept: str, text: str) -> None:
    assert concept_coverage([concept], text) == Score(1.0, True)


@pytest.mark.parametrize(("concept", "text"), [("dog", "dogma"), ("ice skate", "skate on ice"), ("cat", "")])
def test_other_words_do_not_count(concept: str, text: str) -> None:
    assert concept_coverage([concept], text) == Score(0.0, False, f"0 of 1 concepts are used; missing: {concept}")


def test_the_value_is_the_share_and_the_note_names_what_is_missing() -> None:
    score = concept_coverage(["a", "b", "c", "c", "d"], "d b")
    assert score == Score(0.5, False, "2 of 4 concepts are used; missing: a, c")
    many = concept_coverage([f"word{i}" for i in range(20)], "nothing").note
    assert many.endswith("word11 and 8 more")


def test_the_coverage_scorer() -> None:
    scorer = load_scorer("coverage", None)
    task = Task("t", "use: dog, run", meta={"concepts": ["dog", "run"]})
    assert scorer.score(task, Trace("Dogs run.")) == Score(1.0, True)
    for concepts in (None, [], "dog", [1], ["!"]):
        with refused("tasks.missing_field"):
            require_meta([task, Task("t", "x", meta={"concepts": concepts})], "coverage", "tasks.jsonl")
