"""What an external agent (a program or a function) is given, and how its answer becomes a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.agents.annotations import read_annotations, read_citations
from practicum.core.errors import AgentError
from practicum.core.types import Step, Task, Trace
from practicum.core.views import View


class _Step(BaseModel):
    kind: str = "message"
    text: str


class _Doubt(BaseModel):
    id: str
    why: str = ""


class _Answer(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    answer: str = ""
    reasoning: str = ""
    used: list[str] = []
    steps: list[_Step] = []
    error: str | None = None
    doubts: list[_Doubt] = []
    missing: str = ""
    note: str = ""


def context_text(view: View) -> str:
    """A view as one text: pages, then earlier turns, then the note."""
    turns = [f"Task: {t.user}\nAnswer: {t.assistant}" for t in view.turns]
    return "\n".join([*view.pages, *turns, *([view.note] if view.note else [])])


def request(task: Task, view: View, instructions: str, place: str) -> dict[str, Any]:
    """The JSON object that a program reads; it never holds the task's target or `meta`. `place` is an idempotency key:
    an attempt that is repeated after a crash has the same place. "annotated" asks for "doubts" and "missing" in the
    answer, "noting" for a "note"."""
    flags = {name: True for name in ("annotated", "noting") if getattr(view, name)}
    return {
        **flags,
        "task": {"id": task.id, "input": task.input},
        "context": context_text(view),
        "instructions": instructions,
        "place": place,
    }


def read_answer(value: object, agent: str, view: View) -> Trace:
    """Turn an answer into a trace; `agent` names it in messages.

    The answer is a text, a number, a `Trace`, or a mapping {"answer", "reasoning"?, "used"?, "steps"?, "error"?}, with
    "doubts" (a list of {"id", "why"}) and "missing" for an annotated view and "note" for a noting one. Ids in "used"
    that the view does not have are dropped and counted. Raises AgentError for anything else.
    """
    if isinstance(value, Trace):
        return replace(value, **read_citations(value.used, view))
    if isinstance(value, str | int | float):
        return Trace(answer=str(value))
    if not isinstance(value, Mapping):
        raise AgentError(f"{agent} returned {type(value).__name__}; it must return a text or a mapping with 'answer'")
    try:
        answer = _Answer.model_validate(dict(value))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "answer"
        raise AgentError(f"{agent} returned an invalid {field!r}: {first['msg']}") from error
    if "answer" not in value and not answer.error:
        keys = ", ".join(map(str, value)) or "nothing"
        raise AgentError(f"{agent} returned no 'answer' (the keys are: {keys})")
    return Trace(
        answer=answer.answer,
        reasoning=answer.reasoning,
        steps=tuple(Step(s.kind, s.text) for s in answer.steps),
        error=answer.error,
        data=read_annotations(answer, view),
        **read_citations(answer.used, view),
    )
