"""Memories: which attempts they are extracted from, and how they are worded, found and merged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from helpers import client
from runs import indoors
from scripts import memory

from practicum.blocks.reflect.per_trace import alongside
from practicum.blocks.update.dedupe import deduplicated
from practicum.blocks.update.memory_bank import (
    MEMORIES,
    Extract,
    Index,
    Memory,
    append_memories,
    extract_memories,
    memory_entry,
    usage_votes,
)  # fmt: skip
from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Lesson, Profile, Rollout, Task, Trace
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient


def tried(answer: str, success: bool | None, *siblings: Rollout, task: str = "t1", **how: Any) -> Rollout:
    trace = Trace(answer, **{k: v for k, v in how.items() if k in ("used", "data", "error", "lost")})
    said = Feedback(success, "Found right." if success else "Found wrong.")
    return Rollout(
        Task(task, f"The words of {task}."), trace, None, said, f"{task}/{answer}", siblings=siblings,
        choice=how.get("choice", {}), retrieved=how.get("retrieved", ()),
    )  # fmt: skip


def about_the_answer(call: Call) -> str:
    answer = call.prompt.user.rpartition("Answer: ")[2].splitlines()[0]
    return json.dumps(memory(f"with {answer}"))


def lessons(
    rollouts: Sequence[Rollout], respond: Callable[[Call], str | Exception] = about_the_answer, most: int = 3,
    extract: Extract = "all", index: Index = "memory", context: Context | None = None, profile: Profile = "small",
) -> tuple[list[Lesson], ScriptedClient, Mapping[str, int]]:  # fmt: skip
    model = client(respond)
    run = indoors(model, profile=profile)
    reflect = alongside(votes=usage_votes, memories=extract_memories(most, extract, 1.0, index))
    found = asyncio.run(reflect(rollouts, context or Context(), run))
    return found, model, +run.counts


def appended(found: Sequence[Lesson], run: Run, context: Context, threshold: float | None = None) -> Context:
    update = append_memories if threshold is None else deduplicated(append_memories, threshold)
    return context.apply(asyncio.run(update(found, context, run))).context


def texts(found: Sequence[Lesson]) -> list[str]:
    return [lesson.text for lesson in found if lesson.text]


# ---- of what, and how many


def test_equal_attempts_are_extracted_once_and_lost_ones_never() -> None:
    lost = tried("", False, error="the line is dead", lost=True)
    states = [tried("done", False, data={"state": n}) for n in (1, 2)]
    _, model, counts = lessons([tried("a", True, tried(" A.", True), lost, *states, tried("done", True))])
    assert len(model.calls) == 4
    assert counts == {}


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ('{"items": []}', "no_memories"),
        ('{"items": [{"title": "t", "description": "d", "content": " "}]}', "no_memories"),
        (json.dumps(memory(*map(str, range(101)))), "lost_extractions"),
        (json.dumps(memory("x" * 10_000)), "lost_extractions"),
        ("no JSON at all", "lost_extractions"),
        (ProviderError("provider.failed", "down"), "lost_extractions"),
    ],
    ids=["none", "blank", "a hundred and one", "a novel", "words", "down"],
)
def test_an_extraction_without_memories_is_counted_and_the_others_are_kept(said: str | Exception, count: str) -> None:
    def respond(call: Call) -> str | Exception:
        return said if "of t1" in call.text else about_the_answer(call)

    found, _, counts = lessons([tried("a", True), tried("b", True, task="t2")], respond)
    assert texts(found) == ["Successful approach: with b (such tasks). do with b"]
    assert counts[count] == 1


# ---- what is read


def test_the_prompt_shows_findings_notes_and_known_memories() -> None:
    context = seed_context([(MEMORIES, "Look twice."), ("rules", "Be kind.")])
    first, second = (tried(f"a{n}", False, data={"note": f"note {n}"}) for n in (1, 2))
    choice = {"contrast": {"holds": ["all looked"], "separates": [], "spurious": []}}
    last = tried("a3", True, first, second, data={"note": "note 3"}, used=("e0", "e9"), choice=choice)
    _, model, _ = lessons([last], context=context)
    shown = model.calls[0].prompt.user
    assert "# Memories it relied on, which are known already\n- Look twice.\n" in shown
    assert "Common to attempts that went well:\n- all looked" in shown
    assert "- note 1\n- note 2\n- note 3" in shown
    assert "# The attempt, which went well\nTask: The words of t1.\nAnswer: a3\nFeedback: Found right." in shown
    assert "Be kind" not in model.calls[0].text
    assert "# The attempt, which failed\n" in model.calls[1].prompt.user


def test_existing_entries_that_an_attempt_used_get_votes_by_its_outcome() -> None:
    context = seed_context([(MEMORIES, "Look twice."), (MEMORIES, "Never look.")])
    found, model, _ = lessons(
        [tried("a", True, used=("e0", "e7")), tried("b", False, task="t2", used=("e0", "e1"))], context=context
    )
    after = appended(found, indoors(model), context)
    assert [(e.helpful, e.harmful, e.uses) for e in after][:2] == [(1, 1, 2), (0, 1, 1)]


# ---- as entries


def test_a_memory_is_keyed_by_its_text_or_by_its_task() -> None:
    found, model, _ = lessons([tried("a", False)])
    (entry,) = appended(found, indoors(model), Context())
    assert (entry.section, entry.key) == (MEMORIES, "with a. such tasks do with a")
    assert entry.data == {
        "title": "with a", "description": "such tasks", "content": "do with a", "outcome": "failure",
    }  # fmt: skip
    by_task, model, _ = lessons([tried("a", False)], index="task")
    assert [e.key for e in appended(by_task, indoors(model), Context())] == ["The words of t1."]


STEPS = """\
Pages end with a short page, not with an error.

1. Ask for the largest page that is allowed.
2. Go on until a page is empty:
   ```python
   while batch := api.list(page=page, limit=20):
       items += batch
       page += 1
   ```
3. Count the items before you answer."""


@pytest.mark.parametrize("profile", ["full", "small"])
def test_a_memory_of_several_lines_is_kept_word_for_word(profile: Profile) -> None:
    content = STEPS * 4
    assert 1_000 < len(content) < 2_000
    said = json.dumps({"items": [{"title": "Paging", "description": "A list has pages.", "content": content}]})
    found, model, counts = lessons([tried("a", True)], lambda call: said, profile=profile)
    (entry,) = appended(found, indoors(model), Context())
    assert entry.text == f"Successful approach: Paging (A list has pages.)\n{content}"
    assert (entry.data["content"], counts) == (content, {})


def test_capable_models_get_whole_instructions_no_examples_and_no_bounds() -> None:
    long = tried("a", False, data={"note": "first\nsecond"}, retrieved=(("e0", 0.9),))
    context = seed_context([(MEMORIES, "Look twice.")])
    (_, model, _), (_, small, _) = (
        lessons([long], context=context, profile=profile) for profile in ("full", "small")
    )  # fmt: skip
    (call,), (short,) = model.calls, small.calls
    assert (call.prompt.turns, len(short.prompt.turns)) == ((), 5)
    assert "up to 2,000 characters" in call.prompt.system
    assert "Leave out what holds for this task or this set of data alone" in call.prompt.system
    assert not {"maxLength", "maxItems"} & set(re.findall(r"\w+", json.dumps(call.schema)))
    assert '"maxLength": 280' in json.dumps(short.schema)
    # It was shown to an agent that cited nothing.
    assert "known already\n- Look twice." in call.prompt.user
    assert "known already" not in short.prompt.user
    assert "- first\n  second" in call.prompt.user.replace("-\n  first", "- first")


@pytest.mark.parametrize(
    ("title", "description", "text"),
    [
        ("Menus", "nested ones", "Menus (nested ones). Hover."),
        ("Menus.", "", "Menus. Hover."),
        ("", "nested ones", "nested ones. Hover."),
        ("", "", "Hover."),
    ],
)
def test_a_memory_without_title_or_description_reads_well(title: str, description: str, text: str) -> None:
    memory = Memory(title=title, description=description, content="Hover.")
    assert memory_entry(memory, True, ()).text == f"Successful approach: {text}"
    assert memory_entry(memory, False, ()).text == f"Failed approach (avoid): {text}"


def test_a_success_and_a_failure_are_never_merged() -> None:
    wary = lambda call: json.dumps(memory("never looking"))  # noqa: E731
    found, model, _ = lessons([tried("a", True), tried("b", False, task="t2")], wary)
    assert len(appended(found, indoors(model), Context(), threshold=0.5)) == 2
