"""Every delta is accepted, as it is or after wrappers of an update have seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Lesson, Rollout
from practicum.engine.loop import AcceptSeam, UpdateSeam
from practicum.engine.run import Run


async def always(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
    """Accept every delta."""
    return delta


def always_after(wrap: Callable[[UpdateSeam], UpdateSeam]) -> AcceptSeam:
    """Accept every delta, after wrappers of an update (de-duplication, budget) have seen it beside the context that it
    is applied to: for schedules in which that is not the context that it was made from."""

    async def accept(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        async def given(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            return delta

        return await wrap(given)((), context, run)

    return accept
