"""Budgets are hard: no call, token, dollar or minute above; a larger budget finishes the rest."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from python_kit import Seen, learned, refused, resumed, slow
from python_roles import agent, model
from python_tasks import messages

from practicum import ScriptedClient

SIX = messages(*range(6))


class Priced(ScriptedClient):
    """A model that costs a cent for each call and 0.1 cents for each token that it reads or writes."""

    def cost(self, usage: Any) -> float:
        return float(0.01 * usage.calls + 0.001 * (usage.input_tokens + usage.output_tokens))

    async def complete(self, role: str, prompt: Any, schema: Any, options: Any) -> Any:
        reply = await super().complete(role, prompt, schema, options)
        return replace(reply, usage=replace(reply.usage, usd=self.cost(reply.usage)))


HOW: dict[str, Any] = {"settings": {"batch": 3}, "max_output_tokens": 256}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A run without a budget, with a model that costs something."""
    return learned(tmp_path_factory.mktemp("whole"), SIX, Priced(model().respond), **HOW)


@pytest.mark.parametrize(("most", "concurrency"), [slow(9, 1), (17, 8)])
def test_calls_are_never_above_and_a_resume_goes_on(tmp_path: Path, whole: Seen, most: int, concurrency: int) -> None:
    cut = learned(tmp_path, SIX, max_calls=most, concurrency=concurrency, **HOW)
    assert len(cut.model.calls) == cut.result.usage.calls <= most
    assert cut.result.stopped is not None
    assert "budget" in cut.result.stopped
    # A refusal calls no model and changes nothing.
    played = model()
    for changed, code in (
        ({"temperature": 0.9}, "settings.fixed"),
        ({"agent": "somewhere:else"}, "settings.fixed"),
        ({"method": "rcl"}, "settings.unknown"),
        ({"seed": 7}, "settings.unknown"),
        ({"max_calls": 3}, "budget.spent"),
        ({"timeout": -1.0}, "settings.invalid"),
    ):
        with refused(code):
            resumed(cut.folder, played, **changed)
    assert played.calls == []
    again = resumed(cut.folder, cut.model, max_calls=1000, concurrency=2, timeout=7.0, retries=1)
    assert again.result.stopped is None
    assert again.exported == whole.exported
    assert len(cut.model.calls) == len(whole.model.calls)


def test_tokens_and_dollars_are_never_above(tmp_path: Path, whole: Seen) -> None:
    usage, played = whole.result.usage, Priced(model().respond)
    with refused("budget.too_small"):
        learned(tmp_path, SIX, played, max_usd=0.001, **HOW)
    assert played.calls == []
    tokens = round(0.4 * usage.tokens)
    cut = learned(tmp_path / "tokens", SIX, Priced(model().respond), max_tokens=tokens, **HOW)
    assert cut.result.stopped is not None
    assert 0 < cut.result.usage.tokens <= tokens
    cut = learned(tmp_path, SIX, played, max_usd=0.7 * usage.usd, **HOW)
    assert cut.result.stopped is not None
    assert 0 < cut.result.usage.usd <= 0.7 * usage.usd
    again = resumed(cut.folder, played, max_usd=7 * usage.usd)
    assert again.exported == whole.exported
    assert again.result.usage.tokens == usage.tokens
    assert again.result.usage.usd == pytest.approx(usage.usd)


def test_minutes_are_never_above_and_add_up_over_all_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by ten minutes with each call."""
    passed, true = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: true() + passed[0])

    def slow(call: Any) -> Any:
        passed[0] += 600
        return agent(call)

    cut = learned(tmp_path, SIX, model(agent=slow), max_minutes=45, concurrency=1, **HOW)
    assert cut.result.stopped is not None
    assert len(cut.calls("agent")) == 5
    assert cut.result.seconds >= 45 * 60
    with refused("budget.spent"):
        resumed(cut.folder, cut.model, max_minutes=40)
