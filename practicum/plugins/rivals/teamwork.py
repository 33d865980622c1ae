"""An attempt by a team of agents in conversation: they contribute in turn, and one of them answers at the end."""

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
"""What a team does before it answers: its steps, and the text that whoever answers reads."""


class Contribution(Output):
    """What a member of a team contributes."""

    text: Annotated[str, MaxChars(1_200, 32_000)] = Field(description="what you contribute, complete in itself")


def by_team(work: Work, answering: Instructions, warmth: float) -> ActSeam:
    """One attempt: the team works, then its last agent answers the task as in any other attempt, with the whole context
    and, as a note, the text that the team came to. If a member's model fails, there is no answer."""

    async def act(task: Task, context: Context, run: Run) -> Attempt:
        working = replace(run, warmth=warmth)
        view = await full_view(context, task, run)
        try:
            steps, text = await work(task, working.at("team"))
        except (OutputError, ProviderError) as error:
            trace = Trace("", error=str(error), lost=True, refused=isinstance(error, RequestError))
        else:
            # Half of the window is left to the task and the context.
            note = f"{truncate(text, 2 * run.room('agent'))}\n\n{answering.text(run.profile)}"
            trace = await working.at("answer").agent(task, view.with_note(note))
            trace = replace(trace, steps=(*steps, *trace.steps))
        score = await run.score(task, trace)
        return Attempt(task, trace, score, await learning_feedback(task, trace, score, run), run.place)

    return act


async def asked(told: Instructions, parts: Sequence[str], form: type[F], task: Task, run: Run) -> F:
    """What a member of the team says about the task, in this form, after it read these parts."""
    choices = [f"# Possible answers\n{'; '.join(run.choices)}"] if run.choices else []
    shown = [*run.agent_instructions, *choices, f"# Task\n{task.input}", *filter(None, parts)]
    return await run.ask_fitted("agent", told.prompt(run.profile, shown), form)
