"""Contrasts of several attempts: what is asked, what is left out, and when no call is made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from helpers import client
from runs import indoors
from scripts import FORM

from practicum.blocks.reflect.self_contrast import Contrast, contrasted
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Rollout, Task, Trace
from practicum.models.scripted import Call

WORDS = {False: "The answer is wrong.", True: "The answer is right.", None: "Nothing is known."}


def tried(answer: str, success: bool | None, reasoning: str = "", lost: bool = False) -> Rollout:
    trace = Trace(answer, reasoning, error="the line is dead" if lost else None, lost=lost)
    return Rollout(Task("t", "Say it."), trace, None, Feedback(success, WORDS[success]), "place")


def contrast(
    tries: Sequence[Rollout], said: str | Exception | None = None, window: int | None = None
) -> tuple[Contrast | None, list[Call], dict[str, int]]:
    whole = json.dumps({**FORM, "holds": ["both looked twice"], "spurious": ["the weather"], "best": 2, "why": "calm"})
    model = client(lambda call: whole if said is None else said, window=window)
    run = indoors(model)
    return asyncio.run(contrasted(tries, run)), model.calls, dict(run.counts)


@pytest.mark.parametrize("said", ["nothing of use", ProviderError("provider.failed", "down"), '{"best": 0}'], ids=str)
def test_a_failed_contrast_is_counted(said: str | Exception) -> None:
    found, _, counts = contrast([tried("a", True), tried("b", False)], said)
    assert found is None
    assert counts["lost_contrasts"] == 1
