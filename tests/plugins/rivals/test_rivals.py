"""Rivals: killed runs resume to the same context, small models get examples and bounds, and rules of single rivals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, world
from jsonschema import Draft202012Validator
from scripts import Learned, learned, obeying, resumed, right, scripted, shape, warm

from practicum import methods
from practicum.models.scripted import Call, ScriptedClient, in_parts
from practicum.plugins.rivals.bridge import bridged

SEARCH = {"batch": 4, "beam": 2, "steps": 2, "candidates": 2}
RIVALS: dict[str, dict[str, Any]] = {
    "ape": SEARCH,
    "dynamic_cheatsheet": {},
    "erm": {"batch": 4, "beam": 2, "steps": 2, "feedback": 1},
    "evoprompt": SEARCH,
    "expel": {"batch": 4},
    "gepa": {"attempts": 8},
    "mipro": {"candidates": 2, "trials": 2},
    "opro": SEARCH,
    "promptbreeder": {**SEARCH, "candidates": 1},
    "protegi": {"batch": 4, "beam": 2, "steps": 1, "gradients": 1, "paraphrases": 1},
    "reflexion": {"epochs": 2},
    "textgrad": {"batch": 4, "steps": 2},
    "tf_grpo": {"epochs": 1, "group": 2},
}
"""Settings of a small run of each rival that learns."""


def alternating() -> Callable[[Call], str]:
    """Answers for any role; the agent is right every other time, and in the further attempts of a group."""
    wrong = cycle((True, False))

    def respond(call: Call) -> str:
        if call.role != "agent" or call.schema is not None:
            return world(call)
        return in_parts(call.prompt, {"answer": "wrong" if not warm(call) and next(wrong) else right(call)})

    return respond


def run_of(folder: Path, name: str, model: ScriptedClient, **how: Any) -> Learned:
    """A small run; the test is skipped without the package of the rival."""
    if extra := methods.missing_extra(name):
        pytest.skip(f"needs {extra}")
    how |= {"val": make_tasks(2, 2)} if name == "mipro" else {}
    return learned(folder, model, 4, RIVALS[name], name, concurrency=1, **how)


def test_a_killed_search_of_another_package_resumes_to_the_same_context_and_pays_for_nothing_twice(
    tmp_path: Path,
) -> None:
    whole = run_of(tmp_path / "whole", "gepa", client())
    total = len(whole.model.calls)
    left = iter(range(int(0.4 * total)))

    def killed(call: Call) -> str:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return world(call)

    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path / "cut", "gepa", client(killed))
    again = resumed(Learned(client(), tmp_path / "cut" / "run"), client())
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(again.model.calls) == total - int(0.4 * total)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_small_models_get_examples_and_bounds_and_capable_ones_neither(tmp_path: Path, name: str) -> None:
    for profile in ("full", "small"):
        small = profile == "small"
        run = run_of(tmp_path / profile, name, client(alternating()), profile=profile)
        calls = [call for call in run.model.calls if call.schema is not None]
        assert calls
        for call in calls:
            assert bool(call.prompt.turns) is small, call.prompt.system
            # The core's curator has another form for each call.
            for turn in () if shape(call) == "ShortChanges" else call.prompt.turns:
                Draft202012Validator(call.schema).validate(json.loads(turn.assistant))
            bounds = {"maxLength", "maxItems", "pattern"} & {*re.findall(r"\w+", json.dumps(call.schema))}
            assert bool(bounds) is small
            # The subjects of the benchmarks are in no prompt.
            assert not any(word in call.text.lower() for word in ("desk", "team", "routed", "library"))


def test_an_error_of_a_bridged_library_ends_the_iteration() -> None:
    async def work() -> None:
        async with bridged(lambda ask: 1 // 0) as results:
            async for _ in results:
                pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())


def test_erm_forgets_criticism_that_helps_no_more(tmp_path: Path) -> None:
    def numbers(call: Call) -> list[int]:
        """The messages of the failed cases, in order."""
        return [int(n) for n in re.findall(r"Case \d+\nTask: Message (\d+)", call.prompt.user)]

    def worked(call: Call) -> dict[str, Any]:
        """All failures solved, the first one wrongly, and one criticism."""
        cases = [
            {"case": n, "solution": f"message {m} names it", "answer": f"word{m}" if n > 1 else "wrong"}
            for n, m in enumerate(numbers(call), 1)
        ]
        unknown = {"case": 99, "solution": "none", "answer": "word1"}
        feedback = [f"it says nothing of {' or '.join(map(str, numbers(call)))}"]
        return {"exemplars": [*cases, unknown], "feedback": feedback}

    texts = iter(["solve 2", *(f"way {n}: solve 0" for n in range(20))])
    model = scripted(obeying, worked, lambda call: {"instruction": next(texts)})
    settings = {"batch": 4, "beam": 1, "feedback": 1, "recalled": 1, "k": 2, "steps": 5}
    run = learned(tmp_path, model, 4, settings, "erm")
    (criticism,) = run.reports[0].context.in_section(".feedback")
    history = [report.context.get(criticism.id) for report in run.reports]
    assert [None if e is None or e.retired else e.harmful for e in history] == [0, 1, 2, None, None]
