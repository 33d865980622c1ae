"""All rivals by one table: they resume to the same context without a call paid twice, and small models get
examples and bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, number_of
from jsonschema import Draft202012Validator
from profiles import cases
from scripts import FORM, Learned, added, learned, obeying, resumed, right, scripted, shape, warm

from practicum import methods
from practicum.models.scripted import Call, ScriptedClient, in_parts

BATCH = {"batch": 4, "beam": 2}


@dataclass(frozen=True)
class Rival:
    """A run of a rival over four messages, two further ones as a test: its settings, its calls by role, its steps and
    the entries that are left by section. `stream`: whether it learns from a stream."""

    settings: dict[str, Any]
    calls: dict[str, int]
    steps: int
    entries: dict[str, int]
    stream: bool = False
    how: dict[str, Any] = field(default_factory=dict)


TEAMS = ("chain", "group_chat", "evomac")

RIVALS = {
    "ape": Rival(
        {**BATCH, "steps": 2, "candidates": 2}, {"agent": 4 + 4 * 4 + 2, "curator": 4}, 2, {"instructions": 2}
    ),
    "chain": Rival({}, {"agent": 2 * 4}, 0, {}, stream=True),
    "dynamic_cheatsheet": Rival({}, {"agent": 4 + 2, "curator": 4}, 4, {"cheatsheet": 1}, stream=True),
    "erm": Rival(
        {**BATCH, "steps": 2, "feedback": 1}, {"agent": 26, "reflector": 2, "curator": 3}, 2,
        {"instructions": 2, ".feedback": 2},
    ),
    "evomac": Rival({"agents": 2, "iterations": 1}, {"agent": 2 * (3 + 2 * 2 + 3)}, 0, {}, stream=True),
    "evoprompt": Rival(
        {**BATCH, "steps": 2, "candidates": 2}, {"agent": 4 + 4 * 4 + 2, "curator": 4}, 2, {"instructions": 2}
    ),
    "expel": Rival(
        {"batch": 4}, {"agent": 4 + 4 + 2, "reflector": 4, "curator": 5}, 1, {"rules": 5, "episodes": 4}, stream=True
    ),
    "gepa": Rival({"attempts": 20}, {"agent": 22, "reflector": 2}, 2, {"instructions": 1}),
    "group_chat": Rival({"turns": 2}, {"agent": 2 * (2 * 2 + 1)}, 0, {}, stream=True),
    "mipro": Rival(
        {"candidates": 2, "trials": 2}, {"agent": 8, "curator": 4}, 3, {"instructions": 1},
        how={"val": make_tasks(2, 2)},
    ),
    "opro": Rival(
        {**BATCH, "steps": 2, "candidates": 2}, {"agent": 4 + 4 * 4 + 2, "curator": 4}, 2, {"instructions": 2}
    ),
    "promptbreeder": Rival(
        {**BATCH, "steps": 2, "candidates": 1}, {"agent": 14, "curator": 4}, 2, {"instructions": 2}
    ),
    "protegi": Rival(
        {**BATCH, "steps": 1, "gradients": 1, "paraphrases": 1},
        {"agent": 4 + 2 * 4 + 2, "reflector": 1, "curator": 2}, 1, {"instructions": 2},
    ),
    "reflexion": Rival({"epochs": 2}, {"agent": 4 + 4 + 2, "reflector": 4}, 2, {"reflections": 4}, stream=True),
    "textgrad": Rival(
        {"batch": 4, "steps": 2}, {"agent": 2 * (4 + 4) + 2, "reflector": 2 * 4, "curator": 2}, 2,
        {"instructions": 1, ".feedback": 4},
    ),
    "tf_grpo": Rival(
        {"epochs": 1, "group": 2}, {"agent": 4 * 2 + 2, "reflector": 4, "curator": 1}, 1, {"rules": 4}, stream=True
    ),
}  # fmt: skip


def each(*but: str) -> pytest.MarkDecorator:
    """For each rival but these; those whose packages are not installed are skipped."""
    needed = {name: methods.missing_extra(name) for name in RIVALS}
    marks = {name: pytest.mark.skipif(bool(extra), reason=f"needs {extra}") for name, extra in needed.items()}
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=marks[name]) for name in RIVALS if name not in but]
    )


def agent(call: Call) -> str:
    """Right about as many messages as its context names, when it tries again, and in a team."""
    return right(call) if warm(call) or "look again" in call.text else obeying(call)


def learner(text: str = "") -> Callable[[Call], dict[str, Any]]:
    """A role that learns: each text that it writes is another one, "solve 1", "solve 2", or this one."""
    numbers = iter(range(1, 99))

    def said(call: Call) -> dict[str, Any]:
        new = text or f"solve {next(numbers)}"
        named = (
            "instruction",
            "instructions",
            "sheet",
            "proposed_instruction",
            "reasons",
            "answer",
            "why",
            "diagnosis",
        )
        found = {
            "reflection": text or "look again", "kind": "a message", "insight": "If it is a message, look again.",
            "feedback": [new], "experiences": [new], "operations": [{"op": "ADD", "id": "", "text": new}],
            "observations": "messages", "summary": "messages",
        }  # fmt: skip
        return {**dict.fromkeys(named, new), **found, **added(call)}

    return said


MEMBERS: dict[str, dict[str, Any]] = {
    "Contribution": {"text": "said"}, "Turn": {"next": "worker"}, "Message": {"text": "said", "done": False},
    "Team": {"members": [{"name": "one", "job": "do it"}, {"name": "two", "job": "check it"}]},
    "Checks": {"checks": ["it says a word"]}, "Faults": {"faults": ["a fault"]},
}  # fmt: skip
"""What members of teams say, by the form."""


def playing(text: str = "") -> ScriptedClient:
    """A model that plays all roles."""
    roles = scripted(agent, learner(text), learner(text))

    def respond(call: Call) -> str | Exception:
        return json.dumps(MEMBERS[shape(call)]) if shape(call) in MEMBERS else roles.respond(call)

    return client(respond)


def run_of(folder: Path, name: str, model: ScriptedClient, **how: Any) -> Learned:
    rival = RIVALS[name]
    return learned(folder, model, 4, rival.settings, name, concurrency=1, **{**rival.how, **how})


def any_text(call: Call) -> str:
    """An answer that follows from the prompt: right about every other time, or a text in the form that is asked for."""
    number = number_of(call.text)
    if shape(call) in MEMBERS:
        return json.dumps(MEMBERS[shape(call)])
    if call.schema is not None:
        return json.dumps({**FORM, **learner(f"do {number % 50}")(call)})
    return in_parts(call.prompt, {"answer": right(call) if number % 2 else "wrong"})


@pytest.mark.parametrize("part", cases([0.1, 0.4, 0.7, 0.99], 0.4))
@each(*TEAMS)
def test_a_run_that_was_cut_off_resumes_to_the_same_context_and_pays_for_nothing_twice(
    tmp_path: Path, name: str, part: float
) -> None:
    whole = run_of(tmp_path / "whole", name, client(any_text))
    total = len(whole.model.calls)
    left = iter(range(int(part * total)))

    def killed(call: Call) -> str:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return any_text(call)

    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path / "cut", name, client(killed))
    again = resumed(Learned(client(any_text), tmp_path / "cut" / "run"), client(any_text))
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(again.model.calls) == total - int(part * total)


@pytest.mark.parametrize("profile", ["full", "small"])
@each(*TEAMS)
@pytest.mark.slow
def test_small_models_get_examples_and_bounds_and_capable_ones_neither(tmp_path: Path, name: str, profile: str) -> None:
    small, run = profile == "small", run_of(tmp_path, name, playing(), profile=profile)
    asked = [call for call in run.model.calls if call.schema is not None]
    assert asked
    for call in asked:
        assert bool(call.prompt.turns) is small, call.prompt.system
        # The core's curator has a form of its own for each call.
        for turn in () if shape(call) == "ShortChanges" else call.prompt.turns:
            Draft202012Validator(call.schema).validate(json.loads(turn.assistant))
        bounds = {"maxLength", "maxItems", "pattern"} & {*re.findall(r"\w+", json.dumps(call.schema))}
        assert bool(bounds) is small
        # The subjects of the benchmarks are in no prompt.
        assert not any(word in call.text.lower() for word in ("desk", "team", "routed", "library"))
