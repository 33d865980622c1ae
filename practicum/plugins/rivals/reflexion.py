"""Reflexion: after a failure, the agent writes a reflection on the task; when the agent tries the task again, it reads
the stored reflections on this task (Shinn et al., 2023, section 3).

Learns from success and failure, not from the right answer. docs/learn/methods/reproductions.md lists the differences
from the paper.
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
"""Section of reflections."""


class Settings(Batched, RetrievalSettings):
    epochs: int = Field(default=3, ge=1)
    """Maximum number of trials per task (offline); solved tasks are not tried again."""
    batch: int = Field(default=8, ge=1)
    """Number of tasks per step. A reflection is used only for its task, so a large batch has no disadvantage."""
    keep: int = Field(default=3, ge=1)
    """Number of newest reflections kept for each task (paper: 1 to 3)."""
    k: int = Field(default=3, ge=1)
    """Number of reflections on similar tasks that are shown for a task that has no reflections."""


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
    """Return a sample seam with up to `most` trials of each task; a solved task is not tried again. Each trial goes
    through all unsolved tasks, shuffled again, in steps of `batch` tasks."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        solved, read = set[str](), 0
        for trial in range(1, most + 1):
            order = shuffled(tasks, trial, run)
            unsolved = picked(order, [at for at, id in enumerate(ids(order)) if id not in solved]) if solved else order
            for start in range(0, len(unsolved), batch):
                yield Batch(tuple(unsolved[start : start + batch]), trial)
                solved.update(r.task.id for step in history[read:] for r in step.attempts if r.feedback.success is True)
                read = len(history)

    return sample


def own_or_similar(k: int) -> ShowSeam:
    """Return a show seam that shows the reflections on the task itself or, if no such reflection exists, `k`
    reflections on the most similar tasks."""
    similar = with_memories(k, SECTION)

    async def show(context: Context, task: Task, run: Run) -> View:
        reflections = own(context, task)
        return render_selected(reflections) if reflections else await similar(context, task, run)

    return show


def own(context: Context, task: Task) -> list[Entry]:
    """Return the reflections on a task, oldest first. Tasks are matched by input, because ids repeat across files."""
    return [entry for entry in context.in_section(SECTION) if entry.key == task.input]


async def remembering(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
    """Reflect on a failure after reading the earlier reflections on the task. The data of the lesson has the input of
    the task, as the key for retrieval."""
    previous = [Round(Lesson(e.id, e.text)) for e in own(context, attempt.task)]
    lesson = await by_self(attempt, context, [*previous, *earlier], run)
    return lesson and replace(lesson, data={**lesson.data, "task": attempt.task.input})


async def keep_reflections(keep: int, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Add each reflection under its task, and delete the oldest reflections on the task, so that `keep` remain."""
    nonempty = [lesson for lesson in lessons if lesson.text]
    by_task: dict[str, list[Entry]] = defaultdict(list)
    for entry in context.in_section(SECTION):
        by_task[entry.key].append(entry)
    tasks = dict.fromkeys(lesson.data["task"] for lesson in nonempty)
    old = (entry for task in tasks for entry in by_task[task][: max(len(by_task[task]) + 1 - keep, 0)])
    # The deletion has the sources of the new reflection. If the new reflection waits for review, so does the deletion.
    reason = "older reflections are forgotten"
    deletes = [
        Delete(entry.id, sources_of(x for x in nonempty if x.data["task"] == entry.key), reason=reason) for entry in old
    ]
    new = [Add(SECTION, x.text, x.data["task"], sources=x.sources, lessons=(x.id,)) for x in nonempty]
    return votes(lessons) + Delta((*deletes, *new))


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
    """Return the attempt without the right answer. Feedback that contains the right answer is replaced by feedback that
    states only success or failure. Feedback of an environment or a judge is unchanged."""
    rounds = (replace(each, feedback=each.feedback and _outcome(each.feedback)) for each in attempt.rounds)
    return replace(attempt, feedback=_outcome(attempt.feedback), rounds=tuple(rounds))


def _outcome(feedback: Feedback) -> Feedback:
    # The note of a scorer that knows the right answer may contain the right answer.
    if feedback.target is None:
        return feedback
    return Feedback(feedback.success, f"The answer is {'right' if feedback.success else 'wrong'}.")


async def by_self(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
    """Ask the reflector about one attempt, without the right answer to the task. The reflector also reads the earlier
    reflections on the task. Return None if the call fails or its output is invalid; both are counted."""
    shown = evidence(without_target(attempt))
    texts = "\n\n".join(each.lesson.text for each in earlier if each.lesson.text)
    earlier_part = [f"# Your earlier reflections on this task\n{texts}"] if texts else []
    prompt = SELF.prompt(run.profile, [*run.agent_instructions, *earlier_part, f"# The attempt\n{shown}"])
    output = await run.try_ask("reflector", prompt, SelfReflection, Count.LOST_REFLECTIONS)
    if output is None:
        return None
    return Lesson(run.place, clean(output.reflection), shown, judged_by_outcome(attempt), attempt.sources)


def _example(instructions: str, attempt: str, kind: str, diagnosis: str, insight: str) -> Turn:
    fields = {"kind": kind, "diagnosis": diagnosis, "insight": insight}
    return Turn(f"{instructions}\n\n# The attempt\n{attempt}", written(fields))


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
"""Worked examples: reflections on three failures with unknown right answers."""

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
