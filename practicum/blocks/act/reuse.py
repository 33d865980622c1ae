"""Reuse of attempts: no task is attempted twice while the agent would see the same context.

A task may come back before anything was learned: from the replay buffer, or in a later epoch. Nothing that the agent
reads has changed then, so the earlier attempt is used in place of a new one.
"""

from __future__ import annotations

from dataclasses import replace

from practicum.blocks.act.show import Answer
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Rollout, Task
from practicum.engine.run import Run


def reused(act: Answer) -> Answer:
    """Apply `act`, or return the rollout of the same task under a context of the same digest, at this place.

    The members of a group are kept apart. A try with a note is not reused, nor is an attempt that was lost, failed with
    an error, or has no verdict where one was wanted. What is kept follows from the attempts so far, so a resume finds
    it again.
    """

    async def wrapped(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        if note:
            return await act(task, context, run, note)
        known, digest, key = run.reusable, context.digest, (act, task.id, run.member)
        if old := known.get(digest, {}).get(key):
            run.count(Count.REUSED_ATTEMPTS)
            return replace(old, place=run.place, of=old.place)
        rollout = await act(task, context, run)
        # No judge is asked about an attempt that nothing is learned from.
        if rollout.trace.error is None and (rollout.feedback.success is not None or not run.teaches):
            if digest not in known:
                known.clear()
            known.setdefault(digest, {})[key] = rollout
        return rollout

    return wrapped
