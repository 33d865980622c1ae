"""Experience pools: each step of an attempt by a network of agents becomes an entry in its agent's pool (MAEL, section
2.3; METHODS, section 6)."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Vote
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run


def pooled() -> UpdateSeam:
    """Add each experience to the pool of the agent that made it, and count a use of each experience that was shown."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        edits: list[Edit] = [
            Vote(x.data["experience"], uses=1, sources=x.sources, lessons=(x.id,))
            for x in lessons
            if x.data.get("experience") in context
        ]
        for lesson in lessons:
            if "reward" in lesson.data:
                data = {
                    name: lesson.data[name] for name in ("kind", "reward", "trace", "said") if lesson.data[name] != ""
                }
                section, key = POOL + lesson.data["agent"], lesson.data["state"]
                edits.append(Add(section, lesson.text, key, data, sources=lesson.sources, lessons=(lesson.id,)))
        return Delta(tuple(edits))

    return update
