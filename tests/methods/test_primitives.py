"""RCL's primitives learn from every task in any allowed combination, and its state from a playbook of any size."""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors
from scripts import added, insight, learned, right, scripted, shape, wrong

from practicum.core.context import seed_context
from practicum.core.types import Instructions, Lesson
from practicum.methods.blocks.curate import Curator
from practicum.methods.blocks.notes import with_state
from practicum.models.scripted import Call


def each_case(call: Call) -> dict[str, Any]:
    """One insight for each attempt, in the requested form."""
    if shape(call) != "Reflections":
        return insight(call)
    cases = re.findall(r"^# Case (\d+)$", call.prompt.user, re.MULTILINE)
    return {"reflections": [{**ONE, "attempt": int(n), "insight": f"If it is case {n}, look."} for n in cases]}


ONE = {"kind": "", "correction": "", "diagnosis": "", "tags": []}


def silent(call: Call) -> dict[str, Any]:
    return {"reflections": [{**one, "insight": ""} for one in each_case(call).get("reflections", [])]}


SETTINGS = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4), "group": st.integers(1, 3), "twin": st.booleans(), "heads": st.booleans(),
        "head_calls": st.sampled_from(["three", "one"]), "reflection": st.sampled_from(["per_trace", "batched"]),
        "attempted": st.sampled_from([None, 4, 6]), "replay": st.sampled_from([0.0, 0.25, 0.5]), "state": st.booleans(),
        "learn_from": st.sampled_from(["all", "failures"]), "curator": st.sampled_from(["edits", "append"]),
        "reflector": st.sampled_from([True, True, True, False]),
    }
)  # fmt: skip


def allowed(values: dict[str, Any]) -> dict[str, Any]:
    """These settings without conflicts."""
    result = dict(values)
    if not result["reflector"]:
        result |= {"group": 1, "twin": False, "heads": False, "reflection": "per_trace"}
    if result["heads"]:
        result["reflection"] = "per_trace"
    else:
        del result["head_calls"]
    if result["curator"] == "append":
        result["state"] = False
    return result


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(SETTINGS, st.integers(1, 9), st.sampled_from(["ace", "rcl"]), st.booleans())
def test_any_allowed_combination_learns_from_every_task(
    values: dict[str, Any], n: int, method: str, failing: bool
) -> None:
    """With an insight for each failure, or without any."""
    model = scripted(wrong, each_case) if failing else scripted(right, silent)
    with tempfile.TemporaryDirectory() as folder:
        run = learned(Path(folder), model, n, allowed(values), method)
    assert {r.task.id for report in run.reports for r in report.attempts} == {f"t{i}" for i in range(n)}
    learned_something = any(lesson.text for report in run.reports for lesson in report.lessons)
    assert learned_something or not failing
    assert run.result.stopped is None


def noting(call: Call) -> dict[str, Any]:
    return {"ledger": ["noted"], "hypotheses": ["it may be luck"], "phase": "convergent"}


def test_the_state_of_a_playbook_above_the_window_reads_the_entries_of_the_step() -> None:
    filler = [f"If drawer {n} of the old cabinet is open, close it." * 4 for n in range(200)]
    context = seed_context([("rules", text) for text in (*filler, "If it is message 0, ask.")])
    model = scripted(curator=added, state=noting, window=8192)
    run = indoors(model, profile="full")
    data = {"cause": "it guessed"}
    about = Lesson("l0", "If it is message 0, answer word0.", sources=("task:t0",), data=data, votes={"e77": "harmful"})
    asyncio.run(with_state(Curator(Instructions("Curate.")), Instructions("Remember."), 800)([about], context, run))
    (call,) = [call for call in model.calls if call.role == "state"]
    shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
    assert {"e77", "e200"} < set(shown)
    assert len(shown) < 100
    assert run.counts["shortened_playbooks"] == 2
