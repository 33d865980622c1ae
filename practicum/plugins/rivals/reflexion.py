"""Reflexion: after a failure the agent reflects in words, and reads its reflections when it tries the task again (Shinn
et al., 2023, section 3).

It learns from success and failure, not from the right answer. docs/methods/reflexion.md says what differs from the
paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field

from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Entry
from practicum.core.types import Attempt, Feedback, Instructions, Lesson, Round, Task, Turn
from practicum.core.views import View, render_selected
from practicum.engine.loop import Batch, History, Method, SampleSeam, ShowSeam, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.curate import votes
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import KIND, RULE, evidence, judged_by_outcome, per_trace
from practicum.methods.blocks.sample import shuffled, stream
from practicum.methods.blocks.show import answer, with_memories
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.methods.worked_examples import CALENDAR, CLOSED, COAT, MEETING, NOTICES, SHOP, written
from practicum.tasks.stored import ids, picked

SECTION = "reflections"
"""The section of reflections."""


class Settings(Batched, RetrievalSettings):
    epochs: int = Field(default=3, ge=1)
    """The most trials of each task (offline); a task that was solved is not tried again."""
    batch: int = Field(default=8, ge=1)
    """Tasks attempted at once. Reflections are about their own task, so a large batch loses nothing."""
    keep: int = Field(default=3, ge=1)
    """The number of reflections kept for each task: the last ones (paper: 1 to 3)."""
    k: int = Field(default=3, ge=1)
    """The number of reflections shown for a task that has none of its own: those of the most similar tasks."""


def method(s: Settings) -> Method:
    """Attempt, reflect on failures, try again in the next epoch."""
    show = own_or_similar(s.k)
    act = answer(show)
    return Method(
        name="reflexion",
        show=show,
        sample=stream(s.batch) if s.online else trials(s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=per_trace(remembering, "failures"),
        update=partial(keep_reflections, s.keep),
        accept=always,
        roles=("reflector",),
        costs="a reflection for each failure",
    )


def trials(most: int, batch: int) -> SampleSeam:
    """Up to `most` trials of each task, until it is solved. Each trial goes through the tasks that are left, shuffled
    anew, in steps of `batch` tasks."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        solved, read = set[str](), 0
        for trial in range(1, most + 1):
            order = shuffled(tasks, trial, run)
            left = picked(order, [at for at, id in enumerate(ids(order)) if id not in solved]) if solved else order
            for start in range(0, len(left), batch):
                yield Batch(tuple(left[start : start + batch]), trial)
                solved.update(r.task.id for step in history[read:] for r in step.attempts if r.feedback.success is True)
                read = len(history)

    return sample


def own_or_similar(k: int) -> ShowSeam:
    """The reflections on the task itself or, if there are none, the `k` that were made on the most similar tasks."""
    similar = with_memories(k, SECTION)

    async def show(context: Context, task: Task, run: Run) -> View:
        found = own(context, task)
        return render_selected(found) if found else await similar(context, task, run)

    return show


def own(context: Context, task: Task) -> list[Entry]:
    """The reflections on a task, oldest first. Its input identifies it: in another file another task has its id."""
    return [entry for entry in context.in_section(SECTION) if entry.key == task.input]


async def remembering(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
    """Reflect on a failure after reading the earlier reflections on the task. The lesson has the task by which it will
    be found."""
    before = [Round(Lesson(e.id, e.text)) for e in own(context, attempt.task)]
    lesson = await by_self(attempt, context, [*before, *earlier], run)
    return lesson and replace(lesson, data={**lesson.data, "task": attempt.task.input})


async def keep_reflections(keep: int, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Add each reflection under its task, and delete the oldest ones of the task."""
    telling = [lesson for lesson in lessons if lesson.text]
    known: dict[str, list[Entry]] = defaultdict(list)
    for entry in context.in_section(SECTION):
        known[entry.key].append(entry)
    about = dict.fromkeys(lesson.data["task"] for lesson in telling)
    old = (entry for task in about for entry in known[task][: max(len(known[task]) + 1 - keep, 0)])
    # What waits for review takes no older one's place.
    why = "older reflections are forgotten"
    gone = [
        Delete(entry.id, sources_of(x for x in telling if x.data["task"] == entry.key), reason=why) for entry in old
    ]
    new = [Add(SECTION, x.text, x.data["task"], sources=x.sources, lessons=(x.id,)) for x in telling]
    return votes(lessons) + Delta((*gone, *new))


class SelfReflection(Output):
    """What an agent says to itself after a failed attempt, before it tries again."""

    reflection: Annotated[str, MaxChars(2_000)] = Field(
        description="what went wrong, why, and what to do the next time"
    )

    SHORT: ClassVar = {
        "kind": KIND, "diagnosis": (Annotated[str, MaxChars(100)], Field(description="what probably went wrong")),
        "insight": RULE,
    }  # fmt: skip

    @classmethod
    def from_short(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"reflection": values["insight"]}


def without_target(attempt: Attempt) -> Attempt:
    """The same attempts, with feedback that says whether they succeeded and not what would have been right. What an
    environment or a judge says stays."""
    rounds = (replace(one, feedback=one.feedback and _outcome(one.feedback)) for one in attempt.rounds)
    return replace(attempt, feedback=_outcome(attempt.feedback), rounds=tuple(rounds))


def _outcome(known: Feedback) -> Feedback:
    # The note of a scorer that knows the right answer may tell it.
    if known.target is None:
        return known
    return Feedback(known.success, f"The answer is {'right' if known.success else 'wrong'}.")


async def by_self(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
    """Ask the reflector about one attempt, without its right answer. It reads its earlier reflections on the task. A
    reflection that fails or cannot be parsed is None, and counted."""
    tried = evidence(without_target(attempt))
    before = "\n\n".join(one.lesson.text for one in earlier if one.lesson.text)
    said_before = [f"# Your earlier reflections on this task\n{before}"] if before else []
    prompt = SELF.prompt(run.profile, [*run.agent_instructions, *said_before, f"# The attempt\n{tried}"])
    said = await run.try_ask("reflector", prompt, SelfReflection, Count.LOST_REFLECTIONS)
    if said is None:
        return None
    return Lesson(run.place, clean(said.reflection), tried, judged_by_outcome(attempt), attempt.sources)


def _example(told: str, attempt: str, kind: str, diagnosis: str, insight: str) -> Turn:
    said = {"kind": kind, "diagnosis": diagnosis, "insight": insight}
    return Turn(f"{told}\n\n# The attempt\n{attempt}", written(said))


REFLECTED = (
    _example(
        SHOP, f"{COAT}\nAnswer: 20\nFeedback: The answer is wrong.",
        "a price after a discount", "20 is the discount, and what is left to pay was asked for",
        "If what is left to pay is asked for, subtract the discount from the price.",
    ),
    _example(
        CALENDAR, MEETING, "an event for the calendar", "the call failed because of the form of its start",
        "If a call returns an error about its start, write it as the error says and call again.",
    ),
    _example(
        NOTICES, CLOSED, "a notice with a limit of words", "greeting and reason took most of the words",
        "If a notice may have 12 words, leave out greeting and reason, and count the words.",
    ),
)  # fmt: skip
"""Reflections on three failures whose right answers are not known."""

SELF = Instructions(
    full="""\
You attempted a task and failed, and you will try it again. You see the task, what you did step by step, and what \
came of it. You are not told what would have been right, so find it out from the attempt itself.

Go through what you did. Find the step at which it went wrong, say why, and check it against the task and the \
observations, not against what you believed then. Then make a plan for the next try: what to do differently, in which \
order, and how to notice in time that it goes wrong again. Be concrete: name the calculation, the call with its \
arguments, the source or the condition that was overlooked. Where you have reflected on this task before, say why \
that did not help, and do not repeat it.

The next try begins anew and knows nothing of this one but your reflection, so it has to be understood by itself. It \
may have several lines, and up to 2,000 characters.""",
    small="""\
You failed at a task and will try it again. Reflect on what you did, so that you do better then. You are not told \
what would have been right.

kind: what kind of task it is. diagnosis: where you probably went wrong, and why. insight: what to do the next time, \
in one sentence: "If ..., ...".""",
    examples=REFLECTED,
)
