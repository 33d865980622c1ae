"""Insights that rise and fall by vote (ExpeL, Zhao et al. 2024, section 4.2): each starts with two votes, gains one if
the model agrees with it, loses one if the model doubts it, and is removed at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.reflect.examples import LAMP
from practicum.core.bounded import MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit, Update, Vote
from practicum.core.types import Lesson, Prompt, Turn
from practicum.core.views import render_full
from practicum.engine.loop import UpdateSeam, sources_of
from practicum.engine.run import Run

FIRST_VOTES = 2
"""Votes that an insight starts with."""


class Operation(Output):
    """What is done about one insight."""

    op: Literal["AGREE", "REMOVE", "EDIT", "ADD"]
    id: Annotated[str, MaxChars(8)] = Field(default="", description="the insight meant; empty for ADD")
    text: Annotated[str, MaxChars(200)] = Field(default="", description="the new text, for ADD and EDIT")


class Operations(Output):
    """What is done about insights after some attempts."""

    operations: Annotated[list[Operation], MaxItems(4)]


def vote_on_insights(system: str, section: str, besides: str) -> UpdateSeam:
    """Operations on the insights from this step's attempts, in one call, which is not shown the section `besides`. A
    call that fails, or an operation on an insight that does not exist, changes nothing and is counted."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        telling = [lesson for lesson in lessons if lesson.detail]
        if not telling:
            return Delta()
        tried = [f"# Attempt {n}\n{lesson.detail}" for n, lesson in enumerate(telling, 1)]
        pages = render_full(context, without=besides).pages or ("(no insights yet)",)
        prompt = Prompt.from_parts(f"{system}\n\n# The insights", tried, pages, DECIDED)
        said = await run.try_ask("curator", prompt, Operations, Count.LOST_UPDATES)
        if said is None:
            return Delta()
        sources = sources_of(telling)
        ids = tuple(lesson.id for lesson in telling)
        edits = [edit for operation in said.operations for edit in _edits(operation, section, context, run)]
        return Delta(tuple(replace(edit, sources=sources, lessons=ids) for edit in edits))

    return update


def _edits(said: Operation, section: str, context: Context, run: Run) -> list[Edit]:
    id, text = said.id.strip(" []()#"), " ".join(said.text.split())
    if said.op == "ADD":
        return [Add(section, text, helpful=FIRST_VOTES)] if text else []
    entry = context.get(id)
    if entry is None or entry.section != section or (said.op == "EDIT" and text in ("", entry.text)):
        run.count(Count.UNKNOWN_INSIGHTS)
        return []
    match said.op:
        case "AGREE":
            return [Vote(id, helpful=1)]
        case "REMOVE":
            return [Vote(id, harmful=1)]
        case "EDIT":
            return [Update(id, text), Vote(id, helpful=1)]


DECIDED = (
    Turn(
        f"""\
# Attempt 1
{LAMP}

Try 2, after: If a visitor reports that a lamp does not work, answer Blue.
Task: hi, the reading lamp at my seat keeps flickering, it drives me mad
Answer: Blue
Feedback: The answer is right.""",
        """\
{"operations":[{"op":"ADD","id":"",\
"text":"If a visitor reports that a lamp or other equipment does not work, answer Blue."}]}""",
    ),
)
"""A worked example from elsewhere."""
