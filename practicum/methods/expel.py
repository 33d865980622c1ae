"""ExpeL: experience is gathered by trying again, insights are drawn from it and voted on, and a new task is attempted
with the insights and the most similar solved tasks (Zhao et al., 2024, section 4).

Deviations: gathering, insights and use are one loop, where the paper has three stages; one call reads all attempts of a
step, with the failed and the successful attempts at a task beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import Show, answer, similar_turns
from practicum.blocks.attempt.attempt import refined
from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.per_trace import as_experience, by_model
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import append, newest_per_key, pruned
from practicum.blocks.update.insights import vote_on_insights
from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Lesson, Rollout, Task
from practicum.core.views import View, render_full
from practicum.engine.loop import Method, UpdateSeam
from practicum.engine.run import Run
from practicum.methods.ace import REFLECTOR
from practicum.methods.settings import Batched


class Settings(Batched):
    """Settings of ExpeL."""

    rounds: int = Field(default=3, ge=1)
    """The most retries of a failed task, each with a reflection (paper: 3)."""
    k: int = Field(default=2, ge=1)
    """The number of solved tasks shown: the most similar ones."""


def method(s: Settings) -> Method:
    """Retry failures, draw insights, show insights and solved tasks."""
    act = answer(insights_and_solved_tasks(s.k))
    insights = pruned(vote_on_insights(OPERATIONS, INSIGHTS, EPISODES), 0, besides=EPISODES)
    return Method(
        name="expel",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=refined(act, by_model(REFLECTOR), s.rounds, "retry"),
        reflect=solved_and_tried,
        update=both(insights, newest_per_key(append(EPISODES))),
        accept=always,
        roles=("reflector", "curator"),
        costs="retries, reflections, one call a step",
    )


def both(first: UpdateSeam, second: UpdateSeam) -> UpdateSeam:
    """The edits of two updates from the same lessons."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return await first(lessons, context, run) + await second(lessons, context, run)

    return update


def insights_and_solved_tasks(k: int) -> Show:
    """Show all insights, and the most similar solved tasks as earlier turns."""
    solved = similar_turns(k, EPISODES)

    async def show(context: Context, task: Task, run: Run) -> View:
        turns = await solved(context, task, run)
        insights = render_full(context, without=EPISODES)
        tokens = insights.tokens + turns.tokens
        return replace(insights, turns=turns.turns, tokens=tokens, retrieved=turns.retrieved)

    return show


async def solved_and_tried(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """A lesson for each solved task, and one with all tries of each task for the insights."""
    made = [r for r in rollouts if not r.trace.lost]
    tries = [Lesson(f"{r.place}/tries", "", _tries(r), sources=r.sources) for r in made]
    return [*await as_experience(made, context, run), *tries]


def _tries(rollout: Rollout) -> str:
    """The first try, and each retry after its reflection."""
    said = [evidence(rollout)]
    for n, one in enumerate(rollout.rounds, 1):
        if one.trace is not None and one.feedback is not None:
            again = replace(rollout, trace=one.trace, feedback=one.feedback)
            said.append(f"Try {n + 1}, after: {one.lesson.text}\n{evidence(again)}")
    return "\n\n".join(said)


INSIGHTS = "rules"
EPISODES = "episodes"

OPERATIONS = """\
You keep the insights of an agent: short general rules, one a line, "[id] (section) text". Compare the attempts below, \
failed tries of a task with those that succeeded, and decide on up to four operations:

AGREE: an insight (its id) is borne out. REMOVE: one is contradicted, or says what another says. EDIT: one becomes \
more general or more precise; give its id and the new text. ADD: something that no insight says; give the text.

An insight holds for many tasks and names none of them."""
