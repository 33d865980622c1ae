"""Episodes: what is kept of an attempt, and which of it a later task is shown."""

from __future__ import annotations

from pathlib import Path

from helpers import client

import practicum
from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.types import Task
from practicum.models.scripted import Call

HELD = [Task("h0", "Someone stole my bank card", "Cards"), Task("h1", "My parcel did not come", "Parcels")]


def turns(call: Call) -> list[tuple[str, str]]:
    return [(turn.user, turn.assistant) for turn in call.prompt.turns]


def put(thing: str) -> str:
    """Put a thing into the box."""
    if thing == "stone":
        raise ValueError("too heavy")
    return "put: " + "x" * 1000


def test_calls_of_another_agent_are_left_out_of_the_turns(tmp_path: Path) -> None:
    steps = [["action", "ls(-l)"], ["observation", "a b"], ["message", "hm"], ["action", 'put {"thing": "lamp"}']]
    context = initial_context([Add("episodes", "Put in a lamp", data={"answer": "done", "steps": steps})])
    model = client(lambda call: '{"thought": "", "action": {"finish": {"answer": "done"}}}')
    parts = practicum.Parts(clients={"agent": model}, tools=[put], scorer=lambda task, answer: True)
    practicum.run_sync(practicum.evaluate(HELD[:1], context, method="episodes", parts=parts))
    assert turns(model.calls[0]) == [("Put in a lamp", '{"thought":"","action":{"finish":{"answer":"done"}}}')]
