"""Asking a run: what an answer rests on, what a query teaches, and that nothing is lost or paid twice on the way."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from helpers import Began
from refusals import refused
from runs import Words
from scripts import added, insight, learned, memory, nothing, number, right, scripted, shape, wrong

import practicum
from practicum import methods
from practicum.core.errors import ProviderError, Stopped
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.ask import Answered
from practicum.session.forget import forget
from practicum.session.records import load_context
from practicum.session.result import INTERRUPTED
from practicum.session.story import Story
from practicum.store.database import Store
from practicum.store.versions import read_versions

METHODS = (
    "episodes", "ace", "combee", "naive", "top_k", "summarized", "rcl", "reasoning_bank", "unified",
)  # fmt: skip


def reflecting(call: Call) -> dict[str, Any]:
    """A reflection has an insight, an extraction one memory."""
    return memory(f"message {number(call)}") if shape(call) == "Memories" else insight(call)


def curating(call: Call) -> dict[str, Any]:
    """Every lesson becomes a rule, also where lessons were summed up."""
    return {"points": ["If in doubt, look."]} if shape(call) == "Summary" else added(call)


def model(
    agent: Any = right, reflector: Any = reflecting, judge: Any = nothing, curator: Any = curating
) -> ScriptedClient:
    return scripted(agent, reflector, curator, judge=judge)


def a_run(folder: Path, method: str = "reasoning_bank", tasks: int = 3, **settings: Any) -> Path:
    return learned(folder, model(), tasks, settings, method, parts={"embedder": Words()}).folder


def ask(run: Any, query: str, made: ScriptedClient | None = None, **how: Any) -> Answered:
    parts = practicum.Parts(clients={"agent": made or model()}, embedder=how.pop("embedder", Words()))
    return practicum.run_sync(practicum.ask(query, run, parts=parts, **how))


def rows(run: Path) -> dict[str, list[Any]]:
    """Everything a run's file holds, but vectors."""
    with sqlite3.connect(run / "run.sqlite") as db:
        names = [row[0] for row in db.execute("select name from sqlite_master where type = 'table'")]
        found = {name: db.execute(f"select * from {name}").fetchall() for name in names if name != "vectors"}
    db.close()
    return found


# ---- answering


TEAM = {"agents": [{"name": "a"}, {"name": "b"}], "links": [["a", "b"]]}
MERGING = {"consolidate": True, "threshold": 0.9}


@pytest.mark.parametrize(
    ("method", "settings", "given", "left"),
    [
        ("mael", {"alpha": 0.7, "reward": "low", "rounds": 3}, {"experience": "none"}, {"rounds": 3}),
        ("mael", {"alpha": 0.7, "reward": "low"}, {"experience": "task"}, {"alpha": 0.7, "reward": "low"}),
        ("mael", {"agents": 3, "rounds": 3}, {"topology": TEAM}, {"rounds": 3}),
        ("mael", {"agents": 3}, {"topology": "ring"}, {"agents": 3}),
        ("mael", {"topology": TEAM, "rounds": 3}, {"agents": "3"}, {"rounds": 3}),
        ("mael", {"topology": TEAM}, {"rounds": "3"}, {"topology": TEAM}),
        ("mael", {"topology": "ring"}, {"agents": "3"}, {"topology": "ring"}),
        ("reasoning_bank", MERGING, {"consolidate": "false"}, {}),
        ("reasoning_bank", MERGING, {"consolidate": "true"}, {"threshold": 0.9}),
        ("reasoning_bank", MERGING, {"items": 2}, MERGING),
        ("unified", {"items": 2, "memories": 3, "threshold": 0.9}, {"memory": "false"}, {"threshold": 0.9}),
        ("unified", {"preset": "critical", "memories": 3}, {"memory": False}, {"preset": "critical", "memories": 3}),
        ("unified", {"items": 2, "memories": 3}, {"memory": "true"}, {"items": 2, "memories": 3}),
        ("unified", {"weigh": True, "k": 7, "items": 2}, {"preset": "specification"}, {"items": 2}),
        ("unified", {"weigh": True, "k": 7, "items": 2}, {"preset": "critical"}, {"weigh": True, "items": 2}),
        ("unified", {"preset": "specification", "items": 2}, {"preset": "critical"}, {"items": 2}),
        ("unified", {"preset": "specification", "k": 2}, {"scaling": "none"}, {"preset": "specification"}),
        ("unified", {"outcomes": 1, "delta_max": 9}, {"rules": "reflected"}, {}),
        ("dynamic_cheatsheet", {"form": "synthesis", "k": 5}, {"form": "cumulative"}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_a_run_are_dropped_if_overrides_leave_them_without_effect(
    method: str, settings: dict[str, Any], given: dict[str, Any], left: dict[str, Any]
) -> None:
    made = methods.override_settings(method, settings, given)
    assert made == {**left, **given}
    methods.read_settings(method, made)


def test_no_answer_is_an_error_and_a_failed_agent_is_told(tmp_path: Path) -> None:
    run = a_run(tmp_path, k=1)
    with refused("attempts.all_failed"):
        ask(run, "Message 1", model(lambda call: ProviderError("provider.failed", "down")))
    with refused("query.empty"):
        ask(run, "  \n")
    with refused("budget.spent"):
        ask(run, "Message 1", max_calls=2, settings={"k": 3})


# ---- learning


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", ["word5", None])
@pytest.mark.slow
def test_every_method_learns_from_a_query(tmp_path: Path, method: str, target: str | None) -> None:
    run = a_run(tmp_path, method, 2)
    before = load_context(run)
    # Episodes keep what was right, RCL learns from what was wrong.
    well = method == "episodes"
    made = model(right if well else wrong, judge=lambda call: {"right": well, "reason": "as it is"})
    found = ask(run, "Message 5: say word5", made, learn=True, target=target)
    assert found.learned is not None
    after = load_context(run)
    assert after.version == before.version + 1 == found.learned.context.version
    assert found.context.version == before.version
    # Without a target a judge is the only one who says how it went.
    assert any(c.role == "judge" for c in made.calls) == (target is None)
    with Store.read(run) as store:
        assert read_versions(store, store.run_id)[-1].step == found.learned.step == len(Story(store).steps())


def test_each_query_is_a_step_that_can_be_shown_forgotten_and_taken_back(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    one = ask(run, "Message 41: say word41", learn=True)
    two = ask(run, "Message 42: say word42", learn=True)
    assert one.learned is not None
    assert two.learned is not None
    assert (one.learned.step, two.learned.step) == (4, 5)
    assert two.learned.context.version == one.learned.context.version + 1
    (entry,) = [e for e in load_context(run) if "task:asked-4" in e.sources]
    assert "41" in entry.text
    with Store.open(run) as store:
        report = forget(store, store.run_id, tasks=["asked-4"])
    assert report.left == 0
    assert [e.id for e in report.removed] == [entry.id]
    assert not any("Message 41" in str(row) for table in rows(run).values() for row in table)
    third = ask(run, "Message 43: say word43", learn=True)
    assert third.learned is not None
    assert third.learned.step == 6
    with refused("run.finished"):
        practicum.run_sync(practicum.resume(run))


def test_a_stop_lets_what_is_in_flight_finish_and_pays_nothing_twice(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    began = Began()

    def stopping(call: Call) -> dict[str, Any]:
        began.runs[0].budget.stop(INTERRUPTED)
        return nothing(call)

    cut = model(judge=stopping)
    with pytest.raises(Stopped, match=INTERRUPTED):
        ask(run, "Message 8: say word8", cut, learn=True, watch=began)
    rest = model()
    assert ask(run, "Message 8: say word8", rest, learn=True).hits == len(cut.calls)
    assert not [c for c in rest.calls if c.role in ("agent", "judge")]


def test_an_unparsed_reflection_is_a_step_without_lessons(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    found = ask(run, "Message 8: say word8", model(reflector=lambda call: "nonsense"), learn=True)
    assert found.learned is not None
    assert found.learned.applied == ()
    assert "reflector" in found.trouble


def test_a_run_in_progress_cannot_be_changed(tmp_path: Path) -> None:
    made = model()
    run = learned(tmp_path, made, 4, {}, "reasoning_bank", max_calls=12).folder
    with refused("run.unfinished"):
        ask(run, "Message 8: say word8", learn=True)
    assert ask(run, "Message 8: say word8", embedder=None).text == "word8"


@pytest.mark.parametrize(
    ("method", "how", "code"),
    [
        ("none", {"learn": True}, "method.unsuitable"),
        ("icl", {"learn": True}, "method.unsuitable"),
        ("opro", {"learn": True, "target": "word1"}, "method.unsuitable"),
        ("ace", {"target": "word1"}, "settings.conflict"),
        ("ace", {"settings": {"scaling": "parallel"}}, "settings.unknown"),
        ("ace", {"learn": True, "target": "word9", "choices": ("word1", "word2")}, "tasks.invalid_target"),
        ("reasoning_bank", {"settings": {"k": 0}}, "settings.invalid"),
        ("ace", {"no_such": 1}, "settings.unknown"),
    ],
)
def test_impossible_settings_are_refused_before_a_call(
    tmp_path: Path, method: str, how: dict[str, Any], code: str
) -> None:
    run = a_run(tmp_path, method, 1)
    made = model()
    with refused(code):
        ask(run, "Message 1: say word1", made, **how)
    assert not made.calls


# ---- the command
