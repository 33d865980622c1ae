"""One sheet that is rewritten from each step's attempts, or written for each task from similar attempts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from helpers import make_tasks
from runs import indoors
from scripts import scripted

from practicum.blocks.update.cheatsheet import (
    CASES,
    SHEET,
    append_attempts,
    attempts_as_lessons,
    rewrite_cheatsheet,
    sheet,
    synthesized_cheatsheet,
)  # fmt: skip
from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.core.views import View
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient

OLD = seed_context([(SHEET, "Look twice.")])


def writing(*answers: str | Exception) -> ScriptedClient:
    """A curator that writes these sheets, one a call."""
    left = list(answers)

    def curator(call: Call) -> Any:
        answer = left.pop(0)
        return answer if isinstance(answer, Exception) else {"sheet": answer}

    return scripted(curator=curator)


def lessons(n: int) -> list[Lesson]:
    return [Lesson(f"l{i}", f"tried {i}", sources=(f"task:t{i}",), data={"input": f"say {i}"}) for i in range(n)]


def rewritten(model: ScriptedClient, context: Context, n: int = 2) -> tuple[Context, Run]:
    run = indoors(model)
    return context.apply(asyncio.run(rewrite_cheatsheet("Write.")(lessons(n), context, run))).context, run


def test_attempts_are_lessons_without_their_outcome_unless_they_are_lost() -> None:
    (task,) = make_tasks(1)
    made = Rollout(task, Trace("an answer"), None, Feedback(False, "It is wrong."), "step 1/0")
    lost = replace(made, trace=Trace("", error="away", lost=True))
    run = indoors(scripted())
    (lesson,) = asyncio.run(attempts_as_lessons([made, lost], Context(), run))
    assert "an answer" in lesson.text
    assert (lesson.id, lesson.data) == ("step 1/0", {"input": task.input})


def test_the_sheet_is_one_entry_that_is_rewritten_from_the_old_one_and_the_attempts() -> None:
    model = writing("First.", "Second.")
    first, _ = rewritten(model, Context())
    second, _ = rewritten(model, first)
    assert [(e.id, e.text, e.sources) for e in second] == [("e0", "Second.", ("task:t0", "task:t1"))]
    assert "# The cheatsheet so far\n(empty)" in model.calls[0].prompt.user
    assert (
        "# The cheatsheet so far\nFirst.\n\n# Attempt 1\ntried 0\n\n# Attempt 2\ntried 1" in model.calls[1].prompt.user
    )


@pytest.mark.parametrize("answer", ["Look twice.", "  ", ProviderError("away")], ids=["same", "blank", "failed"])
def test_the_sheet_stays_if_the_call_gives_no_other(answer: str | Exception) -> None:
    context, run = rewritten(writing(answer), OLD)
    assert context == OLD
    assert run.counts.get("lost_updates", 0) == isinstance(answer, Exception)


def test_without_attempts_no_call_is_made() -> None:
    model = writing()
    assert rewritten(model, OLD, 0)[0] == OLD
    assert model.calls == []


def shown(model: ScriptedClient, context: Context) -> View:
    run = indoors(model)
    return asyncio.run(synthesized_cheatsheet("Write.", 1)(context, Task("t", "say 1"), run))


def test_a_sheet_is_written_for_a_task_from_similar_attempts() -> None:
    delta = asyncio.run(append_attempts(lessons(2), OLD, indoors(scripted())))
    context = OLD.apply(delta).context
    assert [(e.text, e.key) for e in context.in_section(CASES)] == [("tried 0", "say 0"), ("tried 1", "say 1")]
    model = writing("For you.")
    view = shown(model, context)
    assert view.pages == ("For you.",)
    assert [id for id, _ in view.retrieved] == ["e2"]
    assert model.calls[0].prompt.user.endswith(
        "# Attempt at a task like it\ntried 1\n\n# The task to prepare for\nsay 1"
    )
    # The present sheet is shown if the call fails.
    assert "Look twice." in "".join(shown(writing(ProviderError("away")), context).pages)


def test_the_present_sheet_is_shown_if_there_are_no_attempts() -> None:
    model = writing()
    assert "Look twice." in "".join(shown(model, OLD).pages)
    assert shown(model, Context()).pages == ()
    assert model.calls == []
    assert sheet(Context()) is None
