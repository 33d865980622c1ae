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
SETTINGS: dict[str, Any] = {"batch": 3}


class Priced(ScriptedClient):
    """A model that costs a cent for each call and 0.1 cents for each token that it reads or writes."""

    def cost(self, usage: Any) -> float:
        return float(0.01 * usage.calls + 0.001 * (usage.input_tokens + usage.output_tokens))

    async def complete(self, role: str, prompt: Any, schema: Any, options: Any) -> Any:
        reply = await super().complete(role, prompt, schema, options)
        return replace(reply, usage=replace(reply.usage, usd=self.cost(reply.usage)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A run without a budget, with a model that costs something."""
    played = Priced(model().respond)
    return learned(tmp_path_factory.mktemp("whole"), SIX, played, settings=SETTINGS, max_output_tokens=256)


@pytest.mark.parametrize(("most", "concurrency"), [slow(8, 8), (9, 1), (17, 8)])
def test_calls_are_never_above_and_a_larger_budget_goes_on(
    tmp_path: Path, whole: Seen, most: int, concurrency: int
) -> None:
    cut = learned(tmp_path, SIX, settings=SETTINGS, max_calls=most, concurrency=concurrency, max_output_tokens=256)
    assert len(cut.model.calls) == cut.result.usage.calls <= most
    assert cut.result.stopped is not None
    assert "budget" in cut.result.stopped
    if concurrency == 1:
        # The same budget again pays nothing and reports the same.
        same = resumed(cut.folder)
        assert same.model.calls == []
        assert (same.exported, same.result.stopped) == (cut.exported, cut.result.stopped)
    again = resumed(cut.folder, cut.model, max_calls=1000)
    assert again.result.stopped is None
    assert again.exported == whole.exported
    assert len(cut.model.calls) == len(whole.model.calls)


@pytest.mark.parametrize(("limit", "unit", "share"), [("max_tokens", "tokens", 0.4), ("max_usd", "usd", 0.7)])
def test_tokens_and_dollars_are_never_above(tmp_path: Path, whole: Seen, limit: str, unit: str, share: float) -> None:
    most = share * getattr(whole.result.usage, unit)
    most = round(most) if unit == "tokens" else most
    played = Priced(model().respond)
    cut = learned(tmp_path, SIX, played, settings=SETTINGS, max_output_tokens=256, **{limit: most})
    assert cut.result.stopped is not None
    assert 0 < getattr(cut.result.usage, unit) <= most
    assert cut.result.usage.usd == pytest.approx(sum(map(cost_of, played.calls)), rel=0.2)
    again = resumed(cut.folder, played, **{limit: most * 10})
    assert again.exported == whole.exported
    assert again.result.usage.tokens == whole.result.usage.tokens
    assert again.result.usage.usd == pytest.approx(whole.result.usage.usd)


def cost_of(call: Any) -> float:
    return 0.01 + 0.001 * (len(call.text) / 4 + 20)


def test_minutes_are_never_above(tmp_path: Path, whole: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by ten minutes with each call."""
    passed, true = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: true() + passed[0])

    def slow(call: Any) -> Any:
        passed[0] += 600
        return agent(call)

    how: dict[str, Any] = {"settings": SETTINGS, "concurrency": 1, "max_output_tokens": 256}
    cut = learned(tmp_path, SIX, model(agent=slow), max_minutes=45, **how)
    assert cut.result.stopped is not None
    assert len(cut.calls("agent")) == 5
    assert cut.result.seconds >= 45 * 60
    # Minutes add up over all resumes.
    with refused("budget.spent"):
        resumed(cut.folder, cut.model, max_minutes=40)
    again = resumed(cut.folder, cut.model, max_minutes=10_000)
    assert again.exported == whole.exported


@pytest.mark.parametrize(
    ("code", "limits"),
    [
        ("budget.too_small", [{"max_calls": 1}, {"max_tokens": 50}, {"max_usd": 0.001}]),
        ("settings.invalid", [{"max_calls": 0}, {"max_tokens": -1}, {"max_usd": -1.0}, {"max_minutes": 0.0}]),
    ],
)
def test_a_budget_that_is_too_small_is_refused_before_a_call(
    tmp_path: Path, code: str, limits: list[dict[str, Any]]
) -> None:
    played = Priced(model().respond)
    for limit in limits:
        with refused(code):
            learned(tmp_path, SIX, played, **limit)
    assert played.calls == []
    assert not (tmp_path / "run").exists()


def test_a_part_of_the_budget_is_held_back_for_the_final_evaluation(tmp_path: Path) -> None:
    test = messages(0, 1, 2, 80)
    seen = learned(tmp_path, SIX, settings={"batch": 1}, test=test, max_calls=14)
    assert seen.result.stopped is not None
    assert len(seen.model.calls) <= 14
    assert len(seen.result.attempts["test"]) == 4
    assert "test" in seen.result.scores
    # With more, it learns on; the evaluation is then that of the last context.
    again = resumed(seen.folder, seen.model, max_calls=1000)
    assert again.result.scores["test"] == 0.75
    with refused("budget.too_small"):
        learned(tmp_path / "small", SIX, test=test, max_calls=3)


def test_a_budget_in_dollars_needs_prices(tmp_path: Path) -> None:
    played = model()
    played.priced = False
    with refused("price.unknown"):
        learned(tmp_path, SIX, played, max_usd=5.0)
    assert played.calls == []
