"""Thoughts are removed from the answers of models and of the agents of users."""

from __future__ import annotations

import pytest
from helpers import client, make_tasks
from scripts import number

import practicum

GPT_OSS = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final<|message|>word0<|return|>"
GPT_OSS_JSON = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final <|constrain|>json"

TEXTS = {
    # Forms of most models, with and without the opening mark, which the chat template may have written.
    "<think>\nEagle?\n</think>\n\nword0": "word0",
    "Eagle?\n</think>\n\nword0": "word0",
    "<think>a</think>word1<think>b</think>word0": "word0",
    "<think>a</think>word0\n<think>and then": "word0",
    "[THINK]Eagle?[/THINK]word0": "word0",
    "<seed:think>Eagle?</seed:think>word0": "word0",
    "<|START_THINKING|>Eagle?<|END_THINKING|><|START_RESPONSE|>word0<|END_RESPONSE|>": "word0",
    "<|channel>thought\nEagle?<channel|>word0": "word0",
    GPT_OSS: "word0",
    f"{GPT_OSS_JSON}<|message|>word0": "word0",
    "<thinking>Eagle?</thinking>\nword0": "word0",
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
