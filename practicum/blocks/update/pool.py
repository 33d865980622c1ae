"""Experience pools: each step of an attempt by a network of agents becomes an entry in its agent's pool (MAEL, section
2.3; METHODS, section 6)."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Vote
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run


def pooled() -> UpdateSeam:
    """Add each experience to the pool of the agent that made it, and count a use of each experience that was shown."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        shown = (lesson for lesson in lessons if lesson.data.get("experience") in context)
        used = (Vote(x.data["experience"], uses=1, sources=x.sources, lessons=(x.id,)) for x in shown)
        return Delta((*used, *(_edit(lesson) for lesson in lessons if "reward" in lesson.data)))

    return update


def _edit(lesson: Lesson) -> Add:
    data = {name: lesson.data[name] for name in ("kind", "reward", "trace", "said") if lesson.data[name] != ""}
    section, key = POOL + str(lesson.data["agent"]), str(lesson.data["state"])
    return Add(section, lesson.text, key, data, sources=lesson.sources, lessons=(lesson.id,))
