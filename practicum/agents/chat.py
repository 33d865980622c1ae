"""The plain agent: one model call, with the context in its prompt.

Prompt order: the run's instructions, how to use the playbook, the playbook's pages, earlier turns, the task.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

from practicum.agents.annotations import ANNOTATING, CITING, NOTING, read_annotations, read_citations
from practicum.agents.base import AgentRun
from practicum.core.bounded import MaxChars, Output
from practicum.core.types import Prompt, Task, Trace, Turn
from practicum.core.views import View


@dataclass(frozen=True)
class ChatAgent:
    """Answers with one model call. `choices`, if any, are the only answers its schema allows; `reasoning` asks for a
    short line of thought before the answer."""

    instructions: str = ""
    choices: tuple[str, ...] = ()
    reasoning: bool = False
    journaled: bool = field(default=False, init=False)
    max_turns: int = field(default=1, init=False)
    identity: str = field(default="chat", init=False)

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        form = _form(self.choices, self.reasoning, view.citable, view.annotated, view.noting)
        turns = view.turns
        if form is not None:
            turns = tuple(Turn(t.user, json.dumps({"answer": t.assistant}, ensure_ascii=False)) for t in turns)
        usage = ANNOTATED if view.annotated else USING if view.citable else ""
        prompt = first_prompt(task, view, turns, self.instructions, usage)
        if form is None:
            return Trace(answer=(await run.ask_text("agent", prompt)).strip())
        reply: Any = await run.ask("agent", prompt, form)
        return Trace(
            answer=reply.answer,
            reasoning=getattr(reply, "reasoning", ""),
            data=read_annotations(reply, view),
            **read_citations(getattr(reply, "used", ()), view),
        )


def first_prompt(task: Task, view: View, turns: tuple[Turn, ...], *system: str) -> Prompt:
    """The prompt of an attempt's first call; `system` are the parts of the instructions, any of which may be empty."""
    user = f"{task.input}\n\n{view.note}" if view.note else task.input
    return Prompt("\n\n".join(filter(None, system)), user, view.pages, turns)


@cache
def _form(
    choices: tuple[str, ...], reasoning: bool, citing: bool, annotated: bool, noting: bool
) -> type[BaseModel] | None:
    """The form of an answer; None if it may be plain text. Entries are cited before the answer that rests on them."""
    if not (choices or reasoning or citing or noting):
        return None
    fields: dict[str, Any] = {}
    if citing:
        fields |= CITING
    if annotated:
        fields |= ANNOTATING
    if reasoning:
        fields["reasoning"] = (Annotated[str, MaxChars(600)], Field(description="a short line of thought"))
    if noting:
        fields |= NOTING
    fields["answer"] = (Literal[choices] if choices else str, Field(description="the answer to the task"))
    return create_model("answer", __base__=Output, **fields)


USING = """\
Below is your playbook, learned from earlier tasks: one entry a line, "[id] (section) text". \
Before you answer, find the entries that apply to the task, list their ids in "used" (none if none applies), \
and follow them."""

ANNOTATED = """\
Below is your playbook, learned from earlier tasks, one <entry> each. Work on the task as you always would, and say \
what you made of the playbook. First list in "used" the ids of the entries you consulted. In "doubts" name entries you \
were not sure about, and why: unclear, does not quite fit, against another one. In "missing" say what guidance would \
have helped and is not there. Then answer."""
