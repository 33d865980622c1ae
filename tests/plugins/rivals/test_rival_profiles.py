"""What the rival methods ask models for in the two profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from jsonschema import Draft202012Validator
from scripts import added, learned, right, scripted, shape, warm

from practicum.models.scripted import Call

TRIED: dict[str, dict[str, Any]] = {
    "reflexion": {"epochs": 2}, "expel": {}, "tf_grpo": {"epochs": 1, "group": 2},
    "dynamic_cheatsheet": {}, "opro": {"steps": 2, "candidates": 2}, "ape": {"steps": 2, "candidates": 2},
    "evoprompt": {"steps": 2, "candidates": 2}, "protegi": {"steps": 1, "gradients": 1},
    "erm": {"steps": 2}, "promptbreeder": {"steps": 2, "candidates": 1, "beam": 2},
    "textgrad": {"steps": 1}, "gepa": {"attempts": 20},
}  # fmt: skip

PLAN = "First:\n\n1. read it\n2. run `f(x)`\n\nThen say it."


def agent(call: Call) -> str:
    """Wrong at first, right when tried again."""
    return right(call) if warm(call) or "A reflection on it" in call.text or "read it" in call.prompt.head else "wrong"


def author(call: Call) -> dict[str, Any]:
    said = {"kind": "a message", "insight": "If it is a message, read it."}
    texts = ("reflection", "reasons", "answer", "instructions", "instruction", "sheet", "why", "diagnosis")
    operations = [{"op": "ADD", "id": "", "text": PLAN}]
    return {
        **dict.fromkeys(texts, PLAN),
        **said,
        "experiences": [PLAN],
        "feedback": [PLAN],
        "operations": operations,
        **added(call),
    }


@pytest.mark.parametrize("profile", ["full", "small"])
@pytest.mark.parametrize("name", TRIED)
@pytest.mark.slow
def test_small_models_get_examples_and_bounds_and_capable_ones_neither(tmp_path: Path, name: str, profile: str) -> None:
    model = scripted(agent, author, author)
    run = learned(tmp_path, model, 4, TRIED[name], name, profile=profile)
    asked = [call for call in run.model.calls if call.role != "agent"]
    assert asked
    small = profile == "small"
    for call in asked:
        assert bool(call.prompt.turns) is small, call.prompt.system
        # The core's curator has a form for the lessons of each call.
        for turn in () if shape(call) == "Decisions" else call.prompt.turns:
            Draft202012Validator(call.schema).validate(json.loads(turn.assistant))
        bounds = {"maxLength", "maxItems", "pattern"} & {*json.dumps(call.schema).replace('"', " ").split()}
        assert bool(bounds) is small
        # What the benchmarks here are about.
        assert not any(word in call.text.lower() for word in ("desk", "team", "routed", "library"))


@pytest.mark.parametrize("name", TRIED)
def test_several_lines_with_code_reach_the_context_word_for_word(tmp_path: Path, name: str) -> None:
    settings = {**TRIED[name], **({"steps": 2} if name == "textgrad" else {})}
    run = learned(tmp_path, scripted(agent, author, author), make_tasks(4), settings, name, profile="full")
    assert PLAN in {entry.text for report in run.reports for entry in report.context}
