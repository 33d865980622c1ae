"""A bank of memories: short strategies, distilled from attempts that went well and from attempts that failed, found
again by similarity (ReasoningBank; METHODS, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from practicum.blocks.act.scaling import came_to
from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.examples import ATLAS, COAT, LAMP, LIBRARY, SHOP
from practicum.blocks.reflect.per_trace import judged_by_outcome
from practicum.blocks.reflect.self_contrast import in_words
from practicum.blocks.update.append import votes
from practicum.core.bounded import MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta
from practicum.core.types import Lesson, Prompt, Rollout, Turn
from practicum.engine.loop import ReflectSeam, UpdateSeam
from practicum.engine.run import Run

MEMORIES = "memories"
"""The section they stand in."""

SUCCESS = "Successful approach"
FAILURE = "Failed approach (avoid)"

Extract = Literal["all", "chosen"]
Index = Literal["memory", "task"]


class Memory(Output):
    """One strategy worth remembering."""

    title: Annotated[str, MaxChars(80)] = Field(description="what it is about, in a few words")
    description: Annotated[str, MaxChars(120)] = Field(description="when it applies, in a sentence")
    content: Annotated[str, MaxChars(280)] = Field(description="the strategy: what to do, or what to avoid, and why")


class Memories(Output):
    """What one attempt teaches."""

    items: Sequence[Memory]


@cache
def _at_most(most: int) -> type[Memories]:
    """The form for so many memories."""
    items: Any = Annotated[list[Memory], MaxItems(most)]
    told = Field(description="the most useful first; none if there is nothing new")
    return create_model("Memories", __base__=Memories, items=(items, told))


def extract_memories(most: int, extract: Extract, temperature: float, index: Index) -> ReflectSeam:
    """Up to `most` memories of each attempt, all attempts at once: of the chosen one only, or of all that came to
    something different, failures included. An attempt whose outcome nobody knows teaches nothing, which is counted."""

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        jobs = [
            (f"{i}.{rollout.task.id}.{n}", partial(_extracted, one, rollout, most, temperature, index, context))
            for i, rollout in enumerate(rollouts)
            for n, one in enumerate(_teaching(rollout, extract, run))
        ]
        found = await run.gather(jobs)
        return [*await usage_votes(rollouts, context, run), *(x for lessons in found for x in lessons)]

    return reflect


def _teaching(rollout: Rollout, extract: Extract, run: Run) -> list[Rollout]:
    """The attempts to learn from; of those with the same outcome and answer one is enough."""
    distinct: dict[object, Rollout] = {}
    for one in rollout.group if extract == "all" else (rollout,):
        if not one.trace.lost:
            distinct.setdefault((one.feedback.success, came_to(one.trace)), one)
    known = [r for r in distinct.values() if r.feedback.success is not None]
    run.count(Count.UNKNOWN_OUTCOMES, len(distinct) - len(known))
    return known


async def _extracted(
    one: Rollout, of: Rollout, most: int, temperature: float, index: Index, context: Context, run: Run
) -> list[Lesson]:
    """The memories of one attempt (`one`) of a task (`of` is the attempt that was chosen)."""
    run = replace(run, about=of.sources)
    well = one.feedback.success is True
    prompt = _case(one, of, most, context, run)
    said = await run.try_ask("reflector", prompt, _at_most(most), Count.LOST_EXTRACTIONS, temperature=temperature)
    if said is None:
        return []
    items = [item for item in said.items if item.content.strip()]
    run.count(Count.EXCESS_MEMORIES, max(len(items) - most, 0))
    run.count(Count.NO_MEMORIES, not items)
    return [_lesson(f"{run.place}/{n}", item, well, one, index) for n, item in enumerate(items[:most], 1)]


def _lesson(id: str, item: Memory, well: bool, rollout: Rollout, index: Index) -> Lesson:
    made = memory_entry(item, well, rollout.sources, rollout.task.input if index == "task" else "")
    return Lesson(id, made.text, sources=made.sources, data={**made.data, "key": made.key})


def memory_entry(item: Memory, well: bool, sources: tuple[str, ...], key: str = "", section: str = MEMORIES) -> Add:
    """A memory as an entry that is found by `key`, or else by its own words."""
    title, description, content = (" ".join(x.split()) for x in (item.title, item.description, item.content))
    outcome = "success" if well else "failure"
    data = {"title": title, "description": description, "content": content, "outcome": outcome}
    said = memory_text(title, description, content, well)
    return Add(section, said, key or f"{title}. {description} {content}", data, sources=sources)


def memory_text(title: str, description: str, content: str, well: bool) -> str:
    """A memory as an agent reads it. A model may leave its title or description empty."""
    about = f"{title} ({description})" if title and description else title or description
    return f"{SUCCESS if well else FAILURE}: {f'{about.removesuffix(chr(46))}. ' if about else ''}{content}"


async def usage_votes(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """Votes for the entries the attempts relied on: by their outcome."""
    counted = [{id: vote for id, vote in judged_by_outcome(r).items() if id in context} for r in rollouts]
    return [
        Lesson(f"{rollout.place}/used", "", votes=votes, sources=rollout.sources)
        for rollout, votes in zip(rollouts, counted, strict=True)
        if votes and not rollout.trace.lost
    ]


def _case(one: Rollout, of: Rollout, most: int, context: Context, run: Run) -> Prompt:
    known = [entry for id in one.trace.used if (entry := context.get(id)) is not None]
    parts = [*run.agent_instructions]
    if known:
        parts.append("# Memories it relied on, which are known already\n" + "\n".join(e.text for e in known))
    findings = of.choice.get("contrast")
    if findings and (said := in_words(findings)):
        parts.append(f"# Found by comparing it with other attempts at the task\n{said}")
    notes = [r.trace.data["note"] for r in (*of.siblings, of) if r.trace.data.get("note")]
    if notes:
        parts.append("# The agent's notes on the way\n" + "\n".join(f"- {note}" for note in notes))
    parts.append(f"# The attempt, which {'went well' if one.feedback.success else 'failed'}\n{evidence(one)}")
    return Prompt.from_parts(EXTRACT.format(most=most), parts, turns=EXTRACTED)


def append_memories() -> UpdateSeam:
    """Each memory becomes an entry as it is, found by its key; nothing is ever rewritten or dropped (append-only)."""

    def edit(lesson: Lesson) -> Add:
        data = {name: value for name, value in lesson.data.items() if name != "key"}
        return Add(MEMORIES, lesson.text, lesson.data["key"], data, sources=lesson.sources, lessons=(lesson.id,))

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return votes(lessons) + Delta(tuple(edit(lesson) for lesson in lessons if "outcome" in lesson.data))

    return update


EXTRACT = """\
You distil memories from one attempt of an agent: short strategies that will help it with other tasks of the same kind.

From an attempt that went well take what made it work. From one that failed take what to avoid, and what to do in its \
place if the feedback shows it.

title: what the memory is about, in a few words.
description: the kind of task it applies to, in one sentence.
content: the strategy itself: what to do or avoid, concretely, and why. It gives names, numbers and answers that \
decide tasks of this kind, and makes sense to a reader who has not seen this task.

At most {most}, the most useful first, none that says what another or a known memory says."""

EXTRACTED = (
    Turn(
        f"""\
{LIBRARY}

# The attempt, which failed
{LAMP}""",
        """\
{"items":[{"title":"a lamp that does not work",\
"description":"A visitor reports that a lamp or other equipment does not work.",\
"content":"If something in the building does not work, answer Blue. Red is wrong for it."}]}""",
    ),
    Turn(
        f"""\
{SHOP}

# The attempt, which went well
{COAT}
Reasoning: 25% of 80 is 20, and 80 - 20 = 60.
Answer: 60
Feedback: The answer is right.""",
        """\
{"items":[{"title":"the price after a discount",\
"description":"A price and a discount in percent are given, and what is left to pay is asked for.",\
"content":"If a discount in percent is given, work it out and subtract it from the full price."}]}""",
    ),
    Turn(
        f"""\
{LIBRARY}

# Memories it relied on, which are known already
Failed approach (avoid): a lamp that does not work (A visitor reports that a lamp or other equipment does not work). \
If something in the building does not work, answer Blue. Red is wrong for it.

# The attempt, which failed
{ATLAS}""",
        """\
{"items":[{"title":"keeping a book longer","description":"A visitor wants to keep a book for longer.",\
"content":"If a loan is to be prolonged, answer Green. Blue, for what does not work, is wrong for it."}]}""",
    ),
)
"""Worked examples from elsewhere. Without them a small model takes the headings it reads for what it is asked about."""
