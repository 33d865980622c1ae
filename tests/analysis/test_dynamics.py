"""The dynamics of real runs: scores of training are reused, nothing is paid twice, and the run stays as it is."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Began, Done, client, context_bytes, make_tasks, run_command, world, write_tasks

import practicum
from practicum.analysis.dynamics.checkpoints import Dynamics, dynamics
from practicum.analysis.dynamics.curves import WINDOWS
from practicum.core.errors import ModelError, ProviderError, Stopped, StoreError, TaskFileError, UsageError
from practicum.core.types import Task, Usage
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.records import read_run, update_run
from practicum.session.result import Result, Watch
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.versions import read_versions

VAL = make_tasks(6, 80)
DEV = make_tasks(5, 300)


def learn(folder: Path, model: ScriptedClient | None = None, **config: Any) -> Result:
    parts = config.pop("parts", None) or practicum.Parts(clients={"agent": model or client()})
    config = {"settings": {"batch": 2}, **config}
    return practicum.run_sync(practicum.learn(make_tasks(12), out=folder, parts=parts, **config))


def measure(folder: Path, model: ScriptedClient | None = None, tasks: list[Task] | None = None, **how: Any) -> Dynamics:
    parts = how.pop("parts", None) or practicum.Parts(clients={"agent": model or client()})
    return practicum.run_sync(dynamics(folder, tasks, parts=parts, **how))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "run.sqlite") as db:
        found = db.execute(query).fetchall()
    db.close()
    return found


def everything_else(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All of a run but its journal."""
    tables = ("runs", "tasks", "steps", "rollouts", "lessons", "versions", "vectors")
    return {table: rows(folder, f"select * from {table}") for table in tables}


def test_the_judge_is_not_asked_again_either(tmp_path: Path) -> None:
    def judging(call: Call) -> str | Exception:
        return '{"reason": "so", "right": true}' if call.role == "judge" else world(call)

    parts = {"agent": client(), "judge": client(judging)}
    learn(tmp_path / "run", parts=practicum.Parts(clients=parts), scorer="judge", val=VAL)
    again = {"agent": client(), "judge": client(judging)}
    found = measure(tmp_path / "run", parts=practicum.Parts(clients=again))
    assert again["agent"].calls == again["judge"].calls == []
    assert found.solved.all()
    assert found.hits == 7 * 6 * 2
    assert found.by_role == {}
    # The calls of the run itself are not counted again.
    more = measure(tmp_path / "run", parts=practicum.Parts(clients=again), tasks=DEV)
    assert {role: usage.calls for role, usage in more.by_role.items()} == {"agent": 7 * 5, "judge": 7 * 5}
    assert sum(more.by_role.values(), Usage()) == more.usage
    assert more.as_json()["by_role"]["judge"]["calls"] == len(again["judge"].calls)


def test_a_judge_that_the_method_itself_asks_is_the_one_it_learned_with(tmp_path: Path) -> None:
    def unsure(call: Call) -> str:
        if call.role != "agent":
            return world(call)
        # Attempts that differ, so that a judge has to choose.
        word = f"word{(call.options.seed or 0) % 5}"
        return json.dumps({**json.loads(world(call)), "answer": word}) if call.schema else word

    def parts() -> dict[str, ScriptedClient]:
        return {"agent": client(unsure, name="agents"), "judge": client(name="judges")}

    learned, again, more = parts(), parts(), parts()
    how = {"method": "reasoning_bank", "settings": {"batch": 4, "scaling": "parallel"}}
    learn(tmp_path / "run", parts=practicum.Parts(clients=learned), val=VAL[:2], **how)
    measure(tmp_path / "run", parts=practicum.Parts(clients=again))
    assert again["agent"].calls == again["judge"].calls == []
    measure(tmp_path / "run", tasks=DEV, parts=practicum.Parts(clients=more))
    assert {call.role for call in more["agent"].calls} == {"agent"}
    assert {call.role for call in more["judge"].calls} == {"judge"}


@pytest.mark.slow
def test_an_agent_of_a_network_keeps_its_own_model(tmp_path: Path) -> None:
    agents = [
        {"name": "lead", "role": "You plan."},
        {"name": "coder", "role": "You code.", "model": "scripted:nowhere"},
    ]
    team = tmp_path / "team.json"
    team.write_text(json.dumps({"agents": agents, "links": [["lead", "coder"]]}), encoding="utf-8")
    lead, coder = client(), client(name="coders")
    parts = practicum.Parts(clients={"agent": lead, "agent:coder": coder})
    learn(tmp_path / "run", parts=parts, val=VAL[:2], method="mael", settings={"topology": str(team)})
    measure(tmp_path / "run", parts=parts, tasks=DEV)
    asked = [call.text for call in lead.calls]
    assert coder.calls
    assert not [text for text in asked if "Your role: You code." in text]


def test_a_stop_keeps_everything_that_was_paid_for(tmp_path: Path) -> None:
    learn(tmp_path / "run", val=VAL)
    whole = client()
    measured = measure(tmp_path / "run", whole, DEV, concurrency=1)
    learn(tmp_path / "again", val=VAL)
    first, second = client(), client()

    class Enough(Began):
        def evaluating(self, name: str, attempts: int) -> None:
            if name.startswith("checkpoint 3"):
                self.runs[0].budget.stop("enough")

    with pytest.raises(Stopped, match="enough"):
        measure(tmp_path / "again", first, DEV, watch=Enough())
    assert 0 < len(first.calls) < len(whole.calls)
    assert measure(tmp_path / "again", second, DEV).curves.current.tolist() == measured.curves.current.tolist()
    assert len(first.calls) + len(second.calls) == len(whole.calls)


def test_checkpoints_are_the_start_each_nth_step_and_the_last(tmp_path: Path) -> None:
    learn(tmp_path / "run", val=VAL)
    whole = measure(tmp_path / "run")
    assert [c.step for c in whole.checkpoints] == [0, 1, 2, 3, 4, 5, 6]
    some = measure(tmp_path / "run", every=4)
    assert [c.step for c in some.checkpoints] == [0, 4, 6]
    assert (some.solved == whole.solved[:, [0, 4, 6]]).all()
    assert [c.step for c in measure(tmp_path / "run", every=100).checkpoints] == [0, 6]


def test_equal_contexts_are_evaluated_once(tmp_path: Path) -> None:
    def never_learns(call: Call) -> str | Exception:
        nothing = {"kind": "k", "diagnosis": "d", "correction": "c", "insight": "", "tags": []}
        return json.dumps(nothing) if call.role == "reflector" else world(call)

    model = client(never_learns)
    learn(tmp_path / "run", model)
    model.calls.clear()
    found = measure(tmp_path / "run", model, DEV)
    assert len(found.checkpoints) == 7
    assert len(model.calls) == len(DEV)
    assert len(set(found.curves.current)) == 1


def test_without_validation_tasks_the_test_tasks_are_scored(tmp_path: Path) -> None:
    learn(tmp_path / "run", test=VAL, before=True)
    found = measure(tmp_path / "run")
    assert (found.split, found.hits, found.usage.calls) == ("test", 2 * len(VAL), 5 * len(VAL))


def test_other_tasks_have_places_of_their_own(tmp_path: Path) -> None:
    learn(tmp_path / "run", val=VAL)
    first = measure(tmp_path / "run", tasks=DEV)
    assert (first.usage.calls, first.hits) == (7 * len(DEV), 0)
    assert first.split.startswith("dev ")
    assert measure(tmp_path / "run", tasks=DEV).usage.calls == 0
    # The same ids, another text: other tasks.
    other = [Task(t.id, t.input + "!", t.target) for t in DEV]
    assert measure(tmp_path / "run", tasks=other).usage.calls == 7 * len(DEV)
    # The same tasks, scored by other rules.
    ruled = [Task(t.id, t.input, t.target, {"answer": "in words"}) for t in DEV]
    assert measure(tmp_path / "run", tasks=ruled).usage.calls == 7 * len(DEV)
    # The ids of the validation tasks, which are no concern of these.
    taken = [Task(v.id, t.input, t.target) for v, t in zip(VAL, DEV, strict=False)]
    assert measure(tmp_path / "run", tasks=taken).usage.calls == 7 * len(DEV)
    assert measure(tmp_path / "run", tasks=list(VAL)).usage.calls == 0


@pytest.mark.slow
def test_any_concurrency_gives_the_same(tmp_path: Path) -> None:
    seen = []
    for name, concurrency in (("one", 1), ("many", 64), ("own", None)):
        learn(tmp_path / name, concurrency=3)
        seen.append(measure(tmp_path / name, tasks=DEV, concurrency=concurrency))
    assert (seen[0].solved == seen[1].solved).all()
    assert (seen[0].solved == seen[2].solved).all()
    assert seen[0].usage == seen[1].usage == seen[2].usage
    with Store.read(tmp_path / "many") as store:
        assert read_run(store)[0].concurrency == 3


def test_a_run_out_of_budget_is_measured_and_resumes_to_the_same_end(tmp_path: Path) -> None:
    # Without test tasks: a run that is stopped scores them with the best context so far, which need not be the last.
    whole = learn(tmp_path / "whole", val=VAL)
    cut = learn(tmp_path / "cut", val=VAL, max_calls=60)
    assert cut.stopped
    before = everything_else(tmp_path / "cut")
    found = measure(tmp_path / "cut", tasks=DEV)
    assert found.usage.calls == len(found.checkpoints) * len(DEV)
    assert everything_else(tmp_path / "cut") == before
    parts = practicum.Parts(clients={"agent": client()})
    resumed = practicum.run_sync(practicum.resume(tmp_path / "cut", max_calls=9999, parts=parts))
    assert context_bytes(resumed) == context_bytes(whole)
    assert resumed.usage.calls == whole.usage.calls + found.usage.calls
    after = measure(tmp_path / "cut", tasks=DEV)
    assert (after.solved[:, : len(found.checkpoints) - 1] == found.solved[:, :-1]).all()


def test_a_killed_run_is_measured(tmp_path: Path) -> None:
    model = client()

    def dies(call: Call) -> str | Exception:
        return ModelError("model.unusable", "the key was taken away") if len(model.calls) > 60 else world(call)

    model.respond = dies
    with pytest.raises(ModelError):
        learn(tmp_path / "run", model, val=VAL)
    # As a kill leaves it: said to be running, and the last step written down without its version.
    with Store.open(tmp_path / "run") as store:
        update_run(store, state="running")
        last = max(v.version for v in read_versions(store, store.run_id))
        store.execute(schema.versions.delete().where(schema.versions.c.version == last))
    steps = len(rows(tmp_path / "run", "select * from steps"))
    assert steps > 1
    found = measure(tmp_path / "run")
    assert [c.step for c in found.checkpoints] == list(range(steps))
    assert found.usage.calls == 0
    assert rows(tmp_path / "run", "select state from runs") == [("running",)]


def test_versions_that_no_step_made_are_no_checkpoints(tmp_path: Path) -> None:
    from practicum.session.forget import forget

    learn(tmp_path / "run", val=VAL)
    whole = measure(tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        forget(store, store.run_id, tasks=["t3", "t80"])
    found = measure(tmp_path / "run")
    assert found.checkpoints == whole.checkpoints
    assert [t.id for t in found.tasks] == [t.id for t in VAL[1:]]
    assert 0 < found.usage.calls < found.solved.size
    assert measure(tmp_path / "run").usage.calls == 0


def test_failed_attempts_are_counted_and_not_solved(tmp_path: Path) -> None:
    def shaky(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "busy") if "Message 303" in call.text else world(call)

    learn(tmp_path / "run")
    found = measure(tmp_path / "run", client(shaky), DEV, every=6)
    assert not found.solved[3].any()
    assert found.errors == 2
    with pytest.raises(ProviderError, match="none of 5 tasks could be evaluated: busy"):
        measure(tmp_path / "run", client(lambda call: ProviderError("provider.failed", "busy")), make_tasks(5, 400))


def test_a_task_that_no_judge_could_score_at_some_checkpoint_is_left_out(tmp_path: Path) -> None:
    def judge(call: Call) -> str:
        if call.role != "judge":
            return world(call)
        return "hm" if "Message 303" in call.text else json.dumps({"reason": "so", "right": True})

    learn(tmp_path / "run", client(judge), scorer="judge")
    found = measure(tmp_path / "run", client(judge), DEV, every=6)
    assert [task.id for task in found.tasks] == [task.id for task in DEV if task.id != "t303"]
    assert found.solved.all()
    assert found.solved.shape[0] == len(DEV) - 1
    assert found.errors > 0
    with pytest.raises(ProviderError, match="none of 1 tasks has a score"):
        measure(tmp_path / "run", client(judge), DEV[3:4], every=6)


def test_a_watch_is_told_of_each_checkpoint(tmp_path: Path) -> None:
    learn(tmp_path / "run", val=VAL)
    seen: list[tuple[str, int]] = []

    class Progress(Watch):
        def evaluating(self, name: str, attempts: int) -> None:
            seen.append((name, attempts))

    measure(tmp_path / "run", every=2, watch=Progress())
    assert seen == [(f"checkpoint {n} of 4", len(VAL)) for n in range(1, 5)]


def test_wrong_usage_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    learn(tmp_path / "run")
    model = client()
    with pytest.raises(UsageError, match=r"neither validation nor test tasks .* give `tasks`"):
        measure(tmp_path / "run", model)
    with pytest.raises(UsageError, match="every=0"):
        measure(tmp_path / "run", model, DEV, every=0)
    with pytest.raises(UsageError, match="concurrency=0"):
        measure(tmp_path / "run", model, DEV, concurrency=0)
    with pytest.raises(UsageError, match="there are no tasks"):
        measure(tmp_path / "run", model, [])
    with pytest.raises(TaskFileError, match="have the id 't300'"):
        measure(tmp_path / "run", model, [*DEV, DEV[0]])
    with pytest.raises(TaskFileError, match="has no target"):
        measure(tmp_path / "run", model, [Task("x", "no target")])
    with pytest.raises(UsageError, match="unknown model 'scripted'"):
        measure(tmp_path / "run", tasks=DEV, parts=practicum.Parts())
    with pytest.raises(StoreError, match="is not a run folder"):
        measure(tmp_path / "nowhere", model, DEV)
    with Store.open(tmp_path / "run"), pytest.raises(StoreError, match="another process is writing to"):
        measure(tmp_path / "run", model, DEV)
    assert model.calls == []


SCRIPT = (
    {"role": "agent", "match": r"If message.*say (?P<word>word[0-4])\Z", "answer": {"used": [], "answer": r"\g<word>"}},
    {"role": "agent", "match": r"say (?P<word>word[02])\Z", "answer": {"used": [], "answer": r"\g<word>"}},
    {"role": "agent", "answer": {"used": [], "answer": "no idea"}},
    {
        "role": "reflector", "match": r"Task: Message (\d+): say (\w+)",
        "answer": {
            "reasoning": "r", "diagnosis": "d", "cause": "c", "correction": "c", "tags": [],
            "insights": [{"section": "strategies", "text": r"If message \1, say \2."}],
        },
    },
    {"role": "curator", "answer": {"changes": [{"op": "ADD", "insights": [1]}]}},
)  # fmt: skip


LEARN = ("learn", "tasks.jsonl", "--model", "scripted:model")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of tasks, a scripted model, and a run of eight steps with five validation tasks."""
    folder = tmp_path_factory.mktemp("example")
    write_tasks(folder / "tasks.jsonl", make_tasks(8))
    write_tasks(folder / "val.jsonl", make_tasks(5))
    lines = [{"question": f"Message {n}: say word{n}", "label": f"word{n}"} for n in range(4)]
    (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "model").write_text("\n".join(map(json.dumps, SCRIPT)) + "\n", encoding="utf-8")
    options = ("--val", "val.jsonl", "--out", "run", "--set", "rounds=0", "--set", "dedupe=never")
    assert run_command((*LEARN, *options), folder).code == 0
    return folder


@pytest.fixture
def run(example: Path, tmp_path: Path) -> Callable[..., Done]:
    """Runs `practicum ARGUMENTS` in a copy of the example."""

    def go(*arguments: object, code: int = 0) -> Done:
        done = run_command(arguments, tmp_path)
        assert done.code == code, done.out + done.err
        assert "Traceback" not in done.err
        return done

    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    return go


def test_the_command_prints_a_table_and_draws_without_paying(run: Any, tmp_path: Path) -> None:
    done = run("dynamics", "run", "--plot", "plot.png", "--window", 10)
    assert "9 checkpoints on 5 validation tasks" in done.out
    assert "within 10 checkpoints" in done.out
    assert "usage: 0 calls" in done.out
    table = [line.split() for line in done.out.splitlines() if line.strip()[:1].isdigit() and line.count("%") == 5]
    assert [row[0] for row in table] == [str(step) for step in range(9)]
    assert table[0][2:] == ["40.0%", "40.0%", "0.0%", "0.0%", "40.0%"]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "picture written to plot.png" in done.out


def test_the_command_prints_the_cost_of_each_of_several_roles(run: Any, tmp_path: Path) -> None:
    judge = {"role": "judge", "answer": {"reason": "so", "right": True}}
    (tmp_path / "model").write_text("\n".join(map(json.dumps, (judge, *SCRIPT))) + "\n", encoding="utf-8")
    run(*LEARN, "--out", "judged", "--method", "episodes", "--scorer", "judge")
    done = run("dynamics", "judged", "--tasks", "val.jsonl", "--every", 8)
    assert [line[:17] for line in done.out.splitlines() if " calls, " in line and line[:2] == "  "] == [
        "  agent: 10 calls",
        "  judge: 10 calls",
    ]


WRONG: dict[str, tuple[str, str, int]] = {
    "window": ("run --window 7", "'7' is not one of '5', '10', 'all'", 2),
    "every": ("run --every 0", "--every", 2),
    "no run": ("nowhere", "nowhere is not a run folder", 2),
    "no file": ("run --tasks nowhere", "nowhere: no such file", 2),
    "fields alone": ("run --fields input=x", "give both, or neither", 2),
    "another picture": ("run --plot plot.pdf", "ends in .png", 2),
    "nothing to score on": ("bare", "give --tasks", 2),
    "its model is gone": ("lost", "cannot read the script gone", 1),
}


@pytest.mark.slow
def test_the_command_reports_wrong_usage_in_one_line(run: Any, tmp_path: Path) -> None:
    learning = ("learn", "tasks.jsonl", "--method", "none", "--model")
    run(*learning, "scripted:model", "--out", "bare")
    (tmp_path / "gone").write_bytes((tmp_path / "model").read_bytes())
    run(*learning, "scripted:gone", "--test", "val.jsonl", "--out", "lost")
    (tmp_path / "gone").unlink()
    for typed, words, code in WRONG.values():
        assert words in run("dynamics", *typed.split(), code=code).line
    assert "dynamics" in run("--help").out
    assert all(f"--{name}" in run("dynamics", "--help").out for name in ("tasks", "window", "every", "plot", "json"))


def test_windows_are_those_of_the_paper(tmp_path: Path) -> None:
    learn(tmp_path / "run", val=VAL)
    means = [measure(tmp_path / "run").curves.by_window[w].mean_instability for w in WINDOWS]
    assert means == sorted(means)
