"""MAEL for capable models: what agents exchange reaches the others, and the pools, word for word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import Learned, shape
from teams import divided, learned, team

from practicum.core.types import Task
from practicum.models.scripted import Call

RULE = "3. Months are numbers from 1 to 12; each other number is refused with ValueError and named in the text.\n"
PART = f"""\
Write the store of measurements as a module.

Interface, which the report relies on:
    class Store:
        def add(self, station: str, month: int, mm: float) -> None
        def total(self, station: str) -> float

1. A second value for the same station and month replaces the first.
2. `total` of an unknown station raises KeyError.
{RULE * 12}""".strip()
REPORT = "Write the report:\n\n- one line for each station,\n- sorted by total"
PRINTED = "for station in stations:\n    print(station)"
CODE = "```python store.py\nclass Store:" + "".join(
    f"\n    def month_{n}(self):\n\n        return [row for row in self.rows if row.month == {n}]" for n in range(120)
)
"""Over 9,000 characters; its fence is not closed."""
MENDED = f"{CODE}\n```"
FEEDBACK = """\
Two faults:

1. `total` adds replaced values twice. Keep a dict:

       self.values[station, month] = mm

2. The fence is never closed: end the block with ```."""


def solution(call: Call) -> str:
    """Of the whole task, or of a part."""
    if not call.prompt.system.startswith("You are one of a team"):
        return "word1"
    if REPORT in call.prompt.user:
        return PRINTED
    return MENDED if FEEDBACK in call.prompt.user else CODE


def critique(call: Call) -> dict[str, Any]:
    reviewed = call.prompt.user.rpartition("# Its solution\n")[2]
    return {"feedback": FEEDBACK, "adequate": reviewed.startswith((MENDED, PRINTED))}


def planned(*parts: str) -> dict[str, Any]:
    return {"parts": [{"text": part, "needs": []} for part in parts]}


CAPABLE = team(**{
    "Ability": lambda call: {"reason": "two modules", "alone": False}, "Plan": lambda call: planned(PART, REPORT),
    "Critique": critique, "Quality": lambda call: {"reason": "as asked", "points": 8}, "": solution,
})  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    later = [Task("later", "Message 9: say word1", "word1")]
    return learned(tmp_path_factory.mktemp("full"), divided(1), {}, CAPABLE, test=later, profile="full")


def calls(run: Learned, *, tested: bool = False) -> list[Call]:
    """The agents' calls while learning, or those in the test."""
    made = sum(run.counts)
    return [call for call in (run.model.calls[made:] if tested else run.model.calls[:made]) if call.role == "agent"]


def test_parts_feedback_and_solutions_are_neither_cut_nor_joined_to_one_line(run: Learned) -> None:
    asked = [call.prompt.user for call in calls(run) if not shape(call)]
    *parts, again, whole = sorted(asked, key=lambda user: ("# What" in user, "# What came back" in user))
    assert {user.partition("\n\n# Now")[0] for user in parts} == {f"# Task\n{PART}", f"# Task\n{REPORT}"}
    assert again.startswith(f"# Task\n{PART}\n\n# Your solution so far\n{CODE}\n\n# What is said of it\n{FEEDBACK}")
    assert f"## Part 1: {PART}\n{MENDED}\n\n## Part 2: {REPORT}\n{PRINTED}" in whole


def test_pools_hold_what_was_given_and_done_word_for_word(run: Learned) -> None:
    known = [(e.data["kind"], e.key, e.text) for e in run.result.context]
    assert ("solve", PART, CODE) in known
    assert ("solve", REPORT, PRINTED) in known
    assert [text for kind, _, text in known if kind == "critique"] == [FEEDBACK, "adequate", "adequate"]


def test_experience_is_shown_as_it_was_and_there_are_no_worked_examples(run: Learned) -> None:
    assert not [turn for call in calls(run) for turn in call.prompt.turns]
    [turn] = next(
        call.prompt.turns for call in calls(run, tested=True) if call.prompt.user.startswith(f"# Task\n{PART}")
    )
    assert f"# Task\n{PART}\n\n# Now\n" in turn.user
    assert turn.assistant == CODE


def test_no_form_bounds_what_is_written(run: Learned) -> None:
    schemas = json.dumps([call.schema for call in run.model.calls if call.schema])
    assert not [word for word in ("maxLength", "maxItems", "pattern") if word in schemas]


@pytest.mark.parametrize(("profile", "solved"), [("full", 12), ("small", 8)])
def test_a_capable_model_may_name_any_number_of_parts(tmp_path: Path, profile: str, solved: int) -> None:
    def plan(call: Call) -> dict[str, Any]:
        return planned(*(f"part {n} of Message 1" for n in range(12)))

    def accept(call: Call) -> dict[str, Any]:
        return {"feedback": "", "adequate": True}

    run = learned(tmp_path, divided(1), {}, team(Plan=plan, Critique=accept), profile=profile)
    assert [m["kind"] for m in run.rollouts[0].trace.data["moves"]].count("solve") == solved
