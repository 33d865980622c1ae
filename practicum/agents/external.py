"""What an agent that is not ours is given, and how its answer is read: shared by programs and callables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.agents.annotations import remarks
from practicum.core.errors import AgentError
from practicum.core.types import Step, Task, Trace
from practicum.core.views import View


class _Step(BaseModel):
    model_config = ConfigDict(extra="ignore")

    kind: str = "message"
    text: str


class _Doubt(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    why: str = ""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

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
    """What goes out, as JSON: the target and `meta` never do. `place` is an idempotency key: the same attempt, if a
    crash repeats it, comes with the same place. An annotated context asks for "doubts" and "missing", a noting one for
    a "note" to go on from."""
    asked = {name: True for name in ("annotated", "noting") if getattr(view, name)}
    return {
        **asked,
        "task": {"id": task.id, "input": task.input},
        "context": context_text(view),
        "instructions": instructions,
        "place": place,
    }


def read_answer(value: object, who: str, view: View) -> Trace:
    """A trace from a text, a number, a mapping {"answer", "reasoning"?, "used"?, "steps"?, "error"?}, or a Trace.

    Shown an annotated context, it may also tell "doubts" (a list of {"id", "why"}) and what was "missing"; asked for
    one, a "note".
    """
    if isinstance(value, Trace):
        known = tuple(id for id in dict.fromkeys(value.used) if id in view.ids)
        return replace(value, used=known, unknown=len(set(value.used)) - len(known))
    if isinstance(value, str | int | float):
        return Trace(answer=str(value))
    if not isinstance(value, Mapping):
        raise AgentError(f"{who} gave {type(value).__name__}; it must give a text or a mapping with 'answer'")
    try:
        answer = _Answer.model_validate(dict(value))
    except ValidationError as error:
        first = error.errors()[0]
        raise AgentError(
            f"{who} gave a wrong {'.'.join(map(str, first['loc'])) or 'answer'}: {first['msg']}"
        ) from error
    if "answer" not in value and not answer.error:
        raise AgentError(f"{who} gave no 'answer' (it has: {', '.join(map(str, value)) or 'nothing'})")
    known = tuple(id for id in dict.fromkeys(answer.used) if id in view.ids)
    return Trace(
        answer=answer.answer,
        reasoning=answer.reasoning,
        used=known,
        steps=tuple(Step(s.kind, s.text) for s in answer.steps),
        error=answer.error,
        unknown=len(set(answer.used)) - len(known),
        data=remarks(answer, view),
    )
