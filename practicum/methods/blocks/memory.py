"""Bank of memories: strategies that are distilled from successful and failed attempts and retrieved by similarity
(ReasoningBank; METHODS, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from practicum.core.bounded import MaxChars, MaxItems, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit
from practicum.core.types import Attempt, Instructions, Lesson, Turn
from practicum.core.views import behind
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run
from practicum.methods.blocks.curate import votes
from practicum.methods.blocks.reflect import evidence, in_words, judged_by_outcome
from practicum.methods.blocks.scaling import outcome_of
from practicum.methods.blocks.show import FAILURE
from practicum.methods.worked_examples import CALENDAR, CLOSED, COAT, GARDEN, LICE, MEETING, NOTICES, SHOP, YELLOW

MEMORIES = "memories"
"""Section of memories."""

SUCCESS = "Successful approach"

Extract = Literal["all", "successes", "chosen"]
Index = Literal["memory", "task"]


class Memory(Output):
    """A strategy worth remembering."""

    title: Annotated[str, MaxChars(80)] = Field(description="the strategy in a few words")
    description: Annotated[str, MaxChars(120)] = Field(description="when it applies, in a sentence")
    content: Annotated[str, MaxChars(280)] = Field(description="the strategy: what to do, or what to avoid, and why")


class Memories(Output):
    """What one attempt teaches."""

    items: Sequence[Memory]


@cache
def form(most: int) -> type[Memories]:
    items: Any = Annotated[list[Memory], MaxItems(most)]
    field = Field(description="the most useful first; none if there is nothing new")
    return create_model("Memories", __base__=Memories, items=(items, field))


def extract_memories(most: int, extract: Extract, temperature: float, index: Index) -> ReflectSeam:
    """Build a reflect seam that extracts up to `most` memories from each selected attempt, concurrently. `extract`
    selects the attempts: only the chosen attempt, only successes (the ablation), or all. Of several attempts at a task
    with the same outcome and answer, only the first is used. Attempts of unknown outcome give no memory, and are
    counted."""

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        jobs = []
        for i, chosen in enumerate(attempts):
            distinct: dict[object, Attempt] = {}
            for one in (chosen,) if extract == "chosen" else chosen.group:
                if not one.trace.lost:
                    distinct.setdefault((one.feedback.success, outcome_of(one.trace)), one)
            with_outcome = [r for r in distinct.values() if r.feedback.success is not None]
            run.count(Count.UNKNOWN_OUTCOMES, len(distinct) - len(with_outcome))
            for n, one in enumerate(r for r in with_outcome if r.feedback.success or extract != "successes"):
                job = partial(_extract, one, chosen, most, temperature, index, context)
                jobs.append((f"{i}.{chosen.task.id}.{n}", job))
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


async def _extract(
    one: Attempt, chosen: Attempt, most: int, temperature: float, index: Index, context: Context, run: Run
) -> list[Lesson]:
    """Extract the memories of the attempt `one`. `chosen` is the attempt that was chosen among the attempts at the same
    task."""
    run, parts = replace(run, about=chosen.sources), [*run.agent_instructions]
    # The agent saw the retrieved memories even if it cited none. Retrieved solved tasks are not memories.
    retrieved = (context.get(id) for id, _ in one.retrieved)
    shown = () if run.profile == "small" else (e.id for e in retrieved if e is not None and e.section == MEMORIES)
    if relied_on := [entry.text for id in dict.fromkeys((*shown, *one.trace.used)) if (entry := context.get(id))]:
        listed = "\n".join(behind("-", text) for text in relied_on)
        parts.append(f"# Memories it relied on, which are known already\n{listed}")
    if findings := in_words(chosen.choice.get("contrast", {})):
        parts.append(f"# Found by comparing it with other attempts at the task\n{findings}")
    if notes := [r.trace.data["note"] for r in (*chosen.siblings, chosen) if r.trace.data.get("note")]:
        parts.append("# The agent's notes on the way\n" + "\n".join(behind("-", note) for note in notes))
    parts.append(f"# The attempt, which {'went well' if one.feedback.success else 'failed'}\n{evidence(one)}")
    prompt = instructions_for(most).prompt(run.profile, parts)
    extracted = await run.try_ask("reflector", prompt, form(most), Count.LOST_EXTRACTIONS, temperature=temperature)
    if extracted is None:
        return []
    items = [item for item in extracted.items if item.content.strip()]
    run.count(Count.EXCESS_MEMORIES, max(len(items) - most, 0))
    run.count(Count.NO_MEMORIES, not items)
    key, well = one.task.input if index == "task" else "", one.feedback.success is True
    entries = enumerate((memory_entry(item, well, one.sources, key) for item in items[:most]), 1)
    return [Lesson(f"{run.place}/{n}", x.text, sources=x.sources, data={**x.data, "key": x.key}) for n, x in entries]


def memory_entry(item: Memory, well: bool, sources: tuple[str, ...], key: str = "", section: str = MEMORIES) -> Add:
    """Build the entry of a memory. Searches compare a query with `key` or, if `key` is empty, with the words of the
    memory. A model may leave the title or the description empty."""
    title, description, content = map(clean, (item.title, item.description, item.content))
    about = f"{title} ({description})" if title and description else title or description
    ended = about if not about or about.endswith((".", ".)")) else f"{about}."
    # Steps and code go on lines below the title.
    between = "\n" if "\n" in content else " "
    text = f"{SUCCESS if well else FAILURE}: {between.join(filter(None, (ended, content)))}"
    outcome = "success" if well else "failure"
    data = {"title": title, "description": description, "content": content, "outcome": outcome}
    return Add(section, text, key or f"{title}. {description} {content}", data, sources=sources)


async def usage_votes(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Return lessons that vote on the entries that the attempts relied on: helpful after a success, harmful after a
    failure, else neutral."""
    lessons = []
    for attempt in attempts:
        counted = {id: vote for id, vote in judged_by_outcome(attempt).items() if id in context}
        if counted and not attempt.trace.lost:
            lessons.append(Lesson(f"{attempt.place}/used", "", votes=counted, sources=attempt.sources))
    return lessons


def is_memory(lesson: Lesson) -> bool:
    """Return whether `extract_memories` made this lesson."""
    return "outcome" in lesson.data


async def append_memories(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Append each memory unchanged as an entry with its key. Memories are never rewritten or dropped (append-only)."""
    edits: list[Edit] = []
    for lesson in lessons:
        if is_memory(lesson):
            data = dict(lesson.data)
            key = data.pop("key")
            edits.append(Add(MEMORIES, lesson.text, key, data, sources=lesson.sources, lessons=(lesson.id,)))
    return votes(lessons) + Delta(tuple(edits))


KNOWN = (
    "Failed approach (avoid): leaves that turn yellow (A gardener reports leaves that turn yellow.) "
    "Do not answer soap, which is against insects. If leaves turn yellow, answer ash."
)

EXTRACTED = (
    Turn(
        f"""\
{GARDEN}

# The attempt, which failed
{YELLOW}""",
        """\
{"items":[{"title":"leaves that turn yellow","description":"A gardener reports leaves that turn yellow.",\
"content":"Do not answer soap, which is against insects. If leaves turn yellow, answer ash."}]}""",
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
{CALENDAR}

# The attempt, which failed
{MEETING}""",
        """\
{"items":[{"title":"an event that was not added",\
"description":"A tool returns an error.",\
"content":"Do not answer after an error. Read what it says, write the start as 2026-05-09T14:30, and call the tool \
again."}]}""",
    ),
    Turn(
        f"""\
{NOTICES}

# The attempt, which failed
{CLOSED}""",
        """\
{"items":[{"title":"a limit of words","description":"A text may have only so many words.",\
"content":"Do not begin with polite phrases. Write the fact alone, count the words, and leave out what is not \
needed."}]}""",
    ),
    Turn(
        f"""\
{GARDEN}

# Memories it relied on, which are known already
- {KNOWN}

# The attempt, which failed
{LICE}""",
        """\
{"items":[{"title":"insects on a plant","description":"A gardener has lice or other insects on a plant.",\
"content":"Do not answer chalk, which is against sour soil. If there are insects on a plant, answer soap."}]}""",
    ),
)
"""Worked examples about other tasks. Without these examples a small model mistakes the headings for its task. The first
and the last example are questions that a person asks, with a choice of answers: without these two examples, the
memories that the model writes name no answers."""

EXTRACT = Instructions(
    full="""\
You distil memories from one attempt of an agent at a task. On later tasks the agent is shown those of its memories \
that fit best; nothing else is kept of this attempt.

A memory is a strategy: a way of working that carried the attempt to its result, or led it astray, told so that it can \
be carried over to tasks that look different. Ask of each: would it help somebody who works on another task of this \
kind and has never seen this one? Leave out what holds for this task or this set of data alone: its answer, its names \
and figures, which input had which label. Names, numbers, formats and calls belong in a memory where they are part of \
the way of working itself: the argument that a tool requires, a formula, a limit that always applies.

From an attempt that went well take what made it work: the decisions, checks and orders of steps without which it \
would have failed, not what was luck. From an attempt that failed take the reasoning that led it astray and the signs \
by which it can be recognised in time, and what to do in its place where the attempt or the feedback shows it. Such a \
memory will be shown as an approach to avoid, so begin its content with what not to do.

title: the strategy in a few words.
description: the situations in which it applies, in one sentence.
content: the strategy itself, as long as it needs to be, up to 2,000 characters: several sentences or numbered steps, \
with code where code says it best, and why it works or fails.

At most {most}, the most useful first. Write none if the attempt shows nothing beyond the memories that are known.""",
    small="""\
You distil memories from one attempt of an agent: short strategies that will help it with other tasks of the same kind.

From an attempt that went well take what made it work. From one that failed take what to avoid, and what to do in its \
place if the feedback shows it.

title: what the memory is about, in a few words.
description: the kind of task it applies to, in one sentence.
content: the strategy itself: what to do or avoid, concretely, and why. It gives names, numbers and answers that \
decide tasks of this kind, and makes sense to a reader who has not seen this task.

At most {most}, the most useful first, none that says what another or a known memory says.""",
    examples=EXTRACTED,
)


@cache
def instructions_for(most: int) -> Instructions:
    """Return the instructions for an extraction of at most `most` memories."""
    return replace(EXTRACT, full=EXTRACT.full.format(most=most), small=EXTRACT.small.format(most=most))
