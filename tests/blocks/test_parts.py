"""Rules and solved tasks are shown only where they pay, by attempts with one of them changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scripts import Learned, insight, learned, right, scripted

from practicum.blocks.act.parts import PARTS, pays, record
from practicum.core.edits import Entry
from practicum.models.scripted import Call

SETTINGS = {"rules": "reflected", "memory": False, "scaling": "none"}


def run(folder: Path, agent: Any, tasks: Any = 12, **settings: Any) -> Learned:
    return learned(folder, scripted(agent, insight), tasks, {**SETTINGS, **settings}, "unified")


def misled(call: Call) -> str:
    """An agent that solved tasks lead astray."""
    return "wrong" if call.prompt.turns else right(call)


def test_records_are_hidden_from_the_agent(tmp_path: Path) -> None:
    made = run(tmp_path, misled)
    assert record(made.result.context, "examples") is not None
    assert not [call for call in made.model.calls if PARTS in call.text]


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_part_is_left_out_only_if_harm_leads_by_more_than_chance(helpful: int, harmful: int) -> None:
    entry = Entry(id="e0", section=PARTS, text="rules", helpful=helpful, harmful=harmful)
    assert pays(entry) or harmful > helpful
    assert pays(entry) == ((harmful - helpful) ** 2 <= helpful + harmful or harmful < helpful)
