"""Summarization: one call summarizes the lessons of a large batch, and the curator sees the summary (the baseline of
Combee, section 4.1).

As in the paper, a lesson that the curator leaves out is lost. practicum counts the lost lessons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from practicum.core.bounded import MOST_ITEMS, MaxChars, MaxItems, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta
from practicum.core.types import Instructions, Lesson
from practicum.core.views import behind
from practicum.engine.loop import Method, UpdateSeam, by_reflection, sources_of
from practicum.engine.run import Run
from practicum.methods.ace import curated, playbook
from practicum.methods.blocks.curate import votes
from practicum.methods.blocks.reflect import findings_text
from practicum.methods.settings import WidePlaybookSettings

Settings = WidePlaybookSettings


def method(s: Settings) -> Method:
    """Build ACE with a large batch, and a summary of its lessons for the curator."""
    built = playbook(s, "summarized", summarized(curated(s)), s.batch)
    # The curator's model writes the summary. So the role `curator` is needed even with curator=append, which writes
    # edits without a model.
    return replace(
        built, roles=tuple(dict.fromkeys((*built.roles, "curator"))), costs=f"{built.costs}, one summary per step"
    )


class Summary(Output):
    """What is left of many lessons."""

    points: Annotated[list[Annotated[str, MaxChars(300)]], MaxItems(MOST_ITEMS)] = Field(
        description="what the lessons say, in brief"
    )


def summarized(update: UpdateSeam) -> UpdateSeam:
    """Build an update seam that summarizes all reflections in one call, and passes the points of the summary to
    `update` as lessons. Each point has the sources of all lessons."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        with_text = [lesson for lesson in lessons if lesson.text]
        if len(with_text) < 2:
            return await update(lessons, context, run)
        if run.profile == "small":
            parts = ["# The lessons\n" + "\n".join(f"{n}. {lesson.text}" for n, lesson in enumerate(with_text, 1))]
        else:
            reflections = (
                [findings_text(first), *(behind("-", x.text) for x in (first, *more))]
                for first, *more in by_reflection(with_text)
            )
            parts = [f"# Reflection {n}\n" + "\n".join(filter(None, lines)) for n, lines in enumerate(reflections, 1)]
        prompt = SUMMARIZER.prompt(run.profile, parts)
        summary = await run.at("summary").try_ask("curator", prompt, Summary, Count.LOST_SUMMARIES)
        if summary is None:
            return votes(lessons)
        sources = sources_of(with_text)
        words = [text for point in summary.points if (text := clean(point))]
        run.count(Count.EMPTY_SUMMARIES, not words)
        points = [Lesson(f"{run.place}/point {n}", text, sources=sources) for n, text in enumerate(words)]
        return votes(lessons) + await update(points, context, run)

    return wrapped


SUMMARIZER = Instructions(
    full="""\
An agent's attempts were reviewed, each by itself. Sum up the reflections for the curator of the agent's playbook, \
who sees nothing else of them. Write one point for each thing that the agent needs to know, as long as it needs to be, \
with the details that decide an outcome. Join what several reflections say; leave nothing out that only one says.""",
    small="""\
An agent reviewed many of its attempts and wrote down a lesson from each. Sum them up in a few points, each one \
sentence that makes sense by itself. Keep what the agent needs to know; leave out what is said twice.""",
)
