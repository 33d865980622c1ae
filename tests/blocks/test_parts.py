"""Rules and solved tasks are shown only where they pay, by attempts with one of them changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers import context_bytes
from hypothesis import given
from hypothesis import strategies as st
from scripts import Learned, insight, learned, resumed, right, scripted

from practicum.blocks.act.parts import PARTS, pays, record
from practicum.core.edits import Entry
from practicum.models.scripted import Call

SETTINGS = {"rules": "reflected", "memory": False, "scaling": "none"}


def run(folder: Path, agent: Any, tasks: Any = 12, **settings: Any) -> Learned:
    return learned(folder, scripted(agent, insight), tasks, {**SETTINGS, **settings}, "unified")


def misled(call: Call) -> str:
    """An agent that solved tasks lead astray."""
    return "wrong" if call.prompt.turns else right(call)


def helped(call: Call) -> str:
    """An agent that needs solved tasks."""
    return right(call) if call.prompt.turns else "wrong"


def counts(made: Learned, part: str) -> tuple[int, int]:
    entry = record(made.result.context, part)
    assert entry is not None
    return entry.helpful, entry.harmful


def test_solved_tasks_that_harm_are_left_out(tmp_path: Path) -> None:
    made = run(tmp_path, misled, 24)
    helpful, harmful = counts(made, "examples")
    assert helpful == 0 < harmful
    assert not pays(record(made.result.context, "examples"))
    # The comparison goes on, and the attempts with them stand in no report: the last tasks were solved.
    with_them = [bool(call.prompt.turns) for call in made.model.calls if call.role == "agent"]
    assert any(with_them[-8:])
    assert all(r.score and r.score.value == 1 for r in made.rollouts[-3:])


def test_solved_tasks_that_help_stay(tmp_path: Path) -> None:
    made = run(tmp_path, helped)
    helpful, harmful = counts(made, "examples")
    assert harmful == 0 < helpful
    assert pays(record(made.result.context, "examples"))


def test_a_task_that_is_among_the_solved_ones_is_not_compared(tmp_path: Path) -> None:
    once, twice = (run(tmp_path / str(epochs), helped, epochs=epochs) for epochs in (1, 2))
    assert counts(twice, "examples") == counts(once, "examples")


def test_records_are_hidden_from_the_agent(tmp_path: Path) -> None:
    made = run(tmp_path, misled)
    assert record(made.result.context, "examples") is not None
    assert not [call for call in made.model.calls if PARTS in call.text]


def test_without_weighing_each_task_is_attempted_once_and_all_is_shown(tmp_path: Path) -> None:
    made = run(tmp_path, right, 4, weigh=False)
    assert made.counts == [1] * 4
    assert not made.result.context.in_section(PARTS)


def test_a_task_whose_parts_are_empty_is_attempted_once(tmp_path: Path) -> None:
    assert run(tmp_path, right, 3).counts == [1, 2, 2]


def test_a_comparison_is_resumed_after_any_kill(tmp_path: Path) -> None:
    made = run(tmp_path, misled, 3)
    again = resumed(made, scripted(misled, insight))
    assert again.model.calls == []
    assert context_bytes(again.result) == context_bytes(made.result)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_part_is_left_out_only_if_harm_leads_by_more_than_chance(helpful: int, harmful: int) -> None:
    entry = Entry(id="e0", section=PARTS, text="rules", helpful=helpful, harmful=harmful)
    assert pays(entry) or harmful > helpful
    assert pays(entry) == ((harmful - helpful) ** 2 <= helpful + harmful or harmful < helpful)
