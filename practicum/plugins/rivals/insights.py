"""Insights that rise and fall by vote (ExpeL, Zhao et al. 2024, section 4.2): each starts with two votes, gains one if
the model agrees with it, loses one if the model doubts it, and is removed at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.update.append import draft
from practicum.core.bounded import MaxChars, MaxItems, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Update, Vote
from practicum.core.types import Instructions, Lesson
from practicum.core.views import render_full
from practicum.engine.loop import sources_of
from practicum.engine.provenance import traced
from practicum.engine.run import Run

FIRST_VOTES = 2
"""Votes that an insight starts with."""

DOUBTED = 3
"""Votes that an insight loses by one doubt while the list is full (the authors' code)."""

PAIR = "pair"
"""The key in the data of a lesson that shows a failure beside a success at one task."""


class Operation(Output):
    """What is done about one insight."""

    op: Literal["AGREE", "REMOVE", "EDIT", "ADD"]
    id: Annotated[str, MaxChars(8)] = Field(default="", description="the insight meant; empty for ADD")
    text: Annotated[str, MaxChars(200)] = Field(default="", description="the new text, for ADD and EDIT")


class Operations(Output):
    """What is done about insights after some attempts."""

    operations: Annotated[list[Operation], MaxItems(4)]


@dataclass(frozen=True, slots=True)
class VotedInsights:
    """An update: operations on the insights of `section` from the attempts of a step, a call for each pair of a failure
    and a success at one task, then one for each `together` successes. Each call reads the insights that the call before
    it left, without the section `besides`. Beyond `most` insights a doubt weighs more.

    A call that fails, or an operation on an insight that does not exist, changes nothing and is counted.
    """

    compare: Instructions
    generalize: Instructions
    section: str
    besides: str
    together: int
    most: int

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        pairs = [[lesson] for lesson in lessons if lesson.detail and lesson.data.get(PAIR)]
        alone = [lesson for lesson in lessons if lesson.detail and not lesson.data.get(PAIR)]
        successes = [alone[n : n + self.together] for n in range(0, len(alone), self.together)]
        delta = Delta()
        for n, group in enumerate([*pairs, *successes], 1):
            told = self.compare if n <= len(pairs) else self.generalize
            delta = await self._decided(told, group, context, delta, run.at(str(n), sources_of(group)))
        return delta

    async def _decided(
        self, told: Instructions, group: Sequence[Lesson], context: Context, before: Delta, run: Run
    ) -> Delta:
        # What waits for review is in no prompt.
        ready, waiting = run.ready(before)
        tried = draft(context, ready)
        now = tried.outcome.context
        full = len(now.in_section(self.section)) >= self.most
        parts = [f"# Attempt {n}\n{lesson.detail}" for n, lesson in enumerate(group, 1)]
        pages = render_full(now, self.besides).pages or ("(no insights yet)",)
        prompt = told.prompt(run.profile, [*run.agent_instructions, *parts], pages, "# The insights")
        prompt = replace(prompt, closing=FULL if full else "")
        said = await run.try_ask("curator", prompt, Operations, Count.LOST_UPDATES)
        edits = [edit for one in ([] if said is None else said.operations) for edit in self._edits(one, now, full, run)]
        sources, ids = sources_of(group), tuple(lesson.id for lesson in group)
        named = (e if isinstance(e, Add) else replace(e, id=tried.refs.get(e.id, e.id)) for e in edits)
        made = Delta(tuple(replace(edit, sources=sources, lessons=ids) for edit in named))
        # The insights of the calls before this one were read too.
        return tried.delta + traced(made, group, now) + waiting

    def _edits(self, said: Operation, context: Context, full: bool, run: Run) -> list[Add | Update | Vote]:
        id, text = said.id.strip(" []()#"), clean(said.text)
        if said.op == "ADD":
            return [Add(self.section, text, helpful=FIRST_VOTES)] if text else []
        entry = context.get(id)
        if entry is None or entry.section != self.section or (said.op == "EDIT" and text in ("", entry.text)):
            run.count(Count.UNKNOWN_INSIGHTS)
            return []
        match said.op:
            case "AGREE":
                return [Vote(id, helpful=1)]
            case "REMOVE":
                return [Vote(id, harmful=DOUBTED if full else 1)]
            case "EDIT":
                return [Update(id, text), Vote(id, helpful=1)]


FULL = "The list of insights is full: remove or edit insights rather than add any."
