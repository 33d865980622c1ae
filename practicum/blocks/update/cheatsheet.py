"""One sheet that is rewritten after every task (Dynamic Cheatsheet, Suzgun et al. 2025).

The whole memory is one text in one entry. A rewrite loses what it does not repeat, which is how such a context
collapses; the tokens of each step show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from practicum.blocks.act.show import Show, similarities
from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.examples import ATLAS, LAMP, LIBRARY
from practicum.core.bounded import MaxChars, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, Update
from practicum.core.types import Lesson, Prompt, Rollout, Task, Turn
from practicum.core.views import View, count_tokens, render_selected
from practicum.engine.loop import UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.retrieval.search import Filter

SHEET = "cheatsheet"
"""The section of the one entry that is the sheet."""

CASES = "cases"
"""The section of the attempts from which a sheet is written for a task."""


class Sheet(Output):
    """A whole sheet."""

    sheet: Annotated[str, MaxChars(4000)] = Field(description="the whole cheatsheet, written anew")


async def attempts_as_lessons(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """Each attempt as it was, without its outcome: the writer of the sheet judges it, as in the paper."""
    made = (r for r in rollouts if not r.trace.lost)
    return [Lesson(r.place, evidence(r), sources=r.sources, data={"input": r.task.input}) for r in made]


def rewrite_cheatsheet(system: str) -> UpdateSeam:
    """Rewrite the sheet after each step from the old one and the new attempts. If the call fails, which is counted, the
    sheet stays as it is."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        old = sheet(context)
        attempts = [f"# Attempt {n}\n{lesson.text}" for n, lesson in enumerate(lessons, 1)]
        text = await _written(system, old, attempts, run) if lessons else ""
        sources, ids = sources_of(lessons), tuple(lesson.id for lesson in lessons)
        if not text or (old is not None and text == old.text):
            return Delta()
        if old is None:
            return Delta((Add(SHEET, text, sources=sources, lessons=ids),))
        return Delta((Update(old.id, text, sources=sources, lessons=ids),))

    return update


def synthesized_cheatsheet(system: str, k: int) -> Show:
    """A sheet written for each task from the last k attempts at similar tasks (retrieval and synthesis). If there are
    no attempts, or if the call fails, the present sheet is shown."""

    async def show(context: Context, task: Task, run: Run) -> View:
        found = await run.nearest(context, task.input, k, Filter(section=CASES))
        old = sheet(context)
        text = ""
        if found:
            parts = [f"# Attempt at a task like it\n{f.entry.text}" for f in found]
            parts.append(f"# The task to prepare for\n{task.input}")
            text = await _written(system, old, parts, run.at("sheet"))
        if text:
            return View(pages=(text,), tokens=count_tokens(text), retrieved=similarities(found))
        return View() if old is None else render_selected([old])

    return show


async def append_attempts(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Keep every attempt, to be found by its task."""
    return Delta(tuple(Add(CASES, x.text, x.data["input"], sources=x.sources, lessons=(x.id,)) for x in lessons))


def sheet(context: Context) -> Entry | None:
    """The sheet, if there is one."""
    return next(iter(context.in_section(SHEET)), None)


async def _written(system: str, old: Entry | None, parts: Sequence[str], run: Run) -> str:
    before = f"# The cheatsheet so far\n{old.text if old is not None else '(empty)'}"
    prompt = Prompt.from_parts(system, [*run.agent_instructions, before, *parts], turns=WRITTEN)
    said = await run.try_ask("curator", prompt, Sheet, Count.LOST_UPDATES)
    return said.sheet.strip() if said is not None else ""


WRITTEN = (
    Turn(
        f"""\
{LIBRARY}

# The cheatsheet so far
(empty)

# Attempt 1
{LAMP}""",
        '{"sheet":"- A lamp or other equipment that does not work: Blue, not Red."}',
    ),
    Turn(
        f"""\
{LIBRARY}

# The cheatsheet so far
- A lamp or other equipment that does not work: Blue, not Red.

# Attempt 1
{ATLAS}""",
        """\
{"sheet":"- A lamp or other equipment that does not work: Blue, not Red.\\n\
- Keeping a book longer: Green, not Blue."}""",
    ),
)
"""Worked examples about other tasks: a first sheet, and its continuation."""
