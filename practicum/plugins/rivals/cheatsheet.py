"""One sheet that is rewritten after every task, or before every task (Dynamic Cheatsheet, Suzgun et al. 2025).

The whole memory is one text in one entry. A rewrite loses what it does not repeat, which is how such a context
collapses; the tokens of each step show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field

from practicum.blocks.act.show import Answer, answer, similarities
from practicum.blocks.reflect.evidence import evidence
from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit, Entry, Update, ordered_union
from practicum.core.types import Instructions, Lesson, Rollout, Task
from practicum.core.views import View, count_tokens, render_selected
from practicum.core.visible import visible_to_model
from practicum.engine.loop import UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.retrieval.search import Filter

SHEET = "cheatsheet"
"""The section of the one entry that is the sheet."""

CASES = "cases"
"""The section of the attempts from which a sheet is written for a task."""


class Sheet(Output):
    """A whole sheet, which takes the place of the old one."""

    sheet: Annotated[str, MaxChars(4_000, 40_000)] = Field(description="the whole cheatsheet, written anew")


async def attempts_as_lessons(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """Each attempt as it was: the writer of the sheet judges it, as in the paper. If a sheet was written for the task,
    the lesson has it, and rests on what it was written from too."""
    lessons = []
    for made in rollouts:
        if not made.trace.lost:
            found = [entry for id, _ in made.retrieved if (entry := context.get(id)) is not None]
            sources = ordered_union([made.sources, *(entry.sources for entry in found)])
            data = {"input": made.task.input, "sheet": made.trace.data.get("sheet", "")}
            lessons.append(Lesson(made.place, evidence(made), sources=sources, data=data))
    return lessons


def rewrite_cheatsheet(told: Instructions) -> UpdateSeam:
    """Rewrite the sheet after each step from the old one and the new attempts. If the call fails, which is counted, the
    sheet stays as it is."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        old = sheet(context)
        attempts = [f"# Attempt {n}\n{lesson.text}" for n, lesson in enumerate(lessons, 1)]
        text = await _written(told, old, attempts, run) if lessons else ""
        return Delta(_next_sheet(old, text, lessons))

    return update


def synthesizing(told: Instructions, k: int) -> Answer:
    """Attempts with a sheet that is written for each task, from the sheet so far and the last k attempts at similar
    tasks (retrieval and synthesis). The trace keeps the sheet.

    If there are no attempts, or if the call fails, the sheet so far is shown.
    """

    async def act(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        found = await run.nearest(context, task.input, k, Filter(section=CASES))
        old = sheet(context)
        parts = [*(f"# Attempt at a task like it\n{f.entry.text}" for f in found), f"# The next task\n{task.input}"]
        text = await _written(told, old, parts, run.at("sheet")) if found else ""
        view = View() if old is None else render_selected([old])
        if text:
            read = partial(tuple, [*(f.entry for f in found), *view.entries()])
            page = visible_to_model(text)
            view = View(pages=(page,), tokens=count_tokens(page), retrieved=similarities(found), entries=read)

        async def shown(context: Context, task: Task, run: Run) -> View:
            return view

        rollout = await answer(shown)(task, context, run, note)
        return replace(rollout, trace=replace(rollout.trace, data={**rollout.trace.data, "sheet": text}))

    return act


async def keep_attempts_and_sheet(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Keep every attempt, to be found by its task, and the sheet that was written for the last task, from which the
    next one will be written."""
    cases = (Add(CASES, x.text, x.data["input"], sources=x.sources, lessons=(x.id,)) for x in lessons)
    written = [x for x in lessons if x.data["sheet"]][-1:]
    return Delta((*cases, *(e for x in written for e in _next_sheet(sheet(context), x.data["sheet"], [x]))))


def sheet(context: Context) -> Entry | None:
    return next(iter(context.in_section(SHEET)), None)


def _next_sheet(old: Entry | None, text: str, lessons: Sequence[Lesson]) -> tuple[Edit, ...]:
    sources, ids = sources_of(lessons), tuple(lesson.id for lesson in lessons)
    if not text or (old is not None and text == old.text):
        return ()
    if old is None:
        return (Add(SHEET, text, sources=sources, lessons=ids),)
    return (Update(old.id, text, sources=sources, lessons=ids),)


async def _written(told: Instructions, old: Entry | None, parts: Sequence[str], run: Run) -> str:
    before = f"# The cheatsheet so far\n{old.text if old is not None else '(empty)'}"
    prompt = told.prompt(run.profile, [*run.agent_instructions, before, *parts])
    said = await run.try_ask("curator", prompt, Sheet, Count.LOST_UPDATES)
    return clean(said.sheet) if said is not None else ""
