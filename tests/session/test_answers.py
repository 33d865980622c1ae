"""Answers of models: thoughts are removed, and an answer without text is counted by its kind."""

from __future__ import annotations

import asyncio

import pytest
from helpers import client, make_tasks
from scripts import number

import practicum
from practicum.core.counts import Count
from practicum.core.types import Task
from practicum.testing import ServerOptions, serve

GPT_OSS = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final<|message|>word0<|return|>"
GPT_OSS_JSON = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final <|constrain|>json"

TEXTS = {
    # Forms of most models, with and without the opening mark, which the chat template may have written.
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
}


@pytest.mark.parametrize("own", [False, True], ids=["model", "agent of the user"])
def test_thoughts_are_not_part_of_an_answer(own: bool) -> None:
    texts = [*TEXTS]

    async def agent(task: str, context: str) -> str:
        return texts[int(task.split()[1].rstrip(":"))]

    model = client(lambda call: texts[number(call)])
    parts = practicum.Parts(agent=agent) if own else practicum.Parts(clients={"agent": model})
    tasks = make_tasks(len(texts))
    result = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), parts=parts, scorer="exact"))
    assert [each.first.trace.answer for each in result.attempts] == [*TEXTS.values()]
    assert result.errors == 0


BEHAVIOURS = {
    "thoughts": None, "reasoning-content": None, "thoughts-unclosed": Count.SILENT_CUTS,
    "empty": Count.EMPTY_ANSWERS, "refusal": Count.REFUSED_ANSWERS, "filtered": Count.FILTERED_ANSWERS,
}  # fmt: skip


@pytest.mark.parametrize(("behaviour", "kind"), BEHAVIOURS.items())
def test_answers_of_a_server_without_text_are_counted_by_kind_and_thoughts_are_removed(
    behaviour: str, kind: Count | None
) -> None:
    async def evaluate() -> practicum.Evaluation:
        options = ServerOptions(behaviours=[(behaviour, 2 if kind else 1)], responder=lambda body: "word0")
        tasks = [Task(f"t{n}", f"Say word0 ({n})", "word0") for n in range(4)]
        async with serve(options) as server:
            how = {"model": f"{server.url}#sim", "scorer": "exact", "concurrency": 1}
            return await practicum.evaluate(tasks, practicum.Context(), **how)

    result = asyncio.run(evaluate())
    if kind is None:
        assert (result.score, dict(result.counts)) == (1.0, {})
    else:
        assert (result.score, result.errors) == (0.5, 2)
        assert dict(result.counts) == {kind: 2, Count.LOST_ATTEMPTS: 2}
