"""ExpeL: experience is gathered by trying again, insights are drawn from it and voted on, and a new task is attempted
with the insights and the most similar solved tasks (Zhao et al., 2024, section 4).

It learns from success and failure, not from the right answer. docs/methods/expel.md says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, joined, rest, similar_turns
from practicum.blocks.attempt.attempt import once, refined
from practicum.blocks.reflect.evidence import evidence, solved_as
from practicum.blocks.reflect.examples import CALENDAR, CLOSED, COAT, NOTICES, SHOP, WORKSHOP
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import append, newest_per_key, pruned
from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Instructions, Lesson, Rollout, Turn
from practicum.engine.loop import Method, UpdateSeam
from practicum.engine.run import Run
from practicum.methods.episodes import EPISODES
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.plugins.rivals.insights import PAIR, Operation, Operations, VotedInsights
from practicum.plugins.rivals.self_reflection import SELF, by_self, without_target

INSIGHTS = "rules"


class Settings(Batched, RetrievalSettings):
    batch: int = Field(default=8, ge=1)
    """Tasks attempted at once before the context changes."""
    rounds: int = Field(default=3, ge=1)
    """The most retries of a failed task, each with a reflection (paper: 3)."""
    together: int = Field(default=8, ge=1)
    """Successes at different tasks that one call compares (paper: 8)."""
    insights: int = Field(default=20, ge=1)
    """The number of insights from which on the list counts as full, so that a doubt weighs more (authors' code: 20)."""
    k: int = Field(default=2, ge=1)
    """The number of solved tasks shown: the most similar ones (paper: 2 to 6)."""


def method(s: Settings) -> Method:
    """Retry failures, draw insights, show insights and solved tasks."""
    act = answer(joined(rest(EPISODES), similar_turns(s.k, EPISODES)))
    insights = pruned(VotedInsights(COMPARE, GENERALIZE, INSIGHTS, EPISODES, s.together, s.insights), 0, EPISODES)
    return Method(
        name="expel",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(refined(act, by_self(SELF), s.rounds, "retry")),
        reflect=solved_and_compared,
        update=both(insights, newest_per_key(append(EPISODES))),
        accept=always,
        roles=("reflector", "curator"),
        costs="retries, reflections, a call for each failure that was mended and for each few successes",
    )


def both(first: UpdateSeam, second: UpdateSeam) -> UpdateSeam:
    """The edits of two updates from the same lessons."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return await first(lessons, context, run) + await second(lessons, context, run)

    return update


async def solved_and_compared(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """For each task that was solved at last, a lesson with its answer and the successful try, and before it one with
    the failed tries beside that one, if there were any. A task that was never solved teaches nothing."""
    lessons = []
    for rollout in map(without_target, rollouts):
        tries = [rollout, *_retries(rollout)]
        solved = next((one for one in tries if one.feedback.success is True and not one.trace.lost), None)
        if solved is None:
            continue
        failed = [one for one in tries if one.feedback.success is False and not one.trace.lost]
        if failed:
            shown = [*(f"Failed:\n{evidence(one)}" for one in failed), f"Succeeded:\n{evidence(solved)}"]
            pair = Lesson(f"{rollout.place}/pair", "", "\n\n".join(shown), sources=rollout.sources, data={PAIR: True})
            lessons.append(pair)
        data = {**solved_as(solved.trace), "good": True}
        lessons.append(Lesson(rollout.place, rollout.task.input, evidence(solved), sources=rollout.sources, data=data))
    return lessons


def _retries(rollout: Rollout) -> list[Rollout]:
    """The tries after the first one."""
    made = [(one.trace, one.feedback) for one in rollout.rounds]
    return [replace(rollout, trace=t, feedback=f) for t, f in made if t is not None and f is not None]


OPERATIONS = """\
Decide on up to four operations, at most one for each insight:

AGREE: what you see bears an insight out; give its id.
REMOVE: an insight is contradicted, or says what another one says; give its id.
EDIT: an insight should become more general, more exact or clearer; give its id and the whole new text.
ADD: something that no insight says yet; give its text."""


def _example(told: str, insights: str, attempt: str, **said: str) -> Turn:
    decided = Operations(operations=[Operation.model_validate(said)])
    return Turn(f"# The insights\n{insights}\n\n{told}\n\n# Attempt 1\n{attempt}", decided.model_dump_json())


COMPARED = (
    _example(
        SHOP, "(no insights yet)",
        f"Failed:\n{COAT}\nAnswer: 20\nFeedback: The answer is wrong.\n\nSucceeded:\n{COAT}\n"
        "Reasoning: 25% of 80 is 20, and 80 - 20 = 60.\nAnswer: 60\nFeedback: The answer is right.",
        op="ADD", text="If what is left to pay is asked for, subtract the discount from the price.",
    ),
    _example(
        NOTICES, "[e3] (rules) If a notice is asked for, say what happens and when.",
        f"Failed:\n{CLOSED}\n\nSucceeded:\nTask: Tell visitors that the pool is closed on Sunday for cleaning.\n"
        "Answer: Pool closed on Sunday for cleaning.\nFeedback: The answer is right.",
        op="EDIT", id="e3", text="If a notice is asked for, say what happens and when, without a greeting, and count "
        "the words.",
    ),
)  # fmt: skip
"""A failure and a success at one task, and what follows from them."""

GENERALIZED = (
    _example(
        CALENDAR, "[e5] (rules) If a call returns an error, correct its arguments and call again.",
        "Task: Put the swimming lesson into my calendar, on 4 June at five.\n"
        'Action: add_event {"title": "swimming", "start": "4 June 17:00"}\n'
        "Observation: error: start must look like 2026-05-09T14:30\n"
        'Action: add_event {"title": "swimming", "start": "2026-06-04T17:00"}\nObservation: added\n'
        "Answer: It is in your calendar.\nFeedback: The answer is right.",
        op="AGREE", id="e5",
    ),
    _example(
        WORKSHOP, "(no insights yet)",
        "Task: a cleat for a sailing boat\nAnswer: bronze\nFeedback: The answer is right.\n\n# Attempt 2\n"
        "Task: a bolt for a pier\nAnswer: bronze\nFeedback: The answer is right.",
        op="ADD", text="If a part is used at sea or by the sea, choose a material that salt water does not harm.",
    ),
)  # fmt: skip
"""Successes, and what follows from them."""

COMPARE = Instructions(
    full=f"""\
You keep the insights of an agent: what it has learned that will help with other tasks. Each stands on a line of its \
own as "[id] (section) text". You now see tries of one task: some failed, and the last one succeeded. You are not \
told the right answer beyond that.

Compare them. Find out what the successful try did that the failed ones did not, and whether that is a habit, a \
check, a way to plan or a fact that holds for tasks of this kind.

{OPERATIONS}

An insight has to help with tasks that nobody has seen yet: it names no single task, says when it applies, and says \
what to do so that it can be followed. It may have up to 2,000 characters: several sentences, steps, formulas or \
code, where they are needed.""",
    small=f"""\
You keep the insights of an agent: short general rules, one a line, "[id] (section) text". You see tries of one task: \
some failed, and the last one succeeded. Find what made the difference.

{OPERATIONS}

An insight holds for many tasks and names none of them.""",
    examples=COMPARED,
)

GENERALIZE = Instructions(
    full=f"""\
You keep the insights of an agent: what it has learned that will help with other tasks. Each stands on a line of its \
own as "[id] (section) text". You now see attempts at different tasks, all of which succeeded.

Find out what they have in common: ways to plan, to look things up, to calculate, to use tools, to check and to state \
the answer that led to success here and will lead to it elsewhere.

{OPERATIONS}

An insight has to help with tasks that nobody has seen yet: it names no single task, says when it applies, and says \
what to do so that it can be followed. It may have up to 2,000 characters: several sentences, steps, formulas or \
code, where they are needed.""",
    small=f"""\
You keep the insights of an agent: short general rules, one a line, "[id] (section) text". You see attempts at \
different tasks, all of which succeeded. Find what they have in common.

{OPERATIONS}

An insight holds for many tasks and names none of them.""",
    examples=GENERALIZED,
)
