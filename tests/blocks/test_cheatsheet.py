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
    attempts_as_lessons,
    keep_attempts_and_sheet,
    rewrite_cheatsheet,
    sheet,
    synthesizing,
)  # fmt: skip
from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Instructions, Lesson, Rollout, Task, Trace
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
    return [
        Lesson(f"l{i}", f"tried {i}", sources=(f"task:t{i}",), data={"input": f"say {i}", "sheet": ""})
        for i in range(n)
    ]


def rewritten(model: ScriptedClient, context: Context, n: int = 2) -> tuple[Context, Run]:
    run = indoors(model)
    return context.apply(asyncio.run(rewrite_cheatsheet(Instructions("Write."))(lessons(n), context, run))).context, run


def test_attempts_are_lessons_without_their_outcome_unless_they_are_lost() -> None:
    (task,) = make_tasks(1)
    made = Rollout(task, Trace("an answer"), None, Feedback(False, "It is wrong."), "step 1/0")
    lost = replace(made, trace=Trace("", error="away", lost=True))
    run = indoors(scripted())
    (lesson,) = asyncio.run(attempts_as_lessons([made, lost], Context(), run))
    assert "an answer" in lesson.text
    assert (lesson.id, lesson.data) == ("step 1/0", {"input": task.input, "sheet": ""})


def test_the_sheet_is_one_entry_that_is_rewritten_from_the_old_one_and_the_attempts() -> None:
    model = writing("First.", "Second.")
    first, _ = rewritten(model, Context())
    second, _ = rewritten(model, first)
    assert [(e.id, e.text, e.sources) for e in second] == [("e0", "Second.", ("task:t0", "task:t1"))]
    assert "# The cheatsheet so far\n(empty)" in model.calls[0].prompt.user
    assert (
        "# The cheatsheet so far\nFirst.\n\n# Attempt 1\ntried 0\n\n# Attempt 2\ntried 1" in model.calls[1].prompt.user
    )


@pytest.mark.parametrize(
    "answer", ["Look twice.", "  ", ProviderError("provider.failed", "away")], ids=["same", "blank", "failed"]
)
def test_the_sheet_stays_if_the_call_gives_no_other(answer: str | Exception) -> None:
    context, run = rewritten(writing(answer), OLD)
    assert context == OLD
    assert run.counts.get("lost_updates", 0) == isinstance(answer, Exception)


def test_without_attempts_no_call_is_made() -> None:
    model = writing()
    assert rewritten(model, OLD, 0)[0] == OLD
    assert model.calls == []


def attempted(model: ScriptedClient, context: Context) -> tuple[Rollout, Run]:
    run = indoors(model)
    act = synthesizing(Instructions("Prepare."), 1)
    return asyncio.run(act(Task("t", "Message 1: say 1"), context, run)), run


def head(model: ScriptedClient) -> str:
    return next(call.prompt.head for call in model.calls if call.role == "agent")


def test_a_sheet_is_written_for_a_task_from_similar_attempts_and_is_the_next_sheet() -> None:
    delta = asyncio.run(keep_attempts_and_sheet(lessons(2), OLD, indoors(scripted())))
    context = OLD.apply(delta).context
    assert [(e.text, e.key) for e in context.in_section(CASES)] == [("tried 0", "say 0"), ("tried 1", "say 1")]
    model = writing("# For you\n\n1. Look.\n2. Say it.")
    rollout, run = attempted(model, context)
    assert head(model).endswith("# For you\n\n1. Look.\n2. Say it.")
    assert [id for id, _ in rollout.retrieved] == ["e2"]
    assert model.calls[0].prompt.user == (
        "# The cheatsheet so far\nLook twice.\n\n# Attempt at a task like it\ntried 1\n\n"
        "# The next task\nMessage 1: say 1"
    )
    taught = asyncio.run(attempts_as_lessons([rollout], context, run))
    after = context.apply(asyncio.run(keep_attempts_and_sheet(taught, context, run))).context
    (carried,) = after.in_section(SHEET)
    assert carried.text == "# For you\n\n1. Look.\n2. Say it."
    # It rests on the attempt that it was written from.
    assert {"task:t1", "task:t"} <= {*carried.sources}
    assert len(after.in_section(CASES)) == 3


def test_the_sheet_so_far_is_shown_if_the_call_fails_or_if_there_are_no_attempts() -> None:
    context = OLD.apply(asyncio.run(keep_attempts_and_sheet(lessons(2), OLD, indoors(scripted())))).context
    failing, idle, empty = writing(ProviderError("provider.failed", "away")), writing(), writing()
    rollout, run = attempted(failing, context)
    assert "Look twice." in head(failing)
    taught = asyncio.run(attempts_as_lessons([rollout], context, run))
    kept = context.apply(asyncio.run(keep_attempts_and_sheet(taught, context, run))).context
    assert [e.text for e in kept.in_section(SHEET)] == ["Look twice."]
    attempted(idle, OLD)
    assert "Look twice." in head(idle)
    attempted(empty, Context())
    assert [call.role for call in (*idle.calls, *empty.calls)] == ["agent", "agent"]
    assert sheet(Context()) is None


def test_a_sheet_of_many_pages_is_kept_whole() -> None:
    long = "\n".join(f"{n}. {'x' * 90}" for n in range(300))
    context, run = rewritten(writing(long), OLD)
    assert [e.text for e in context] == [long]
    assert not run.counts
