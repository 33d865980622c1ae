"""Training-Free GRPO: describes in words how the better attempts of a group differ from the worse attempts, and stores
this description. The description takes the place of the advantage and the gradient of GRPO (Cai et al., 2025, section
2).

The experience library is a playbook. docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field

from practicum.core.bounded import MaxChars, MaxItems, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Attempt, Instructions, Lesson, Turn
from practicum.core.views import render_full
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.ace import CURATOR, SECTION
from practicum.methods.blocks.attempt import grouped, once
from practicum.methods.blocks.curate import Curator, within_budget
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import evidence, tagged
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.scan import accounted
from practicum.methods.blocks.show import answer, full_view
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.methods.worked_examples import CALENDAR, CLOSED, COAT, MEETING, NOTICES, SHOP
from practicum.plugins.rivals.search import visible_score


class Settings(Batched, RetrievalSettings):
    """Settings of Training-Free GRPO."""

    TRACES: ClassVar = None

    epochs: int = Field(default=3, ge=1)
    """Number of passes over the tasks (paper: 3)."""
    batch: int = Field(default=8, ge=1)
    """Number of tasks per step."""
    group: int = Field(default=5, ge=2)
    """Number of attempts at each task (paper: 5)."""
    warmth: float = Field(default=0.7, gt=0)
    """Temperature of all attempts of a group except the first (paper: 0.7)."""
    budget: int = Field(default=80_000, ge=1)
    """Maximum number of tokens of the playbook."""


def method(s: Settings) -> Method:
    """Attempt each task several times, describe in words how these attempts differ, store the descriptions."""
    act = answer(full_view)
    return Method(
        name="tf_grpo",
        show=full_view,
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=grouped(once(act), s.group, s.warmth),
        reflect=advantages,
        update=within_budget(accounted(Curator(CURATOR, SECTION, gated=s.gate), "keep", SECTION), s.budget),
        accept=always,
        roles=("reflector", "curator"),
        costs="groups of attempts, a contrast for each group, one curation per step",
    )


class Advantage(Output):
    """What the better attempts of a group have over the others."""

    why: Annotated[str, MaxChars(200)] = Field(description="where the attempts part, and why some went better")
    experiences: Annotated[list[Annotated[str, MaxChars(160)]], MaxItems(3)] = Field(
        description="what to remember from that for other tasks; empty if it is known already"
    )


async def advantages(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Contrast the attempts of each group, for all groups concurrently, and return the lessons."""
    jobs = [(f"{i}.{attempt.task.id}", partial(_advantage, attempt, context)) for i, attempt in enumerate(attempts)]
    return [lesson for lessons in await run.gather(jobs) for lesson in lessons]


async def _advantage(attempt: Attempt, context: Context, run: Run) -> list[Lesson]:
    """Return lessons with the votes of a group's attempts and, if the scores of these attempts differ, lessons on the
    differences."""
    run = replace(run, about=attempt.sources)
    members = [r for r in attempt.group if not r.trace.lost]
    votes = [tagged(r, f"{run.place}/used {n}") for n, r in enumerate(members, 1)]
    scores = [visible_score(r, run) for r in members]
    if len(set(scores)) < 2:
        return votes
    scored = zip(members, scores, strict=True)
    parts = [f"# Attempt {n}: {_outcome(score)}\n{evidence(r)}" for n, (r, score) in enumerate(scored, 1)]
    pages = render_full(context).pages or ("(none yet)",)
    prompt = ADVANTAGE.prompt(run.profile, [*run.agent_instructions, *parts], pages, "# The experiences so far")
    output = await run.try_ask("reflector", prompt, Advantage, Count.LOST_CONTRASTS)
    if output is None:
        return votes
    texts = [*dict.fromkeys(text for experience in output.experiences if (text := clean(experience)))]
    first, data = f"{run.place}/1", {"reasoning": clean(output.why)}
    lesson = Lesson(first, "", sources=attempt.sources, data=data)
    others = (replace(lesson, id=f"{run.place}/{n}", text=text, of=first) for n, text in enumerate(texts[1:], 2))
    return [*votes, *([replace(lesson, text=texts[0])] if texts else []), *others]


def _outcome(score: float | None) -> str:
    return "its score is not known" if score is None else f"its score is {100 * score:.0f} of 100"


def _example(task: str, experiences: str, attempts: str, answer: Advantage) -> Turn:
    return Turn(f"# The experiences so far\n{experiences}\n\n{task}\n\n{attempts}", answer.model_dump_json())


CONTRASTED = (
    _example(
        SHOP, "(none yet)",
        f"# Attempt 1: its score is 0 of 100\n{COAT}\nReasoning: 25% of 80 is 20.\nAnswer: 20\n"
        f"Feedback: The answer is wrong. The right answer is: 60\n\n# Attempt 2: its score is 100 of 100\n{COAT}\n"
        "Reasoning: 25% of 80 is 20, and 80 - 20 = 60.\nAnswer: 60\nFeedback: The answer is right.",
        Advantage(
            why="The second one subtracts the discount from the price; the first one stops at the discount.",
            experiences=["If what is left to pay is asked for, subtract the discount from the full price."],
        ),
    ),
    _example(
        CALENDAR, "(none yet)",
        f"# Attempt 1: its score is 0 of 100\n{MEETING}\n\n# Attempt 2: its score is 100 of 100\n"
        "Task: Put the dentist into my calendar, on 9 May at half past two.\n"
        'Action: add_event {"title": "dentist", "start": "2026-05-09T14:30"}\nObservation: added\n'
        "Answer: The dentist is in your calendar.\nFeedback: The answer is right.",
        Advantage(
            why="The second one writes the start in the form that the tool takes.",
            experiences=["When adding an event, write its start as year-month-day, T and the time of day."],
        ),
    ),
    _example(
        NOTICES, "[e2] (rules) Leave out greetings and reasons, and count the words of a notice.",
        f"# Attempt 1: its score is 0 of 100\n{CLOSED}\n\n# Attempt 2: its score is 100 of 100\n"
        "Task: Tell visitors that the pool is closed on Sunday for cleaning.\n"
        "Answer: Pool closed on Sunday for cleaning.\nFeedback: The answer is right.",
        Advantage(why="Only the second one follows e2, which says all there is to learn.", experiences=[]),
    ),
)  # fmt: skip
"""Worked examples: groups of two attempts, with the experiences to remember."""

ADVANTAGE = Instructions(
    full="""\
You see several attempts of one agent at the same task, each with its score, and the experiences that the agent has \
gathered so far, which it read before each attempt.

Follow the attempts step by step and compare them. Find the points at which the better ones part from the worse ones: \
what was planned, looked up, calculated, checked or decided there, and what came of it. Say which of the experiences \
helped, which were not followed and which misled. What differs without any effect on the score does not matter.

Then say what to remember. Each experience is about what to do and when, so that it helps with other tasks of the \
kind; it does not name this task or its answer. It may have up to 2,000 characters: several sentences, steps, \
formulas or code, where they are needed. Where an experience that is known already should be changed, write how it \
should read. Where everything is known already, give none.""",
    small="""\
You compare several attempts of one agent at the same task, each with its score.

why: what the better attempts did and the others did not. experiences: what to remember from that for other tasks, \
each in one short general sentence that makes sense without this task. Leave the list empty where there is nothing to \
say. Never guess what you cannot see in the attempts.""",
    examples=CONTRASTED,
)
