"""GEPA: instructions evolve by reflection on traces, and parents are drawn from a Pareto front (Agrawal et al., 2025,
section 3).

The loop is that of the `gepa` package. With `groups`, Combee's parallel scan reflects on a minibatch.
docs/methods/gepa.md says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.examples import CALENDAR, HINGE, SHOP, WORKSHOP
from practicum.blocks.reflect.per_trace import per_trace, without_reflector
from practicum.blocks.sample.orders import shuffled_epochs
from practicum.blocks.update.join import Join
from practicum.blocks.update.scan import FEW, Dealing, scan
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, ordered_union
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method, UpdateSeam
from practicum.engine.run import Run
from practicum.methods.settings import CandidateSettings
from practicum.plugins.rivals.examples import COAT_RIGHT, CUPS_WRONG, PRICES, example
from practicum.plugins.rivals.gepa_search import Select, pareto_search
from practicum.plugins.rivals.search import Request, best_instruction, cases, ranked, written


class Settings(CandidateSettings):
    NO_GATE: ClassVar[str] = "judges its candidates itself"
    REQUIRES: ClassVar[tuple[str, ...]] = ("gepa",)

    attempts: int = Field(default=400, ge=1)
    """The number of attempts after which no new iteration begins."""
    minibatch: int = Field(default=3, ge=1)
    """Tasks of an iteration, on which a new instruction must score higher than its parent."""
    select: Select = "pareto"
    """How the parent instruction is chosen."""
    groups: int = Field(default=1, ge=1)
    """Groups of a minibatch that are reflected on in parallel before one call joins the results; 1: one call in all."""

    def conflicts(self) -> Iterator[tuple[object, str]]:
        yield from super().conflicts()
        groups, size = self.groups, self.minibatch
        yield groups > size, f"there are {groups} groups for a minibatch of {size}: lower groups"
        yield groups > 1 and size < FEW, f"groups need a minibatch of {FEW} or more: raise minibatch, or lower groups"


def method(s: Settings) -> Method:
    """Attempt a minibatch, write a new instruction from it, keep it if it is better, compare all on the same tasks."""
    act = answer(best_instruction)
    update = rewritten(s.warmth)
    if s.groups > 1:
        update = scan(update, Dealing(groups=s.groups, copies=min(2, s.groups), fan_in=None), joined(s.warmth))
    return Method(
        name="gepa",
        sample=shuffled_epochs(1, s.minibatch),
        act=act,
        attempt=once(act),
        reflect=per_trace(without_reflector),
        update=update,
        accept=always,
        schedule=pareto_search(minibatch=s.minibatch, attempts=s.attempts, select=s.select),
        roles=("reflector",),
        costs="trying each candidate on a minibatch, a reflection a step",
    )


def rewritten(warmth: float) -> UpdateSeam:
    """Rewrite the instruction from attempts under it. A failed call is counted and changes nothing."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        now = next((e.text for e in ranked(context)), "(none yet)")
        asked = Request(REFLECTOR, (f"# The instruction now\n{now}", cases(lessons)), lessons=tuple(lessons))
        made = await written(asked, warmth, "reflector", run)
        return Delta(() if made is None else (made,))

    return update


def joined(warmth: float) -> Join:
    """Join the instructions of the groups into one."""

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        made = [edit for delta in deltas for edit in delta.edits if isinstance(edit, Add)]
        if len(made) < 2:
            return Delta(tuple(made))
        parts = tuple(f"# Instruction {n}\n{add.text}" for n, add in enumerate(made, 1))
        sources, lessons = ordered_union(a.sources for a in made), ordered_union(a.lessons for a in made)
        one = await written(Request(JOINER, parts), warmth, "reflector", replace(run, about=sources))
        return Delta(() if one is None else (replace(one, sources=sources, lessons=lessons),))

    return join


REFLECTOR = Instructions(
    full="""\
You improve the instruction that an agent works under. You see the instruction, and attempts that were made with it, \
each with what came of it.

Read every attempt closely. Find out what the tasks ask for and in which form; which steps, facts and ways of working \
led to success, and whether they will serve other tasks too; and for each failure, what the instruction said wrongly \
or left unsaid. The feedback may hold facts about the field that the agent cannot find out by itself and will need \
again: put in all of them.

Then write the whole instruction anew. Keep what worked, correct what failed, and add what was missing: the task and \
its form, the way to go about it step by step, the facts, rules and formulas that it takes, and the mistakes to \
avoid. It may be long and have several sections. Write for tasks like these, not about these alone.""",
    small="""\
You improve the instruction an agent works under. You see the instruction and attempts made with it, each with what \
came of it. Find out what the tasks are, what facts and steps solve them, and where the instruction misled or was \
silent. Write the whole instruction anew: keep what worked, mend what failed, and put in every fact and rule the \
agent will need for tasks like these and cannot know by itself. Do not write about single tasks.""",
    examples=(
        example(PRICES, SHOP, "# The instruction now\n(none yet)", "# Attempts", COAT_RIGHT, CUPS_WRONG),
        example(
            "Take steel where a part must be hard and stays dry. Near the sea take bronze, since steel rusts there.",
            WORKSHOP,
            "# The instruction now\nTake steel where a part must be hard.",
            "# Attempts",
            HINGE,
        ),
    ),
)

JOINER = Instructions(
    full="""\
Several people have each written an instruction for the same agent, from different attempts. Write one instruction \
that holds all that is useful in them, each thing once and in full: every fact, rule, step, formula and form. Where \
they contradict each other, keep what more of them say. Put what belongs together in one place. It may be long and \
have several sections.""",
    small="""\
Several people have each written an instruction for the same agent, from different attempts. Write one instruction \
that holds all that is useful in them, each thing once. Where they contradict each other, keep what more of them \
say.""",
    examples=(
        example(
            "Write the start of an event as 2026-05-09T14:30. After an error, correct the arguments and call again.",
            CALENDAR,
            "# Instruction 1\nWrite the start of an event as 2026-05-09T14:30.",
            "# Instruction 2\nAfter an error, correct the arguments and call again. Write dates as 2026-05-09T14:30.",
        ),
    ),
)
