"""Updates by plain code: votes, the token budget, harmful entries, one episode a task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runs import indoors

from practicum.blocks.update.append import append, newest_per_key
from practicum.core.context import PAGE, ApplyResult, Context, Page
from practicum.core.edits import Add, Delta, Entry, Update
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.models.scripted import Call


def no_model(call: Call) -> str:
    raise AssertionError("the model was asked")


def delta_of(update: UpdateSeam, context: Context, lessons: Sequence[Lesson], run: Run) -> Delta:
    return asyncio.run(update(lessons, context, run))


def ran(update: UpdateSeam, context: Context, lessons: Sequence[Lesson] = ()) -> tuple[ApplyResult, Mapping[str, int]]:
    """The delta of an update, applied, and what was counted."""
    run = indoors(no_model)
    return context.apply(delta_of(update, context, lessons, run)), run.counts


def episode(answer: str, **data: Any) -> Lesson:
    return Lesson("l", "Which?", data={"answer": answer, **data}, sources=(f"rollout:{answer}",))


def test_an_episode_is_found_without_reading_every_page() -> None:
    class Closed(Page):
        """One whose entries are not to be looked at."""

        @property
        def entries(self) -> dict[int, Entry]:
            raise AssertionError("looked at")

    update = newest_per_key(append("episodes"))
    old = [Add("episodes", f"{n}?", data={"answer": "a"}) for n in range(5 * PAGE)]
    context = Context().apply(Delta((*old, Add("rules", "7?"), Add("episodes", "8?", data={"answer": "b"})))).context
    ran(update, context, [episode("x")])
    pages = [page if n in (0, 5) else Closed(None, like=page) for n, page in enumerate(context.pages)]
    lessons = [Lesson("l", text, data={"answer": "c"}) for text in ("7?", "8?", "no such?")]
    delta = delta_of(update, replace(context, pages=tuple(pages)), lessons, indoors(no_model))
    said = [(type(e), e.id if isinstance(e, Update) else e.text) for e in delta.edits if isinstance(e, Add | Update)]
    assert said == [(Update, "e7"), (Update, f"e{5 * PAGE + 1}"), (Add, "no such?")]
