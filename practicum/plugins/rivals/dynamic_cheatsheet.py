"""Dynamic Cheatsheet: one sheet of strategies, rewritten as a whole before or after each task (Suzgun et al., 2025).

The method has two forms. The cumulative form rewrites the sheet after each step. Retrieval with synthesis rewrites the
sheet before each task, from attempts at similar tasks. The sheet is the text of one entry. A rewrite loses everything
that the new sheet does not repeat, so the context can collapse. docs/learn/methods/reproductions.md lists the
differences from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.clashes import needs
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit, Entry, Update, ordered_union
from practicum.core.types import Attempt, Instructions, Lesson, Task, Turn
from practicum.core.views import View, count_tokens, render_selected
from practicum.core.visible import visible_to_model
from practicum.engine.loop import Method, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import evidence
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.show import answer, full_view, similarities
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.methods.worked_examples import CALENDAR, CLOSED, COAT, HINGE, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.retrieval.search import Filter

SHEET = "cheatsheet"
"""Section of the single entry that holds the sheet."""

CASES = "cases"
"""Section of the stored attempts, from which the sheet for a similar task is written."""


class Settings(Batched, RetrievalSettings):
    form: Literal["cumulative", "synthesis"] = "cumulative"
    """cumulative: rewrite the sheet after each step; synthesis: write a sheet before each task, from attempts at
    similar tasks."""
    k: int = Field(default=3, ge=1)
    """synthesis: number of attempts at similar tasks from which a sheet is written."""

    CLASHES: ClassVar = (needs("k", form="synthesis"),)


def method(s: Settings) -> Method:
    """Attempt tasks with the sheet and then rewrite the sheet, or write a sheet for each task before the attempt."""
    whole = s.form == "cumulative"
    synthesis = Synthesis(s.k)
    act = answer(full_view) if whole else synthesis.act
    return Method(
        name="dynamic_cheatsheet",
        show=full_view if whole else synthesis.show,
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=attempts_as_lessons,
        update=rewrite if whole else keep_attempts_and_sheet,
        accept=always,
        roles=("curator",),
        act_roles=() if whole else ("curator",),
        show_roles=() if whole else ("curator",),
        act_calls=1 if whole else 2,
        costs="one call per step",
    )


class Sheet(Output):
    """A whole sheet, which takes the place of the old one."""

    sheet: Annotated[str, MaxChars(4_000, 40_000)] = Field(description="the whole cheatsheet, written anew")


async def attempts_as_lessons(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Return each attempt unchanged as a lesson: as in the paper, the model that writes the sheet judges the attempt.
    If a sheet was written for the task, the data of the lesson has the sheet, and the lesson has the sources of the
    entries that the sheet was written from."""
    lessons = []
    for attempt in attempts:
        if not attempt.trace.lost:
            used = [entry for id, _ in attempt.retrieved if (entry := context.get(id)) is not None]
            sources = ordered_union([attempt.sources, *(entry.sources for entry in used)])
            data = {"input": attempt.task.input, "sheet": attempt.trace.data.get("sheet", "")}
            lessons.append(Lesson(attempt.place, evidence(attempt), sources=sources, data=data))
    return lessons


async def rewrite(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Rewrite the sheet after a step, from the old sheet and the attempts of the step. A failed call is counted and
    leaves the sheet unchanged."""
    old = sheet(context)
    attempts = [f"# Attempt {n}\n{lesson.text}" for n, lesson in enumerate(lessons, 1)]
    text = await _written(WRITER, old, attempts, run) if lessons else ""
    return Delta(_next_sheet(old, text, lessons))


@dataclass(frozen=True, slots=True)
class Synthesis:
    """Retrieval with synthesis: writes a sheet for each task, from the sheet so far and `k` stored attempts at similar
    tasks. Without stored attempts, or if the call fails, the sheet so far is shown."""

    k: int

    async def show(self, context: Context, task: Task, run: Run) -> View:
        view, _ = await self._written(context, task, run)
        return view

    async def act(self, task: Task, context: Context, run: Run) -> Attempt:
        """Attempt the task with the sheet for this task. The data of the trace has the sheet that was written for this
        task; "" if none was written."""
        view, text = await self._written(context, task, run)

        async def shown(context: Context, task: Task, run: Run) -> View:
            return view

        attempt = await answer(shown)(task, context, run)
        return replace(attempt, trace=replace(attempt.trace, data={**attempt.trace.data, "sheet": text}))

    async def _written(self, context: Context, task: Task, run: Run) -> tuple[View, str]:
        similar = await run.nearest(context, task.input, self.k, Filter(section=CASES))
        old = sheet(context)
        parts = [*(f"# Attempt at a task like it\n{f.entry.text}" for f in similar), f"# The next task\n{task.text}"]
        text = await _written(PREPARER, old, parts, run.at("sheet")) if similar else ""
        view = View() if old is None else render_selected([old])
        if text:
            entries = partial(tuple, [*(f.entry for f in similar), *view.entries()])
            page = visible_to_model(text)
            view = View(pages=(page,), tokens=count_tokens(page), retrieved=similarities(similar), entries=entries)
        return view, text


async def keep_attempts_and_sheet(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Store every attempt, with the input of the attempt's task as the key. Also store the sheet that was written last:
    the next sheets are written from it."""
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


async def _written(instructions: Instructions, old: Entry | None, parts: Sequence[str], run: Run) -> str:
    current = f"# The cheatsheet so far\n{old.text if old is not None else '(empty)'}"
    prompt = instructions.prompt(run.profile, [*run.agent_instructions, current, *parts])
    output = await run.try_ask("curator", prompt, Sheet, Count.LOST_UPDATES)
    return clean(output.sheet) if output is not None else ""


CONTENTS = """\
The cheatsheet holds what will help with later tasks:
- strategies and ways to plan that worked, with the steps, and when to use them
- solutions, formulas and pieces of code that can be used again, written out in full
- facts about the field, the data and the tools that the agent would otherwise have to find out again
- mistakes that were made, how to notice them, and what to do instead

Judge for yourself what in an attempt is right, and how sure that is; check answers before you keep them. Keep with \
each point a count of how often it was of use, and raise it when it was of use again. Prefer what can be used for \
many tasks to what is about one. Leave out nothing that is still of use, and correct what has turned out wrong.

What is not in your new version is lost, so write the whole cheatsheet anew, with everything that is to be carried \
over at full length, in sections, and what matters most first."""

PRICE = "- What is left to pay: the price less the discount; 25% of 80 is 20, so 60 is left."
DATE = "- add_event: write the start as 2026-05-09T14:30; after an error correct it and call again."

WRITTEN = (
    Turn(
        f"{SHOP}\n\n# The cheatsheet so far\n(empty)\n\n# Attempt 1\n{COAT}\n"
        "Reasoning: 25% of 80 is 20, and 80 - 20 = 60.\nAnswer: 60\nFeedback: The answer is right.",
        Sheet(sheet=PRICE).model_dump_json(),
    ),
    Turn(
        f"{CALENDAR}\n\n# The cheatsheet so far\n- Say in one sentence what was done.\n\n# Attempt 1\n{MEETING}",
        Sheet(sheet=f"{DATE}\n- Say in one sentence what was done, once a call has succeeded.").model_dump_json(),
    ),
)
"""Worked examples: a first sheet, and an update of a sheet."""

PREPARED = (
    Turn(
        f"{NOTICES}\n\n# The cheatsheet so far\n- Name the day.\n\n# Attempt at a task like it\n{CLOSED}\n\n"
        "# The next task\nTell visitors that the pool opens at six from Monday on.",
        Sheet(sheet="- At most 12 words: no greeting, no reason, and count them.\n- Name the day.").model_dump_json(),
    ),
    Turn(
        f"{WORKSHOP}\n\n# The cheatsheet so far\n(empty)\n\n# Attempt at a task like it\n{HINGE}\n\n"
        "# The next task\na cleat for a sailing boat",
        Sheet(sheet="- In salt air and salt water: bronze. Steel rusts there.").model_dump_json(),
    ),
)
"""Worked examples: sheets for the next task."""

SMALL = """\
You keep the cheatsheet of an agent: what helps it with the tasks to come. From the attempts you are shown keep \
strategies that work, solutions and facts that can be used again, and mistakes to avoid. Judge for yourself what in \
an attempt is right. Write the whole cheatsheet anew: what is not in your new version is lost, so carry over all that \
is still of use, make it shorter where you can, and put what matters most first."""

WRITER = Instructions(
    full=f"""\
You keep the cheatsheet of an agent, which reads it before each task. You see the cheatsheet so far and the newest \
attempts that were made with it. Bring it up to date.

{CONTENTS}""",
    small=SMALL,
    examples=WRITTEN,
)

PREPARER = Instructions(
    full=f"""\
You keep the cheatsheet of an agent, which reads it before each task. You see the cheatsheet so far, earlier attempts \
at tasks like the next one, and the next task. Bring the cheatsheet up to date from these attempts, and so that it \
helps with the next task as well as it can. Do not solve that task. The tasks after it will be prepared for from this \
cheatsheet too.

{CONTENTS}""",
    small=SMALL,
    examples=PREPARED,
)
