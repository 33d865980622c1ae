"""One attempt of an agent, outside of any run."""

from __future__ import annotations

from typing import Any

from helpers import asynchronous

from practicum.core.context import seed_context
from practicum.core.types import Task, Trace
from practicum.core.views import View, render_full

RULES = seed_context([("rules", "Say the last word."), ("manners", "Be brief.")])
TASK = Task("t1", "Message 1: say word1", "word1", {"secret": "meta"})


class Place:
    place = "step 1/attempt/0.t1"


@asynchronous
async def act(agent: Any, task: Task = TASK, view: View | None = None) -> Trace:
    trace = await agent(task, view or render_full(RULES), Place())
    assert isinstance(trace, Trace)
    return trace
