"""A bank of memories: short strategies, distilled from successful and failed attempts and retrieved by similarity
(ReasoningBank; METHODS, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from practicum.blocks.act.scaling import outcome_of
from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.examples import ATLAS, COAT, LAMP, LIBRARY, SHOP
from practicum.blocks.reflect.per_trace import judged_by_outcome
from practicum.blocks.reflect.self_contrast import in_words
from practicum.blocks.update.append import votes
from practicum.core.bounded import MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit
from practicum.core.types import Lesson, Prompt, Rollout, Turn
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run

MEMORIES = "memories"
"""The section of memories."""

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
    """Up to `most` memories of each attempt, all attempts at once: only of the chosen one, or of all with different
    outcomes or answers, failures included. An attempt of unknown outcome gives none, which is counted."""

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        jobs = []
        for i, chosen in enumerate(rollouts):
            distinct: dict[object, Rollout] = {}
            for one in chosen.group if extract == "all" else (chosen,):
                if not one.trace.lost:
                    distinct.setdefault((one.feedback.success, outcome_of(one.trace)), one)
            known = [r for r in distinct.values() if r.feedback.success is not None]
            run.count(Count.UNKNOWN_OUTCOMES, len(distinct) - len(known))
            for n, one in enumerate(known):
                job = partial(_extracted, one, chosen, most, temperature, index, context)
                jobs.append((f"{i}.{chosen.task.id}.{n}", job))
        found = await run.gather(jobs)
        return [*await usage_votes(rollouts, context, run), *(x for lessons in found for x in lessons)]

    return reflect


async def _extracted(
    one: Rollout, chosen: Rollout, most: int, temperature: float, index: Index, context: Context, run: Run
) -> list[Lesson]:
    """The memories of one attempt at a task of which another, or the same, was chosen."""
    run, parts = replace(run, about=chosen.sources), [*run.agent_instructions]
    if known := [entry.text for id in one.trace.used if (entry := context.get(id)) is not None]:
        parts.append("# Memories it relied on, which are known already\n" + "\n".join(known))
    if found := in_words(chosen.choice.get("contrast", {})):
        parts.append(f"# Found by comparing it with other attempts at the task\n{found}")
    if notes := [r.trace.data["note"] for r in (*chosen.siblings, chosen) if r.trace.data.get("note")]:
        parts.append("# The agent's notes on the way\n" + "\n".join(f"- {note}" for note in notes))
    parts.append(f"# The attempt, which {'went well' if one.feedback.success else 'failed'}\n{evidence(one)}")
    prompt = Prompt.from_parts(EXTRACT.format(most=most), parts, turns=EXTRACTED)
    said = await run.try_ask("reflector", prompt, _at_most(most), Count.LOST_EXTRACTIONS, temperature=temperature)
    if said is None:
        return []
    items = [item for item in said.items if item.content.strip()]
    run.count(Count.EXCESS_MEMORIES, max(len(items) - most, 0))
    run.count(Count.NO_MEMORIES, not items)
    key, well = one.task.input if index == "task" else "", one.feedback.success is True
    made = enumerate((memory_entry(item, well, one.sources, key) for item in items[:most]), 1)
    return [Lesson(f"{run.place}/{n}", x.text, sources=x.sources, data={**x.data, "key": x.key}) for n, x in made]


def memory_entry(item: Memory, well: bool, sources: tuple[str, ...], key: str = "", section: str = MEMORIES) -> Add:
    """A memory as an entry that is found by `key`, or else by its own words. A model may leave its title or description
    empty."""
    title, description, content = (" ".join(x.split()) for x in (item.title, item.description, item.content))
    about = f"{title} ({description})" if title and description else title or description
    text = f"{SUCCESS if well else FAILURE}: {f'{about.removesuffix(chr(46))}. ' if about else ''}{content}"
    outcome = "success" if well else "failure"
    data = {"title": title, "description": description, "content": content, "outcome": outcome}
    return Add(section, text, key or f"{title}. {description} {content}", data, sources=sources)


async def usage_votes(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """Votes for the entries that the attempts relied on, by their outcome."""
    lessons = []
    for rollout in rollouts:
        counted = {id: vote for id, vote in judged_by_outcome(rollout).items() if id in context}
        if counted and not rollout.trace.lost:
            lessons.append(Lesson(f"{rollout.place}/used", "", votes=counted, sources=rollout.sources))
    return lessons


async def append_memories(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Each memory becomes an entry as it is, found by its key; none is ever rewritten or dropped (append-only)."""
    edits: list[Edit] = []
    for lesson in lessons:
        if "outcome" in lesson.data:
            data = dict(lesson.data)
            key = data.pop("key")
            edits.append(Add(MEMORIES, lesson.text, key, data, sources=lesson.sources, lessons=(lesson.id,)))
    return votes(lessons) + Delta(tuple(edits))


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
"""Worked examples about other tasks. Without them a small model takes the headings for its task."""
