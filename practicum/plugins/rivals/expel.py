"""ExpeL: gathers experience by retries, extracts insights and votes on them, and attempts new tasks with the insights
and the most similar solved tasks (Zhao et al., 2024, section 4).

An insight starts with two votes. It gains a vote when the model agrees with it, loses a vote when the model doubts it,
and is removed at zero votes. The method learns from success and failure, not from the right answer.
docs/learn/methods/reproductions.md lists the differences from the paper.
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
"""Number of votes of a new insight."""

DOUBTED = 3
"""Number of votes that a doubt removes from an insight while the list of insights is full, as in the authors' code.
Otherwise a doubt removes one vote."""

PAIR = "pair"
"""Key in the data of a lesson. The key marks a lesson that shows failures and a success at the same task."""


class Settings(Batched, RetrievalSettings):
    batch: int = Field(default=8, ge=1)
    """Number of tasks per step. All tasks of a step are attempted before the context changes."""
    rounds: int = Field(default=3, ge=1)
    """Maximum number of retries of a failed task, each after a reflection (paper: 3)."""
    together: int = Field(default=8, ge=1)
    """Number of successes at different tasks that one call compares (paper: 8)."""
    insights: int = Field(default=20, ge=1)
    """Number of insights at which the list of insights is full: a doubt then removes more votes from an insight
    (authors' code: 20)."""
    k: int = Field(default=2, ge=1)
    """Number of most similar solved tasks that are shown (paper: 2 to 6)."""


def method(s: Settings) -> Method:
    """Retry failures, extract insights, show insights and solved tasks."""
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
        costs="retries, reflections, a call for each task solved by a retry, a call for each group of successes",
    )


def both(first: UpdateSeam, second: UpdateSeam) -> UpdateSeam:
    """Return an update seam that calls `first` and `second` with the same lessons and returns the edits of both."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return await first(lessons, context, run) + await second(lessons, context, run)

    return update


async def solved_and_compared(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Return lessons for each solved task. If tries at the task failed, one lesson shows the failed tries and the first
    successful try. For every solved task, another lesson shows only the successful try, and has the answer of this
    try. Unsolved tasks give no lessons."""
    lessons = []
    for attempt in map(without_target, attempts):
        tries = [attempt, *_retries(attempt)]
        solved = next((each for each in tries if each.feedback.success is True and not each.trace.lost), None)
        if solved is None:
            continue
        failed = [each for each in tries if each.feedback.success is False and not each.trace.lost]
        if failed:
            texts = [*(f"Failed:\n{evidence(each)}" for each in failed), f"Succeeded:\n{evidence(solved)}"]
            pair = Lesson(f"{attempt.place}/pair", "", "\n\n".join(texts), sources=attempt.sources, data={PAIR: True})
            lessons.append(pair)
        data = {**solved_as(solved.trace), "good": True}
        lessons.append(Lesson(attempt.place, attempt.task.input, evidence(solved), sources=attempt.sources, data=data))
    return lessons


def _retries(attempt: Attempt) -> list[Attempt]:
    """Return the retries of an attempt, each as an attempt."""
    retries = [(each.trace, each.feedback) for each in attempt.rounds]
    return [replace(attempt, trace=t, feedback=f) for t, f in retries if t is not None and f is not None]


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
    """Update seam that edits insights from the attempts of a step: a call for each task that was solved after a failed
    try, then a call for each group of `together` successes. Each call reads the insights as changed by the previous
    call. While the context has at least `most` insights, a doubt removes DOUBTED votes instead of one.

    A failed call, or an operation on an unknown insight, changes nothing and is counted.
    """

    together: int
    most: int

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        pairs = [[lesson] for lesson in lessons if lesson.detail and lesson.data.get(PAIR)]
        single = [lesson for lesson in lessons if lesson.detail and not lesson.data.get(PAIR)]
        successes = [single[n : n + self.together] for n in range(0, len(single), self.together)]
        delta = Delta()
        for n, group in enumerate([*pairs, *successes], 1):
            instructions = COMPARE if n <= len(pairs) else GENERALIZE
            delta = await self._decided(instructions, group, context, delta, run.at(str(n), sources_of(group)))
        return delta

    async def _decided(
        self, instructions: Instructions, group: Sequence[Lesson], context: Context, previous: Delta, run: Run
    ) -> Delta:
        # Edits that wait for review must not appear in a prompt.
        ready, waiting = run.ready(previous)
        drafted = draft(context, ready)
        current = drafted.outcome.context
        full = len(current.in_section(INSIGHTS)) >= self.most
        parts = [f"# Attempt {n}\n{lesson.detail}" for n, lesson in enumerate(group, 1)]
        pages = render_full(current, EPISODES).pages or ("(no insights yet)",)
        prompt = instructions.prompt(run.profile, [*run.agent_instructions, *parts], pages, "# The insights")
        prompt = replace(prompt, closing=FULL if full else "")
        output = await run.try_ask("curator", prompt, Operations, Count.LOST_UPDATES)
        operations = [] if output is None else output.operations
        edits = [edit for operation in operations for edit in self._edits(operation, current, full, run)]
        sources, ids = sources_of(group), tuple(lesson.id for lesson in group)
        resolved = (e if isinstance(e, Add) else replace(e, id=drafted.refs.get(e.id, e.id)) for e in edits)
        decided = Delta(tuple(replace(edit, sources=sources, lessons=ids) for edit in resolved))
        # The call also read the insights that previous calls added, so the sources of these insights are inherited.
        return drafted.delta + traced(decided, group, current) + waiting

    def _edits(self, operation: RuleOperation, context: Context, full: bool, run: Run) -> list[Add | Update | Vote]:
        id, text = operation.id.strip(" []()#"), clean(operation.text)
        if operation.op == "ADD":
            return [Add(INSIGHTS, text, helpful=FIRST_VOTES)] if text else []
        entry = context.get(id)
        if entry is None or entry.section != INSIGHTS or (operation.op == "EDIT" and text in ("", entry.text)):
            run.count(Count.UNKNOWN_INSIGHTS)
            return []
        match operation.op:
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


def _example(task: str, insights: str, attempt: str, **fields: str) -> Turn:
    operations = Operations(operations=[RuleOperation.model_validate(fields)])
    return Turn(f"# The insights\n{insights}\n\n{task}\n\n# Attempt 1\n{attempt}", operations.model_dump_json())


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
"""Worked examples: a failure and a success at one task, with the operation that follows."""

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
"""Worked examples: successes, with the operation that follows."""


def _curator(shown: str, find: str, small: str, examples: tuple[Turn, ...]) -> Instructions:
    """Return instructions for the curator. `shown` names the attempts that the curator sees, and `find` says what to
    find in these attempts. `small` is the whole text for small models."""
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


COMPARE = _curator(
    "tries of one task: some failed, and the last one succeeded. You are not told the right answer beyond that.",
    "Compare them. Find out what the successful try did that the failed ones did not, and whether that is a habit, a "
    "check, a way to plan or a fact that holds for tasks of this kind.",
    "tries of one task: some failed, and the last one succeeded. Find what made the difference.",
    COMPARED,
)

GENERALIZE = _curator(
    "attempts at different tasks, all of which succeeded.",
    "Find out what they have in common: ways to plan, to look things up, to calculate, to use tools, to check and to "
    "state the answer that led to success here and will lead to it elsewhere.",
    "attempts at different tasks, all of which succeeded. Find what they have in common.",
    GENERALIZED,
)
