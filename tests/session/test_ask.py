"""Asking a run: what an answer rests on, what a query teaches, and that nothing is lost or paid twice on the way."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Began, make_tasks
from refusals import refused
from runs import Words
from scripts import added, insight, learned, memory, nothing, number, right, scripted, shape, wrong

import practicum
from practicum import methods
from practicum.core.errors import ModelError, ProviderError, Stopped, UsageError
from practicum.methods.memory import MemorySettings
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.ask import Answered
from practicum.session.forget import forget
from practicum.session.records import load_context, override_config
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


class Counting(Words):
    """Counts the texts it embeds."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return await super().embed(texts)


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


def test_answering_changes_nothing_and_embeds_what_is_new_alone(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    before, embedder = rows(run), Counting()
    with Store.open(run):  # Another process may hold the run.
        ask(run, "Message 7: say what?", embedder=embedder)
    assert rows(run) == before
    # The memories of the last step were never looked for before.
    assert "Message 7: say what?" in embedder.texts
    assert len(embedder.texts) == 2
    again = Counting()
    ask(run, "Message 7: say what?", embedder=again)
    assert len(again.texts) == 2


@pytest.mark.parametrize(
    ("settings", "answers", "attempts", "by"),
    [
        ({"scaling": "none"}, "word9", 1, None),
        ({"scaling": "parallel", "k": 4}, "word9", 4, "agreement"),
        ({"scaling": "sequential", "k": 2}, "wrong", 3, "order"),
    ],
)
def test_scaling_as_asked(
    tmp_path: Path, settings: dict[str, Any], answers: str, attempts: int, by: str | None
) -> None:
    run = a_run(tmp_path, k=2)
    refusing = model(lambda call: answers, judge=lambda call: {"right": False, "reason": "no"})
    found = ask(run, "Message 9: say word9", refusing, settings=settings)
    assert (found.text, len(found.attempts)) == (answers, attempts)
    assert found.rollout in found.attempts
    assert found.rollout.choice.get("by") == by
    assert len([c for c in refusing.calls if c.role == "agent"]) == attempts
    assert sum(a["chosen"] for a in found.as_json()["attempts"]) == 1


def test_attempts_come_in_the_order_they_were_made(tmp_path: Path) -> None:
    seen: list[str] = []

    def counting(call: Call) -> str:
        seen.append(f"guess {len(seen)}")
        return seen[-1]

    run = a_run(tmp_path, k=1)
    made = model(counting, judge=lambda call: {"right": "guess 1" in call.prompt.user, "reason": "so"})
    found = ask(run, "Message 9: say word9", made, settings={"k": 3})
    assert found.text == "guess 1"
    assert [r.trace.answer for r in found.attempts] == ["guess 0", "guess 1", "guess 2"]


def test_overriding_settings_drop_those_that_belong_to_the_old_value() -> None:
    config = {
        "method": "reasoning_bank",
        "model": "a",
        "roles": {"agent": "b", "judge": "c"},
        "settings": {"k": 7, "items": 2},
    }

    def settings(**given: Any) -> dict[str, Any]:
        return dict(override_config(config, {"settings": given})["settings"])

    assert settings() == {"k": 7, "items": 2}
    assert settings(k=3) == {"k": 3, "items": 2}
    assert settings(scaling="none") == {"scaling": "none", "items": 2}
    critical = methods.read_settings("reasoning_bank", settings(preset="critical"))
    assert isinstance(critical, MemorySettings)
    assert (critical.attempts, critical.memories, critical.items) == (5, 10, 2)
    assert override_config(config, {"method": "ace"})["settings"] == {}
    assert override_config(config, {"model": "d"})["roles"] == {"judge": "c"}
    assert override_config(config, {"model": None, "roles": {"agent": "e"}})["roles"] == {"agent": "e", "judge": "c"}


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


@pytest.mark.parametrize(
    ("method", "settings", "given", "said"),
    [
        ("mael", {"alpha": 0.7}, {"experience": "none", "alpha": "0.3"}, "alpha needs experience=task or step"),
        ("mael", {"agents": 3}, {"topology": TEAM, "agents": "2"}, "leave out agents"),
        ("reasoning_bank", {}, {"consolidate": "false", "threshold": "0.9"}, "threshold needs consolidate=true"),
        ("unified", {"items": 2}, {"memory": "false", "items": "3"}, "items needs memory=true"),
    ],
    ids=str,
)
def test_contradicting_settings_are_refused_over_a_run_too(
    method: str, settings: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        methods.read_settings(method, methods.override_settings(method, settings, given))


def test_a_choice_bounds_the_answer_and_nothing_is_scored(tmp_path: Path) -> None:
    made = scripted(right)
    run = learned(tmp_path, made, 2, {}, "episodes", choices=("word0", "word1", "word2"), scorer="judge").folder
    fresh = model(lambda call: "word2")
    found = ask(run, "Message 2: say what?", fresh, embedder=None)
    assert (found.text, [c.role for c in fresh.calls], found.rollout.score) == ("word2", ["agent"], None)
    assert [f.entry.data["answer"] for f in found.retrieved]


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


class Killed(BaseException):
    """As good as kill -9 within one process."""


def test_a_kill_between_attempt_and_version_pays_nothing_twice(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    before = load_context(run).version

    def dying(call: Call) -> dict[str, Any]:
        raise Killed

    cut = model(judge=nothing, reflector=dying)
    with pytest.raises(Killed):
        ask(run, "Message 8: say word8", cut, learn=True)
    paid = [c for c in cut.calls if c.role in ("agent", "judge")]
    assert len(paid) == 4
    assert load_context(run).version == before
    rest = model()
    found = ask(run, "Message 8: say word8", rest, learn=True)
    assert not [c for c in rest.calls if c.role in ("agent", "judge")]
    assert found.hits == len(paid)
    assert found.learned is not None
    assert found.learned.context.version == before + 1


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


def test_leftovers_of_a_kill_do_not_disturb(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with pytest.raises(ModelError):
        ask(run, "Message 8: say word8", model(reflector=lambda call: ModelError("model.unusable", "gone")), learn=True)
    other = model()
    assert ask(run, "Message 9: say word9", other, learn=True).hits == 0
    assert ask(run, "Message 8: say word8", model(), learn=True).learned is not None


def test_a_lost_reflection_leaves_the_answer_and_is_tried_again(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    before = rows(run)
    found = ask(
        run, "Message 8: say word8", model(reflector=lambda call: ProviderError("provider.failed", "down")), learn=True
    )
    assert (found.text, found.learned, found.trouble) == ("word8", None, "down")
    paid = {"journal", "prompts", "texts"}
    assert {k: v for k, v in rows(run).items() if k not in paid} == {k: v for k, v in before.items() if k not in paid}
    again = model()
    assert ask(run, "Message 8: say word8", again, learn=True).learned is not None
    assert {c.role for c in again.calls} == {"reflector"}


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


def test_a_scorer_that_needs_no_target_scores_tasks_without_one(tmp_path: Path) -> None:
    run = learned(tmp_path, model(), 1, {"rounds": 0}, "ace", scorer="judge").folder
    made = model()
    ask(run, "Message 3: say word3", made, learn=True)
    # Once as a score; a second verdict on the same answer would be paid for nothing.
    assert [c.role for c in made.calls].count("judge") == 1


def test_ids_of_asked_tasks_do_not_meet_those_of_the_run(tmp_path: Path) -> None:
    tasks = [practicum.Task("asked-2", "Message 1: say word1", "word1")]
    run = learned(tmp_path, model(), tasks, {}, "reasoning_bank").folder
    ask(run, "Message 2: say word2", learn=True)
    assert any("task:asked-2'" in e.sources for e in load_context(run))


# ---- the command


SCRIPT: tuple[dict[str, Any], ...] = (
    {
        "role": "agent",
        "match": r"say (?P<w>word\d+)[^\n]*\Z",
        "answer": {"used": ["e0"], "note": "n", "answer": r"\g<w>"},
    },
    {"role": "agent", "answer": {"used": [], "note": "n", "answer": "no idea"}},
    {"role": "judge", "answer": {"reason": "as asked", "right": True}},
    {
        "role": "reflector",
        "match": r"Message (\d+): say (\w+)",
        "answer": {
            "items": [{"title": r"Message \1", "description": "d", "content": r"say \2"}],
            "holds": [], "separates": [], "spurious": [], "why": "w", "best": 1,
        },
    },
)  # fmt: skip


@pytest.fixture
def bank(tmp_path: Path, launcher: Any) -> Any:
    """Runs commands beside a run of three memories, `bank`."""
    (tmp_path / "model").write_text("\n".join(map(json.dumps, SCRIPT)) + "\n", encoding="utf-8")
    lines = [json.dumps({"id": t.id, "input": t.input, "target": t.target}) for t in make_tasks(3)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def go(*arguments: object, code: int = 0) -> Any:
        done = launcher.run([str(a) for a in arguments], tmp_path)
        assert done.code == code, done.out + done.err
        assert "Traceback" not in done.err
        return done

    learn = ("learn", "tasks.jsonl", "--method", "reasoning_bank", "--model", "scripted:model", "--out", "bank")
    go(*learn, "--scaling", "parallel", "--k", 2)
    return go


def test_run_prints_the_answer_first_and_then_why(bank: Any) -> None:
    said = bank("run", "--context", "bank", "Message 1: say word1").out
    assert said.startswith("word1\n")
    assert "similarity" in said
    assert "Successful approach: Message 1 (d). say word1" in said
    assert "chosen by agreement: 2 of 2 came to it" in said
    assert "usage: 2 calls" in said
    assert max(map(len, said.splitlines())) < 200
    value = bank("run", "--context", "bank", "--scaling", "none", "Message 1: say word1", "--json").json
    assert (value["answer"], len(value["attempts"]), value["usage"]["calls"]) == ("word1", 1, 1)
    value = bank("run", "--context", "bank", "--scaling", "sequential", "--k", 1, "Message 1: say word1", "--json").json
    assert (value["choice"]["of"], value["choice"]["by"]) == (2, "order")
    assert bank("run", "--context", "bank", "--preset", "critical", "Message 1: say word1", "--json").json[
        "choice"
    ]["of"] == 5  # fmt: skip


def test_run_says_why_a_sequence_ended_with_its_first_attempt(bank: Any) -> None:
    sequence = ("--scaling", "sequential", "--set", "until=judge")
    said = bank("run", "--context", "bank", *sequence, "Message 1: say word1").out
    assert "chosen by judge: accepted after pass 0: A judge found the answer right: as asked" in said
    assert "chosen by" not in bank("run", "--context", "bank", "--scaling", "none", "Message 1: say word1").out


@pytest.mark.slow
def test_run_with_learn_then_show_memory_and_rollback(bank: Any) -> None:
    said = bank("run", "--context", "bank", "--learn", "Message 7: say word7").out
    assert "learned [e3]: added in 'memories': Successful approach: Message 7" in said
    assert "step 4 made version 4 of bank; undo it with practicum rollback bank 3" in said
    value = bank("run", "--context", "bank", "--learn", "--target", "word9", "Message 8: say word8", "--json").json
    assert value["learned"]["version"] == 5
    assert bank("show", "bank", "--json").json["state"] == "asked"
    assert "from 4.asked-4, right: Message 7: say word7" in bank("show", "bank", "--entry", "e3").out
    listed = bank("memory", "list", "bank", "--json").json["entries"]
    assert [e["data"]["outcome"] for e in listed] == ["success"] * 4 + ["failure"]
    assert len(bank("diff", "bank", 3, 5, "--json").json["added"]) == 2
    assert "removed" in bank("forget", "bank", "--task", "asked-5", "--yes").out
    bank("rollback", "bank", 3, "--yes")
    assert len(bank("memory", "list", "bank", "--json").json["entries"]) == 3
    assert bank("run", "--context", "bank", "--learn", "Message 9: say word9", "--json").json["learned"]["version"] == 7


@pytest.mark.slow
def test_run_in_one_clear_line(bank: Any, tmp_path: Path) -> None:
    (tmp_path / "book.md").write_text("- say word1\n")
    refusals = {
        ("--context", "nowhere", "q"): "nowhere",
        ("--context", "bank", " "): "the query is empty",
        ("--context", "bank", "-"): "the query is empty",
        ("--context", "bank", "--k", "-1", "q"): "--k",
        ("--context", "bank", "--k", "0", "q"): "k=0 needs scaling=sequential",
        ("--context", "bank", "--scaling", "wide", "q"): "'wide' is not one of 'parallel', 'sequential', 'none'",
        ("--context", "bank", "--scaling", "none", "--k", "3", "q"): "k needs scaling=parallel or sequential",
        ("--context", "bank", "--scorer", "exact", "q"): "--scorer applies to --learn only",
        ("--context", "bank", "--target", "x", "q"): "--learn",
        ("--context", "book.md", "--model", "scripted:model", "--learn", "q"): "practicum import",
        ("--context", "book.md", "--model", "scripted:model", "--k", "3", "q"): "method ace has no setting 'k'",
        ("q",): "--context",
    }
    for arguments, said in refusals.items():
        assert said in bank("run", *arguments, code=2).line


def test_an_empty_memory_answers_and_says_so(bank: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text("# Playbook\n")
    said = bank(
        "run",
        "--context",
        "empty.md",
        "--method",
        "reasoning_bank",
        "--model",
        "scripted:model",
        "Message 1: say word1",
    ).out
    assert said.startswith("word1\n")
    assert "nothing has been learned yet" in said


def test_a_query_from_standard_input(bank: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    from practicum.cli.app import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Message 6: say word6\n"))
    with pytest.raises(SystemExit) as end:
        main(["run", "--context", "bank", "-"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("word6\n")


@pytest.mark.slow
def test_learn_and_eval_take_scaling_where_the_method_has_it(bank: Any) -> None:
    for command in ("learn", "eval"):
        done = bank(command, "tasks.jsonl", "--method", "ace", "--model", "scripted:model", "--scaling", "none", code=2)
        assert "method ace has no setting 'scaling'" in done.line
    assert bank("eval", "tasks.jsonl", "--context", "bank", "--json").json["usage"]["calls"] == 6
    assert bank("eval", "tasks.jsonl", "--context", "bank", "--scaling", "none", "--json").json["usage"]["calls"] == 3
    assert (
        bank("eval", "tasks.jsonl", "--context", "bank", "--preset", "critical", "--json").json["usage"]["calls"] == 15
    )
    twice = bank("eval", "tasks.jsonl", "--context", "bank", "--k", 2, "--set", "k=3", code=2)
    assert "setting 'k' is given twice" in twice.line
