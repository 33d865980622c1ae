"""Memory and playbook in one loop as METHODS section 5 has it, in whole runs: its four links, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, world
from scripts import (
    Learned,
    learned,
    memory,
    nothing,
    number,
    resumed,
    right,
    scripted,
    shape,
)

import practicum
from practicum import methods
from practicum.blocks.update.memory_bank import MEMORIES
from practicum.core.errors import ProviderError
from practicum.core.types import Profile, Score, Task, Trace
from practicum.methods.unified import SECTION, Settings
from practicum.models.scripted import Call, ScriptedClient

METHOD = "unified"

PLAIN = {"examples": 0, "weigh": False, "delta_min": 2}
"""No solved tasks and no comparisons; proposals of the two bullets that the scripted model gives."""


def task_of(call: Call) -> int:
    """Which task a proposal is for; elsewhere the last message named."""
    found = re.findall(r"# The next task\nMessage (\d+)", call.prompt.user)
    return int(found[0]) if found else number(call)


WORDS = ("apple", "bridge", "candle", "donkey", "engine", "feather", "garden", "hammer", "island", "jacket")


def bullets_of(word: str) -> list[str]:
    return [f"If it is about the {word}, say so.", f"If a {word} is missing, wait for the next one."]


def thinking(call: Call) -> dict[str, Any]:
    """A proposal names its task by a word of its own, so that no two are taken for one."""
    match shape(call):
        case "Memories":
            return memory(f"the {WORDS[task_of(call) % 10]} way")
        case "Bullets":
            return {"bullets": bullets_of(WORDS[task_of(call) % 10])}
    return {}


def model(agent: Any = right, judge: Any = nothing, reflector: Any = thinking) -> ScriptedClient:
    return scripted(agent, reflector, judge=judge)


def run(
    folder: Path, made: ScriptedClient, tasks: Any = 3, settings: Mapping[str, Any] | None = None, **how: Any
) -> Learned:
    return learned(folder, made, tasks, {**PLAIN, **(settings or {})}, METHOD, **how)


def proposals(made: Learned) -> list[Call]:
    """The calls for proposals, and for passes over them."""
    return [call for call in made.calls("reflector") if shape(call) == "Bullets"]


# ---- what a task costs


# ---- the four links of the loop, read back from the run's folder


# ---- the size of a delta


def test_rules_that_harm_are_dropped_and_memories_never(tmp_path: Path) -> None:
    def relying(call: Call) -> dict[str, Any]:
        shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
        return {"answer": "wrong", "used": shown[:1] + shown[-1:]}

    made = run(tmp_path, model(relying), 8, {"harmful": 2, "budget": 60, "passes": 0, "scaling": "none"})
    context = made.result.context
    assert made.result.errors["pruned_entries"] > 0
    assert all(e.harmful < 2 for e in context.in_section(SECTION))
    assert len(context.in_section(MEMORIES)) == 8
    assert max(e.harmful for e in context.in_section(MEMORIES)) >= 2


# ---- what fails


def test_a_run_with_a_failed_reflector_stops(tmp_path: Path) -> None:
    """Although it has outcomes to keep: they teach nothing by themselves."""
    with pytest.raises(ProviderError, match="3 steps in a row were lost: nobody there"):
        run(tmp_path, model(reflector=lambda call: ProviderError("provider.failed", "nobody there")), 9)


def test_a_run_with_failed_calls_resumes_to_the_same_result(tmp_path: Path) -> None:
    def flaky(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "overloaded") if (call.options.seed or 0) % 7 == 0 else world(call)

    made = run(tmp_path, client(flaky), 8, {"batch": 2}, labels=False)
    assert made.result.errors
    again = resumed(made, client())
    assert again.model.calls == []
    assert context_bytes(again.result) == context_bytes(made.result)
    assert again.result.errors == made.result.errors


# ---- resume, determinism, labels, forgetting


# ---- settings


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"preset": "routine"}, (1, 3, 3)),
        ({"preset": "standard"}, (3, 3, 5)),
        ({"preset": "critical"}, (5, 5, 10)),
        ({"preset": "routine", "scaling": "sequential"}, (1, 3, 3)),
        ({"preset": "standard", "scaling": "sequential"}, (6, 3, 5)),
        ({"preset": "critical", "scaling": "sequential"}, (6, 5, 10)),
        ({"preset": "critical", "passes": 1, "k": 2}, (2, 1, 10)),
        ({"preset": "critical", "memory": False, "scaling": "none"}, (1, 5, 10)),
    ],
    ids=str,
)
def test_what_is_set_by_hand_goes_before_a_preset(given: dict[str, Any], found: tuple[int, int, int]) -> None:
    s = Settings.model_validate(given)
    assert (s.attempts, s.passes, s.memories) == found


SPECIFIED: dict[str, Any] = {
    "memory": True, "memories": 5, "extract": "chosen", "examples": 0, "weigh": False, "rules": "proposed", "passes": 3,
    "proposal": 0.7, "delta_min": 5, "delta_max": 10, "bullets": "all", "threshold": 0.85, "harmful": 0,
    "scaling": "parallel", "k": 3, "batch": 1,
}  # fmt: skip


@pytest.mark.parametrize("profile", ["full", "small"])
@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {}),
        ({"k": 5, "examples": 2, "weigh": "true", "threshold": "auto"},
         {"k": 5, "examples": 2, "weigh": True, "threshold": "auto"}),
        ({"delta_min": 0, "passes": "5", "extract": "all"}, {"delta_min": 0, "passes": 5, "extract": "all"}),
        ({"scaling": "sequential"}, {"scaling": "sequential", "k": None}),
        ({"scaling": "none"}, {"scaling": "none", "k": None}),
        ({"memory": "false"}, {"memory": False, "extract": "all"}),
    ],
    ids=str,
)  # fmt: skip
def test_explicit_settings_override_those_of_the_preset_specification(
    given: dict[str, Any], changed: dict[str, Any], profile: Profile
) -> None:
    settings = methods.read_settings(METHOD, {"preset": "specification", **given}, profile).model_dump()
    assert {name: settings[name] for name in SPECIFIED} == {**SPECIFIED, **changed}


def put(place: str) -> str:
    """Put the thing in its place."""
    return f"put on {place}"


def putting(call: Call) -> str:
    """Puts everything on the floor, until it is shown where it belongs, or is told. Told what was wrong, it only
    repeats that where it may, as small models do."""
    if call.role == "reflector":
        return json.dumps({**dict.fromkeys(("kind", "correction", "diagnosis"), "so"), "insight": "Look.", "tags": []})
    made = [turn.assistant for turn in call.prompt.turns]
    if made and "put" in made[-1] and call.prompt.user.startswith("Observation"):
        return json.dumps({"used": [], "thought": "done", "action": {"finish": {"answer": "done"}}})
    if "What was found" in call.prompt.user and '"finish"' in json.dumps(call.schema):
        return json.dumps({"used": [], "thought": "so", "action": {"finish": {"answer": call.prompt.user}}})
    asked = "\n".join([call.prompt.user, *made])
    place = "the shelf" if "the shelf" in asked else "the floor"
    return json.dumps({"used": [], "thought": "so", "action": {"put": {"place": place}}})


def in_place(task: Task, answer: str, trace: Trace) -> Score:
    right = any(step.kind == "action" and "the shelf" in step.text for step in trace.steps)
    return Score(float(right), right, "" if right else "it should be on the shelf")


def test_with_tools_what_is_solved_once_told_what_was_wrong_is_shown_to_later_tasks(tmp_path: Path) -> None:
    model, tasks = client(putting), make_tasks(3)
    parts = practicum.Parts(clients={"agent": model}, tools=[put], scorer=in_place)
    how = {"method": METHOD, "settings": {"batch": 1, "weigh": False}, "profile": "small", "trust_tools": True}
    result = practicum.run_sync(
        practicum.learn(tasks[:1], test=tasks[1:], before=True, out=tmp_path / "run", parts=parts, **how)
    )
    assert (result.scores["before"], result.scores["test"]) == (0.0, 1.0)
    assert (
        sum("nothing of it is left. What was found: The answer is wrong" in call.prompt.user for call in model.calls)
        == 1
    )
    (solved,) = (entry for entry in result.context if entry.section == "episodes")
    assert (solved.text, solved.data["good"]) == (tasks[0].input, True)
    assert ["action", 'put {"place": "the shelf"}'] in solved.data["steps"]
    # It confirms no rule.
    assert [entry.section for entry in result.context] == ["episodes"]
