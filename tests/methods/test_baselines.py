"""What Combee is compared with: naive batches, top-K retrieval and summarization, as METHODS section 2 names them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks
from labels import LEAKS, changed, prompts
from profiles import cases
from runs import learner, lessons_read, spelled
from scans import curated, curated_by, insight, learned, lessons
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


def test_one_call_reads_all_lessons_of_a_batch(tmp_path: Path) -> None:
    run = learned(tmp_path, insight, 50, {"batch": 40}, method="naive")
    assert [len(read) for read in curated(run)] == [40, 10]
    assert [len(step.batch.tasks) for step in run.reports] == [40, 10]
    assert sorted(run.texts) == sorted(lessons(run))


@pytest.mark.parametrize("method", BASELINES)
def test_the_default_batch_is_forty_tasks(method: str) -> None:
    assert methods.setting_docs(method)["batch"][0] == 40


@pytest.mark.parametrize("method", BASELINES)
def test_what_the_curator_does_not_mention_is_lost_and_counted(tmp_path: Path, method: str) -> None:
    def first_only(call: Call) -> str | Exception:
        if lessons_read(call):
            return json.dumps({"decisions": [{"lesson": 1, "op": "ADD"}]})
        return summing(call)

    run = learned(tmp_path, curated_by(first_only), 40, method=method)
    assert len(run.texts) == 1
    assert run.result.errors["dropped_lessons"] == {"naive": 39, "top_k": 5, "summarized": 2}[method]
    assert len(curated(run)) == 1


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


def test_the_curator_sees_as_many_lessons_as_combee_would_make_groups(tmp_path: Path) -> None:
    run = learned(tmp_path, insight, 40, method="top_k")
    assert [len(read) for read in curated(run)] == [6]
    assert set(curated(run)[0]) <= lessons(run)
    assert run.result.errors == {"lessons_outside_centers": 34}


@pytest.mark.parametrize(("k", "read", "counted"), [(1, 1, 0), (10, 10, 0), (40, 40, 0), (70, 40, 1)])
def test_the_curator_sees_as_many_lessons_as_k_says(tmp_path: Path, k: int, read: int, counted: int) -> None:
    run = learned(tmp_path, insight, 40, {"k": k}, method="top_k")
    assert [len(lessons) for lessons in curated(run)] == [read]
    assert run.result.errors.get("clusters_lowered", 0) == counted


# ---- summarized


def test_the_curator_sees_the_summary_only(tmp_path: Path) -> None:
    run = learned(tmp_path, summing, 40, method="summarized")
    (summary,) = summaries(run)
    assert all(text in summary.prompt.user for text in lessons(run))
    assert curated(run) == [[f"If it is {spelled(n)}, answer it." for n in range(3)]]
    assert run.texts == curated(run)[0]
    sources = {s for step in run.reports for r in step.rollouts for s in r.sources}
    assert all(set(entry.sources) == sources for entry in run.result.context)


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


@pytest.mark.parametrize("method", BASELINES)
@pytest.mark.parametrize("calls", cases([18, 40], 18))
def test_a_run_stopped_by_its_budget_resumes_to_the_same_result(tmp_path: Path, method: str, calls: int) -> None:
    whole = learned(tmp_path / "whole", learner, 24, {"batch": 8}, method=method)
    cut = learned(tmp_path / "cut", learner, 24, {"batch": 8}, method=method, max_calls=calls)
    assert cut.result.stopped == f"the budget of {calls} calls is spent"
    parts = practicum.Parts(clients={"agent": cut.model})
    again = practicum.run_sync(practicum.resume(tmp_path / "cut" / "run", max_calls=1000, parts=parts))
    assert context_bytes(again) == context_bytes(whole.result)
    assert len(cut.model.calls) == whole.result.usage.calls


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


@pytest.mark.parametrize(("judged", "how"), LEAKS)
@pytest.mark.parametrize("method", BASELINES)
def test_without_labels_no_prompt_depends_on_targets(tmp_path: Path, method: str, judged: bool, how: str) -> None:
    tasks = make_tasks(11, tags=["a"])
    config: dict[str, Any] = {"method": method, "settings": {"batch": 5}, "labels": False, "judged": judged}
    before = prompts(tmp_path / "a", tasks, **config)
    assert before == prompts(tmp_path / "b", changed(tasks, how), **config)
    assert ("judge" in {role for role, _ in before}) is judged


@pytest.mark.parametrize("method", BASELINES)
def test_with_labels_the_same_change_is_seen(tmp_path: Path, method: str) -> None:
    tasks = make_tasks(6)
    assert prompts(tmp_path / "a", tasks, method=method) != prompts(
        tmp_path / "b", changed(tasks, "other"), method=method
    )
