"""No attempt is made twice under what an agent sees: its outcome stands until the context shows something else.

A task may come back before anything was learned: from the replay buffer, or in a later epoch. Then nothing that the
agent reads has changed, so the attempt that was made stands for the one that would be.
"""

from __future__ import annotations

from dataclasses import replace

from practicum.blocks.act.show import Answer
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Rollout, Task
from practicum.engine.run import Run


def reused(act: Answer) -> Answer:
    """`act`, but for a task that it attempted before under a context of the same digest: that rollout, at this place.

    The members of a group are kept apart. A try with a note, and an attempt that was lost, failed with an error or
    should have been judged and was not, is made again. What is kept follows from the attempts so far, so a resume
    finds it again.
    """

    async def wrapped(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        if note:
            return await act(task, context, run, note)
        known, digest, key = run.reusable, context.digest, (act, task.id, run.member)
        if old := known.get(digest, {}).get(key):
            run.count(Count.REUSED_ATTEMPTS)
            return replace(old, place=run.place, of=old.place)
        rollout = await act(task, context, run)
        # Nobody is asked about what teaches nothing.
        if rollout.trace.error is None and (rollout.feedback.success is not None or not run.teaches):
            if digest not in known:
                known.clear()
            known.setdefault(digest, {})[key] = rollout
        return rollout

    return wrapped
