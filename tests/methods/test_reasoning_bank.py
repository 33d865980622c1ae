"""ReasoningBank with test-time scaling as METHODS section 4 has it, in whole runs: what is asked, kept and chosen."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused

from practicum import methods
from practicum.methods.reasoning_bank import Settings

METHOD = "reasoning_bank"


# ---- what a task costs


# ---- what is shown and kept


# ---- what is reported


# ---- agents of one's own, and traces


# ---- what fails


# ---- resume and determinism


# ---- labels


# ---- forgetting


# ---- settings


@pytest.mark.parametrize(
    ("given", "k", "memories", "attempts"),
    [
        ({"preset": "routine"}, 1, 3, 1),
        ({"preset": "standard"}, 3, 5, 3),
        ({"preset": "critical"}, 5, 10, 5),
        ({"preset": "critical", "k": "2"}, 2, 10, 2),
        ({"preset": "critical", "memories": 7}, 5, 7, 5),
        ({"preset": "critical", "scaling": "none"}, None, 10, 1),
        ({"preset": "critical", "scaling": "sequential"}, None, 10, 6),
        ({"preset": "critical", "scaling": "sequential", "k": "2"}, 2, 10, 3),
        ({"preset": "routine", "scaling": "sequential"}, 0, 3, 1),
        ({"preset": "routine", "scaling": "sequential", "warmth": 0.9, "notes": True}, 0, 3, 1),
        ({"preset": "routine", "scaling": "sequential", "k": 1, "until": "judge"}, 1, 3, 2),
        ({"preset": "routine", "k": 2, "warmth": 0.9}, 2, 3, 2),
    ],
    ids=str,
)
def test_what_is_set_by_hand_goes_before_a_preset(
    given: dict[str, Any], k: int | None, memories: int, attempts: int
) -> None:
    s = Settings.model_validate(given)
    assert (s.k, s.memories, s.attempts) == (k, memories, attempts)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"k": 1}, {"k": 1, "warmth": 0.9}),
        ({"preset": "routine"}, {"preset": "routine", "warmth": 0.9}),
        ({"k": 5}, {"k": 5, "warmth": 0.9, "choose": "judge"}),
        ({"preset": "critical"}, {"preset": "critical", "warmth": 0.9, "choose": "judge"}),
        ({"scaling": "sequential", "k": 1, "warmth": 0.9}, {"scaling": "sequential", "k": 1, "warmth": 0.9}),
    ],
    ids=str,
)
def test_what_a_run_was_set_to_for_several_attempts_goes_where_one_is_asked_for(
    given: dict[str, Any], left: dict[str, Any]
) -> None:
    made = methods.override_settings(METHOD, {"k": 3, "warmth": 0.9, "choose": "judge"}, given)
    assert made == left
    methods.read_settings(METHOD, made)
    with refused("settings.invalid"):
        methods.read_settings(
            METHOD, methods.override_settings(METHOD, {"k": 3, "warmth": 0.9}, {"k": 1, "choose": "agreement"})
        )


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"k": 2}, {"until": "judge", "notes": True}),
        ({"scaling": "parallel"}, {}),
        ({"preset": "routine"}, {"notes": True}),
        ({"preset": "critical"}, {"until": "judge", "notes": True}),
        ({"until": "k"}, {"k": 3, "notes": True}),
    ],
    ids=str,
)
def test_what_ended_the_passes_of_a_run_goes_where_there_are_none(given: dict[str, Any], left: dict[str, Any]) -> None:
    of_run = {"scaling": "sequential", "k": 3, "until": "judge", "notes": True}
    made = methods.override_settings(METHOD, of_run, given)
    assert made == {"scaling": "sequential", **left, **given}
    methods.read_settings(METHOD, made)
