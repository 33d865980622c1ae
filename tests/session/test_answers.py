"""Answers as models give them: thoughts are no answer, and an answer without text is counted by its kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers import make_tasks

import practicum
from practicum.core.counts import Count
from practicum.core.types import Task
from practicum.models.scripted import ScriptedClient
from practicum.testing import ServerOptions, ServerProcess, serve, start_process

GPT_OSS = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final<|message|>word0<|return|>"
GPT_OSS_JSON = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final <|constrain|>json"

TEXTS = {
    # What most models write, with and without the opening mark, which the chat template may have written.
    "<think>\nEagle?\n</think>\n\nword0": "word0",
    "Eagle?\n</think>\n\nword0": "word0",
    "<think>\n\n</think>\n\nword0": "word0",
    "<think>a</think>word1<think>b</think>word0": "word0",
    "<think>a</think>word0\n<think>and then": "word0",
    "[THINK]Eagle?[/THINK]word0": "word0",
    "<seed:think>Eagle?</seed:think>word0": "word0",
    "<|START_THINKING|>Eagle?<|END_THINKING|><|START_RESPONSE|>word0<|END_RESPONSE|>": "word0",
    "<|channel>thought\nEagle?<channel|>word0": "word0",
    GPT_OSS: "word0",
    f"{GPT_OSS_JSON}<|message|>word0": "word0",
    "<thinking>Eagle?</thinking>\nword0": "word0",
    "<reasoning>Eagle?</reasoning>\nword0": "word0",
    # Marks that are part of an answer.
    "The tag `</think>` ends thoughts.": "The tag `</think>` ends thoughts.",
    "<think>They ask for `</think>`.</think>`</think>`": "`</think>`",
    "<doc><reasoning>a</reasoning></doc>": "<doc><reasoning>a</reasoning></doc>",
    '{"tag": "a </think> b"}': '{"tag": "a </think> b"}',
    "word0": "word0",
}


def attempt(text: str, **parts: Any) -> practicum.Evaluation:
    model = ScriptedClient(lambda call: text)
    given = practicum.Parts(**(parts or {"clients": {"agent": model}}))
    return practicum.run_sync(practicum.evaluate(make_tasks(1), practicum.Context(), parts=given, scorer="exact"))


@pytest.mark.parametrize(("text", "answer"), TEXTS.items())
def test_thoughts_are_no_part_of_an_answer_whoever_gives_it(text: str, answer: str) -> None:
    async def own(task: str, context: str) -> str:
        return text

    for found in (attempt(text), attempt(text, agent=own)):
        first = found.attempts[0].first
        assert (first.trace.answer, found.score, found.errors) == (answer, float(answer == "word0"), 0)


# ---- a server that behaves so

SILENT = {
    "thoughts-unclosed": Count.SILENT_CUTS, "only-reasoning-content": Count.SILENT_CUTS,
    "only-thinking-content": Count.SILENT_CUTS, "empty": Count.EMPTY_ANSWERS, "null-content": Count.EMPTY_ANSWERS,
    "refusal": Count.REFUSED_ANSWERS, "filtered": Count.FILTERED_ANSWERS,
}  # fmt: skip


async def _evaluate(behaviour: str, every: int) -> practicum.Evaluation:
    options = ServerOptions(behaviours=[(behaviour, every)], responder=lambda body: "word0")
    async with serve(options) as server:
        tasks = [Task(f"t{n}", f"Say word0 ({n})", "word0") for n in range(4)]
        return await practicum.evaluate(
            tasks, practicum.Context(), model=f"{server.url}#sim", scorer="exact", concurrency=1
        )  # fmt: skip


@pytest.mark.parametrize(
    "behaviour", ["thoughts", "thoughts-unopened", "reasoning-content", "reasoning", "list-content-thinking"]
)
def test_thoughts_of_a_server_are_no_part_of_the_answer(behaviour: str) -> None:
    found = asyncio.run(_evaluate(behaviour, 1))
    assert (found.score, dict(found.counts)) == (1.0, {})


@pytest.mark.parametrize(("behaviour", "kind"), SILENT.items())
def test_answers_without_text_are_counted_by_kind_and_nothing_else_fails(behaviour: str, kind: Count) -> None:
    found = asyncio.run(_evaluate(behaviour, 2))
    assert (found.score, found.errors) == (0.5, 2)
    assert dict(found.counts) == {kind: 2, Count.LOST_ATTEMPTS: 2}


@contextmanager
def server(behaviour: str) -> Iterator[ServerProcess]:
    with start_process(behaviours=((behaviour, 1),)) as process:
        yield process
