"""Whether a delta is taken, and in what form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Lesson, Rollout
from practicum.engine.loop import AcceptSeam, UpdateSeam
from practicum.engine.run import Run


async def always(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
    """Every delta is taken."""
    return delta


def always_after(wrap: Callable[[UpdateSeam], UpdateSeam]) -> AcceptSeam:
    """Every delta is taken, after the wrappers of an update (de-duplication, budget) have seen it against the context
    it is applied to: for schedules in which that is not the one it was made from."""

    async def accept(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        async def given(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            return delta

        return await wrap(given)((), context, run)

    return accept
