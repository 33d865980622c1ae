"""ExpeL: experience is gathered by trying again, insights are drawn from it and voted on, and a new task is attempted
with the insights and the most similar solved tasks (Zhao et al., 2024, section 4).

An insight starts with two votes, gains one if the model agrees with it, loses one if the model doubts it, and is
removed at zero. The method learns from success and failure, not from the right answer. docs/methods/expel.md says what
differs from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from practicum.core.bounded import MaxChars, MaxItems, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Update, Vote
from practicum.core.types import Attempt, Instructions, Lesson, Turn
from practicum.core.views import render_full
from practicum.engine.loop import Method, UpdateSeam, sources_of
from practicum.engine.provenance import traced
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once, refined
from practicum.methods.blocks.curate import append, draft, newest_per_key, pruned
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import evidence, solved_as
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.show import answer, joined, rest, similar_turns
from practicum.methods.episodes import EPISODES
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.methods.worked_examples import CALENDAR, CLOSED, COAT, NOTICES, SHOP, WORKSHOP
from practicum.plugins.rivals.reflexion import by_self, without_target

INSIGHTS = "rules"


FIRST_VOTES = 2
"""Votes that an insight starts with."""

DOUBTED = 3
"""Votes that an insight loses by one doubt while the list is full (the authors' code)."""

PAIR = "pair"
"""The key in the data of a lesson that shows a failure beside a success at one task."""


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
    show = joined(rest(EPISODES), similar_turns(s.k, EPISODES))
    act = answer(show)
    insights = pruned(VotedInsights(s.together, s.insights), 0, EPISODES)
    return Method(
        name="expel",
        show=show,
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(refined(act, by_self, s.rounds, "retry")),
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


async def solved_and_compared(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """For each task that was solved at last, a lesson with its answer and the successful try, and before it one with
    the failed tries beside that one, if there were any. A task that was never solved teaches nothing."""
    lessons = []
    for attempt in map(without_target, attempts):
        tries = [attempt, *_retries(attempt)]
        solved = next((one for one in tries if one.feedback.success is True and not one.trace.lost), None)
        if solved is None:
            continue
        failed = [one for one in tries if one.feedback.success is False and not one.trace.lost]
        if failed:
            shown = [*(f"Failed:\n{evidence(one)}" for one in failed), f"Succeeded:\n{evidence(solved)}"]
            pair = Lesson(f"{attempt.place}/pair", "", "\n\n".join(shown), sources=attempt.sources, data={PAIR: True})
            lessons.append(pair)
        data = {**solved_as(solved.trace), "good": True}
        lessons.append(Lesson(attempt.place, attempt.task.input, evidence(solved), sources=attempt.sources, data=data))
    return lessons


def _retries(attempt: Attempt) -> list[Attempt]:
    """The tries after the first one."""
    made = [(one.trace, one.feedback) for one in attempt.rounds]
    return [replace(attempt, trace=t, feedback=f) for t, f in made if t is not None and f is not None]


class RuleOperation(Output):
    """What is done about one insight."""

    op: Literal["AGREE", "REMOVE", "EDIT", "ADD"]
    id: Annotated[str, MaxChars(8)] = Field(default="", description="the insight meant; empty for ADD")
    text: Annotated[str, MaxChars(200)] = Field(default="", description="the new text, for ADD and EDIT")


class Operations(Output):
    """What is done about insights after some attempts."""

    operations: Annotated[list[RuleOperation], MaxItems(4)]


@dataclass(frozen=True, slots=True)
class VotedInsights:
    """An update: operations on the insights from the attempts of a step, a call for each pair of a failure and a
    success at one task, then one for each `together` successes. Each call reads the insights that the call before it
    left. From `most` insights on a doubt weighs more.

    A call that fails, or an operation on an insight that does not exist, changes nothing and is counted.
    """

    together: int
    most: int

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        pairs = [[lesson] for lesson in lessons if lesson.detail and lesson.data.get(PAIR)]
        alone = [lesson for lesson in lessons if lesson.detail and not lesson.data.get(PAIR)]
        successes = [alone[n : n + self.together] for n in range(0, len(alone), self.together)]
        delta = Delta()
        for n, group in enumerate([*pairs, *successes], 1):
            told = COMPARE if n <= len(pairs) else GENERALIZE
            delta = await self._decided(told, group, context, delta, run.at(str(n), sources_of(group)))
        return delta

    async def _decided(
        self, told: Instructions, group: Sequence[Lesson], context: Context, before: Delta, run: Run
    ) -> Delta:
        # What waits for review is in no prompt.
        ready, waiting = run.ready(before)
        tried = draft(context, ready)
        now = tried.outcome.context
        full = len(now.in_section(INSIGHTS)) >= self.most
        parts = [f"# Attempt {n}\n{lesson.detail}" for n, lesson in enumerate(group, 1)]
        pages = render_full(now, EPISODES).pages or ("(no insights yet)",)
        prompt = told.prompt(run.profile, [*run.agent_instructions, *parts], pages, "# The insights")
        prompt = replace(prompt, closing=FULL if full else "")
        said = await run.try_ask("curator", prompt, Operations, Count.LOST_UPDATES)
        edits = [edit for one in ([] if said is None else said.operations) for edit in self._edits(one, now, full, run)]
        sources, ids = sources_of(group), tuple(lesson.id for lesson in group)
        named = (e if isinstance(e, Add) else replace(e, id=tried.refs.get(e.id, e.id)) for e in edits)
        made = Delta(tuple(replace(edit, sources=sources, lessons=ids) for edit in named))
        # The insights of the calls before this one were read too.
        return tried.delta + traced(made, group, now) + waiting

    def _edits(self, said: RuleOperation, context: Context, full: bool, run: Run) -> list[Add | Update | Vote]:
        id, text = said.id.strip(" []()#"), clean(said.text)
        if said.op == "ADD":
            return [Add(INSIGHTS, text, helpful=FIRST_VOTES)] if text else []
        entry = context.get(id)
        if entry is None or entry.section != INSIGHTS or (said.op == "EDIT" and text in ("", entry.text)):
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

OPERATIONS = """\
Decide on up to four operations, at most one for each insight:

AGREE: what you see bears an insight out; give its id.
REMOVE: an insight is contradicted, or says what another one says; give its id.
EDIT: an insight should become more general, more exact or clearer; give its id and the whole new text.
ADD: something that no insight says yet; give its text."""


def _example(told: str, insights: str, attempt: str, **said: str) -> Turn:
    decided = Operations(operations=[RuleOperation.model_validate(said)])
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


def _told(shown: str, find: str, small: str, examples: tuple[Turn, ...]) -> Instructions:
    """Both tasks of the curator: what it is shown, and what it looks for."""
    return Instructions(
        full=f"""\
You keep the insights of an agent: what it has learned that will help with other tasks. Each stands on a line of its \
own as "[id] (section) text". You now see {shown}

{find}

{OPERATIONS}

An insight has to help with tasks that nobody has seen yet: it names no single task, says when it applies, and says \
what to do so that it can be followed. It may have up to 2,000 characters: several sentences, steps, formulas or \
code, where they are needed.""",
        small=f"""\
You keep the insights of an agent: short general rules, one a line, "[id] (section) text". You see {small}

{OPERATIONS}

An insight holds for many tasks and names none of them.""",
        examples=examples,
    )


COMPARE = _told(
    "tries of one task: some failed, and the last one succeeded. You are not told the right answer beyond that.",
    "Compare them. Find out what the successful try did that the failed ones did not, and whether that is a habit, a "
    "check, a way to plan or a fact that holds for tasks of this kind.",
    "tries of one task: some failed, and the last one succeeded. Find what made the difference.",
    COMPARED,
)

GENERALIZE = _told(
    "attempts at different tasks, all of which succeeded.",
    "Find out what they have in common: ways to plan, to look things up, to calculate, to use tools, to check and to "
    "state the answer that led to success here and will lead to it elsewhere.",
    "attempts at different tasks, all of which succeeded. Find what they have in common.",
    GENERALIZED,
)
