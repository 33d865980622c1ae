"""Attempts by a team of agents in conversation: the members contribute in turn, and one agent answers at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, TypeVar

from pydantic import Field

from practicum.core.bounded import MaxChars, Output
from practicum.core.context import Context
from practicum.core.errors import OutputError, ProviderError, RequestError
from practicum.core.types import Attempt, Instructions, Step, Task, Trace
from practicum.core.views import truncate
from practicum.engine.run import ActSeam, Run
from practicum.methods.blocks.show import full_view, learning_feedback

F = TypeVar("F", bound=Output)

Work = Callable[[Task, Run], Awaitable[tuple[Sequence[Step], str]]]
"""Function that runs a team before one agent answers. Returns the steps of the team, and the text for the agent that
answers."""


class Contribution(Output):
    """What a member of a team contributes."""

    text: Annotated[str, MaxChars(1_200, 32_000)] = Field(description="what you contribute, complete in itself")


def by_team(work: Work, answering: Instructions, warmth: float) -> ActSeam:
    """Return an act seam in which the team works, and then one agent answers the task as in a normal attempt: this
    agent is shown the whole context, and the team's text as a note. If a call of a member fails, the attempt has no
    answer."""

    async def act(task: Task, context: Context, run: Run) -> Attempt:
        working = replace(run, warmth=warmth)
        view = await full_view(context, task, run)
        try:
            steps, text = await work(task, working.at("team"))
        except (OutputError, ProviderError) as error:
            trace = Trace("", error=str(error), lost=True, refused=isinstance(error, RequestError))
        else:
            # The team's text may fill about half of the agent's prompt; the rest is for the task and the context.
            note = f"{truncate(text, 2 * run.room('agent'))}\n\n{answering.text(run.profile)}"
            trace = await working.at("answer").agent(task, view.with_note(note))
            trace = replace(trace, steps=(*steps, *trace.steps))
        score = await run.score(task, trace)
        return Attempt(task, trace, score, await learning_feedback(task, trace, score, run), run.place)

    return act


async def ask_member(instructions: Instructions, parts: Sequence[str], form: type[F], task: Task, run: Run) -> F:
    """Ask a member of the team about the task. The prompt ends with `parts`. Return the member's output, of the class
    `form`."""
    choices = [f"# Possible answers\n{'; '.join(run.choices)}"] if run.choices else []
    shown = [*run.agent_instructions, *choices, f"# Task\n{task.text}", *filter(None, parts)]
    return await run.ask_fitted("agent", instructions.prompt(run.profile, shown), form)
