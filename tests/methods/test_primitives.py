"""RCL's primitives as settings: read from text, refused where they cannot act, and what each costs in calls."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import annotated, insight, learned, number, right, scripted, shape, warm, wrong

from practicum import methods
from practicum.blocks.reflect.heads import AT_ONCE
from practicum.core.errors import UsageError
from practicum.core.types import Prompt
from practicum.methods.primitives import PrimitiveSettings
from practicum.models.client import JSON, CallOptions, Reply
from practicum.models.scripted import Call, ScriptedClient

# ---- settings


def read(method: str, **values: Any) -> PrimitiveSettings:
    settings = methods.settings_of(method).model_validate(values)
    assert isinstance(settings, PrimitiveSettings)
    return settings


@pytest.mark.parametrize("method", ["ace", "rcl"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("group=3", 3), ("twin=true", True), ("heads=true", True), ("heads=false", False), ("replay=0.5", 0.5),
        ("state=true", True), ("batch=3", 3), ("rollouts=auto", "auto"), ("rollouts=10", 10), ("rollouts=none", None),
        ("reflection=per_trace", "per_trace"), ("primitives=adaptive", "adaptive"),
    ],
)  # fmt: skip
def test_each_is_set_by_a_text(method: str, text: str, value: object) -> None:
    name, _, word = text.partition("=")
    assert getattr(read(method, **{name: word}), name) == value
    assert methods.build(method, {name: word}).name == method


def test_all_are_off_in_ace() -> None:
    s = read("ace")
    assert (s.batch, s.group, s.twin, s.heads, s.replay, s.state, s.rollouts) == (1, 1, False, False, 0.0, False, None)
    assert (s.reflection, s.primitives, s.graduate, s.evict) == ("per_trace", "given", 3, 3)


REFUSED: list[tuple[str, str]] = [
    ("group=3 rounds=2", "reflect once, after all runs of a step: leave out rounds"),
    ("twin=true rounds=1", "leave out rounds"),
    ("heads=true rounds=3", "leave out rounds"),
    ("reflection=batched rounds=1", "leave out rounds"),
    ("rollouts=5 rounds=1", "leave out rounds"),
    ("primitives=adaptive rounds=1", "leave out rounds"),
    ("group=2 refine=critique", "leave out rounds, refine"),
    ("heads=true lessons=confirmed", "refine and lessons"),
    ("primitives=adaptive group=3", "chooses group, twin, heads and state itself: leave them out"),
    ("primitives=adaptive twin=true", "leave them out"),
    ("primitives=adaptive heads=false", "leave them out"),
    ("primitives=adaptive state=true", "leave them out"),
    ("primitives=adaptive reflection=batched", "leave out reflection=batched"),
    ("primitives=adaptive reflector=false", "reflector=false"),
    ("primitives=adaptive curator=append", "curator=append"),
    ("primitives=adaptive rules_shown=false", "leave out rules_shown=false"),
    ("heads=true reflection=batched", "heads look at one attempt each: leave out reflection=batched, or set heads"),
    ("heads=true rules_shown=false", "heads and batched reflection read the rules"),
    ("reflection=batched rules_shown=false", "leave out rules_shown=false"),
    ("group=2 reflector=false", "are for a reflector: leave out reflector=false"),
    ("twin=true reflector=false", "are for a reflector"),
    ("heads=true reflector=false", "are for a reflector"),
    ("reflection=batched reflector=false", "are for a reflector"),
    (f"reflection=batched batch={AT_ONCE + 1}", f"reads {AT_ONCE} attempts at once at most: lower batch"),
    ("head_calls=one", "head_calls needs heads=true"),
    ("graduate=2", "graduate and evict need replay"),
    ("evict=2", "graduate and evict need replay"),
    ("state_tokens=300", "state_tokens needs state=true"),
    ("state=true curator=append", "state is for a curator that decides"),
    ("online=true replay=0.5", "a stream is taken as it comes"),
    ("online=true rollouts=auto", r"learning offline \(replay=0, rollouts=none\)"),
    ("batch=4 rollouts=3", "rollouts=3 is less than the 4 failures to reflect on"),
    ("group=0", "setting group='0'.*greater than or equal to 1"),
    ("replay=1.5", "setting replay='1.5'.*less than or equal to 1"),
    ("rollouts=0", "setting rollouts='0' of method ace: Input should be auto, none or a whole number from 1 on"),
    ("rollouts=many", "setting rollouts='many' of method ace: Input should be auto, none or a whole number"),
    ("state=true state_tokens=10", "setting state_tokens='10'"),
    ("reflection=often", "setting reflection='often'"),
    ("momentum=0.9", "method ace has no setting 'momentum': it has .*group, twin, heads"),
]


@pytest.mark.parametrize(("texts", "why"), REFUSED, ids=[texts for texts, _ in REFUSED])
def test_incompatible_settings_are_refused_with_the_reason(texts: str, why: str) -> None:
    values = dict(text.split("=") for text in texts.split())
    with pytest.raises(UsageError, match=why) as raised:
        methods.build("ace", values)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "texts",
    [
        "group=3 rounds=0", "state=true rounds=2 refine=critique", "replay=0.5 rounds=2", "group=3 state=true",
        "reflector=false state=true", "reflector=false rollouts=5", "primitives=adaptive state_tokens=300",
        "primitives=adaptive head_calls=one", "primitives=adaptive rollouts=auto replay=0.5", "replay=0.5 graduate=1",
        "online=true group=3 twin=true state=true", "curator=rewrite state=true", "batch=3 rollouts=3",
        f"reflection=batched batch={AT_ONCE}", "heads=true learn_from=failures", "group=2 rules_shown=false",
    ],
)  # fmt: skip
def test_compatible_settings_are_accepted(texts: str) -> None:
    methods.build("ace", dict(text.split("=") for text in texts.split()))


def test_the_preset_can_be_taken_apart() -> None:
    """Each primitive left out, and a stream: what leave-one-out tables and online runs need."""
    for text in (
        "group=1", "twin=false", "heads=false", "replay=0", "state=false", "batch=1", "rollouts=none",
        "heads=false reflection=batched", "online=true replay=0 rollouts=none", "primitives=adaptive",
    ):  # fmt: skip
        methods.build("rcl", dict(one.split("=") for one in text.split()))


# ---- sizes


def test_all_failures_are_used_if_there_are_fewer_than_asked_for(tmp_path: Path) -> None:
    run = learned(
        tmp_path, scripted(lambda call: "wrong" if number(call) == 4 else right(call)), 12, {"rollouts": 6, "batch": 3}
    )
    assert [number(call) for call in run.calls("reflector")] == [4]
    assert len(run.calls("curator")) == 1


# ---- calls


def each_case(call: Call) -> dict[str, Any]:
    """Whatever is asked of a reflector: one insight for each attempt."""
    if shape(call) != "Reflections":
        return insight(call)
    found = re.findall(r"^# Case (\d+)$", call.prompt.user, re.MULTILINE)
    return {"reflections": [{**ONE, "attempt": int(n), "insight": f"If it is case {n}, look."} for n in found]}


ONE = {"kind": "", "correction": "", "diagnosis": "", "tags": []}


def silent(call: Call) -> dict[str, Any]:
    """Nothing worth keeping."""
    said = each_case(call)
    return {"reflections": [{**one, "insight": ""} for one in said["reflections"]]} if "reflections" in said else {}


SETTINGS = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4),
        "group": st.integers(1, 3),
        "twin": st.booleans(),
        "heads": st.booleans(),
        "head_calls": st.sampled_from(["three", "one"]),
        "reflection": st.sampled_from(["per_trace", "batched"]),
        "rollouts": st.sampled_from([None, 4, 6]),
        "replay": st.sampled_from([0.0, 0.25, 0.5]),
        "state": st.booleans(),
        "learn_from": st.sampled_from(["all", "failures"]),
        "curator": st.sampled_from(["edits", "append"]),
        "reflector": st.sampled_from([True, True, True, False]),
    }
)


def allowed(values: dict[str, Any]) -> dict[str, Any]:
    """These settings, less what they would be refused for."""
    made = dict(values)
    if not made["reflector"]:
        made |= {"group": 1, "twin": False, "heads": False, "reflection": "per_trace"}
    if made["heads"]:
        made["reflection"] = "per_trace"
    else:
        del made["head_calls"]
    if made["curator"] == "append":
        made["state"] = False
    return made


@pytest.mark.slow
@given(SETTINGS, st.integers(1, 9), st.sampled_from(["ace", "rcl"]), st.booleans())
def test_any_allowed_combination_learns_from_every_task(
    values: dict[str, Any], n: int, method: str, failing: bool
) -> None:
    model = scripted(wrong, each_case) if failing else scripted(right, silent)
    with tempfile.TemporaryDirectory() as folder:
        run = learned(Path(folder), model, n, allowed(values), method)
    assert {r.task.id for report in run.reports for r in report.rollouts} == {f"t{i}" for i in range(n)}
    learned_something = any(lesson.text for report in run.reports for lesson in report.lessons)
    assert learned_something or not failing
    assert run.result.stopped is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"agent": 16, "reflector": 12, "curator": 1}),
        ({"rounds": 0}, {"agent": 4, "reflector": 4, "curator": 1}),
        ({"group": 3}, {"agent": 12, "reflector": 4, "curator": 1}),
        ({"twin": True}, {"agent": 8, "reflector": 4, "curator": 1}),
        ({"heads": True}, {"agent": 4, "reflector": 12, "curator": 1}),
        ({"heads": True, "head_calls": "one"}, {"agent": 4, "reflector": 4, "curator": 1}),
        ({"reflection": "batched"}, {"agent": 4, "reflector": 1, "curator": 1}),
        ({"state": True, "rounds": 0}, {"agent": 4, "reflector": 4, "curator": 1, "state": 1}),
        ({"batch": 2, "rollouts": 4}, {"agent": 4, "reflector": 2, "curator": 1}),
        ({"group": 3, "twin": True, "heads": True, "state": True, "batch": 3, "rollouts": 4},
         {"agent": 16, "reflector": 9, "curator": 1, "state": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_what_each_takes_by_role_for_four_failures(
    tmp_path: Path, settings: dict[str, Any], expected: dict[str, int]
) -> None:
    values = {"batch": 4, **settings}
    run = learned(tmp_path, scripted(wrong, each_case), 4, values)
    assert {role: usage.calls for role, usage in run.result.by_role.items()} == expected
    assert Counter(call.role for call in run.model.calls) == expected
    made = methods.build("ace", values)
    assert set(made.roles) == set(expected) - {"agent"}


def test_with_one_task_a_step_every_other_step_is_a_replay(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong), 6, {"replay": 0.5, "rounds": 0})
    assert len(run.reports) > 6


# ---- all at once


@dataclass
class AtOnce(ScriptedClient):
    """Answers to a role's calls come when so many of them are in flight, and not before."""

    together: dict[str, int] = field(default_factory=dict)
    barriers: dict[str, asyncio.Barrier] = field(default_factory=dict)

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        if role in self.together:
            barrier = self.barriers.setdefault(role, asyncio.Barrier(self.together[role]))
            async with asyncio.timeout(20):
                await barrier.wait()
        return await super().complete(role, prompt, schema, options)


@pytest.mark.parametrize(
    ("settings", "agents", "reflectors"),
    [
        ({"group": 3, "twin": True, "heads": True, "batch": 2, "rollouts": 3, "state": True}, 12, 6),
        ({"group": 2, "batch": 4}, 8, 4),
        ({"twin": True, "batch": 3, "heads": True, "head_calls": "one"}, 6, 3),
        ({"batch": 2, "rollouts": 5, "reflection": "batched"}, 5, 1),
    ],
    ids=["all", "group", "twin", "rollouts"],
)
def test_all_executions_of_an_iteration_are_in_flight_together(
    tmp_path: Path, settings: dict[str, Any], agents: int, reflectors: int
) -> None:
    """R x (G + 1) calls wait for one another: were any of them made one after the other, none would be answered."""
    together = {"agent": agents, "reflector": reflectors}
    model = AtOnce(scripted(wrong, each_case).respond, together=together)
    size = settings.get("rollouts", settings["batch"])
    run = learned(tmp_path, model, 2 * size, settings)
    assert [len(report.rollouts) for report in run.reports] == [size, size]
    assert len(run.calls("agent")) == 2 * agents
    assert len(run.calls("reflector")) == 2 * reflectors


def test_a_step_is_three_waits_deep_whatever_is_on(tmp_path: Path) -> None:
    """The critical path of an iteration: executions, reflections, curation and then the state."""
    order: list[str] = []

    def noted(role: str) -> Any:
        def said(call: Call) -> Any:
            order.append(role)
            return wrong(call) if role == "agent" else insight(call) if role == "reflector" else {}

        return said

    settings = {"group": 2, "twin": True, "heads": True, "batch": 3, "state": True}
    roles = {role: noted(role) for role in ("agent", "reflector", "state")}
    run = learned(tmp_path, scripted(**roles), 3, settings)
    assert order == ["agent"] * 9 + ["reflector"] * 9 + ["state"]
    assert sum(map(annotated, run.model.calls)) == sum(map(warm, run.model.calls)) == 3
