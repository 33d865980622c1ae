"""What Combee is compared with: naive batches, top-K retrieval and summarization, as METHODS section 2 names them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks
from runs import lessons_read, spelled
from scans import insight, learned, lessons
from scripts import Learned

import practicum
from practicum import methods
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call

BASELINES = ("naive", "top_k", "summarized")


def summing(call: Call) -> str | Exception:
    """A summary in three points, of whatever lessons."""
    if call.role == "curator" and call.schema is not None and "points" in call.schema["properties"]:
        return json.dumps({"points": [f"If it is {spelled(n)}, answer it." for n in range(3)]})
    return insight(call)


def summaries(run: Learned) -> list[Call]:
    return [call for call in run.model.calls if call.role == "curator" and not lessons_read(call)]


# ---- naive


@pytest.mark.parametrize("method", BASELINES)
def test_the_default_batch_is_forty_tasks(method: str) -> None:
    assert methods.setting_docs(method)["batch"][0] == 40


@pytest.mark.parametrize("method", BASELINES)
def test_every_attempt_votes_even_if_its_lesson_is_dropped(tmp_path: Path, method: str) -> None:
    def citing(call: Call) -> str | Exception:
        if call.role == "agent":
            return f"Used: e0\nAnswer: {call.prompt.user.split()[-1]}"
        if call.role == "reflector":
            return json.dumps({**json.loads(str(insight(call))), "tags": [{"id": "e0", "verdict": "helpful"}]})
        return ProviderError("provider.failed", "down") if method == "summarized" else summing(call)

    rule = seed_context([("rules", "If in doubt, guess.")])
    run = learned(tmp_path, citing, 30, {"learn_from": "all"}, method=method, seed_context=rule)
    entry = run.result.context.get("e0")
    assert entry is not None
    assert (entry.helpful, entry.uses) == (30, 30)


# ---- top-K


# ---- summarized


def test_a_single_lesson_is_not_summed_up(tmp_path: Path) -> None:
    run = learned(tmp_path, summing, 1, method="summarized")
    assert summaries(run) == []
    assert {*run.texts} == lessons(run)


def test_points_of_a_function_agent_can_be_appended(tmp_path: Path) -> None:
    """The summary needs a model even where nothing else does."""

    def agent(text: str, context: str) -> str:
        return text.split()[-1]

    model = client(summing)
    parts = practicum.Parts(agent=agent, clients={"agent": model})
    work = practicum.learn(
        make_tasks(6), out=tmp_path / "run", method="summarized", parts=parts,
        settings={"curator": "append", "reflector": False, "batch": 6},
    )  # fmt: skip
    assert len(practicum.run_sync(work).context) == 3
    assert Counter(call.role for call in model.calls) == {"curator": 1}


# ---- all of them


@pytest.mark.parametrize(
    ("method", "settings", "line"),
    [
        ("naive", {"batch": 0}, "setting batch=0 of method naive: Input should be greater than or equal to 1"),
        ("top_k", {"k": 0}, "setting k=0 of method top_k: Input should be greater than or equal to 1"),
        ("summarized", {"k": 3}, "method summarized has no setting 'k'"),
        ("naive", {"copies": 3}, "method naive has no setting 'copies'"),
        ("naive", {"epochs": 2, "online": True}, "online learning sees each task once: leave out `epochs`"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(method: str, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        methods.build(method, settings)
    assert str(refused.value).startswith(line)


@pytest.mark.parametrize("method", BASELINES)
def test_a_batch_larger_than_the_tasks_is_counted(tmp_path: Path, method: str) -> None:
    run = learned(tmp_path, summing, 12, {"batch": 50}, method=method)
    assert run.result.errors["batch_lowered"] == 1
    assert [len(step.batch.tasks) for step in run.reports] == [12]
