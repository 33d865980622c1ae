"""Three heads about one failure, what their attribution decides, and one call about several attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts import added, learned, number, right, scripted

from practicum.core.context import seed_context
from practicum.models.scripted import Call

RULE = seed_context([("rules", "If in doubt, guess.")])


# ---- three calls or one


GAP, CHANCE, HOPELESS = "actionable_gap", "execution_variance", "intractable"


# ---- what the attribution decides


# ---- several attempts in one call


TOGETHER: dict[str, Any] = {"reflection": "batched", "batch": 4}


def test_after_a_failed_call_only_successes_vote(tmp_path: Path) -> None:
    def some(call: Call) -> dict[str, Any]:
        return {"answer": right(call) if number(call) < 1 else "wrong", "used": ["e0"]}

    run = learned(
        tmp_path, scripted(some, lambda call: "Sure!", added), 4, {**TOGETHER, "harmful": 0}, seed_context=RULE
    )
    assert run.texts == ["If in doubt, guess."]
    assert run.result.errors["lost_reflections"] == 4
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.harmful, rule.uses) == (1, 0, 4)
