"""The outcomes of a space as tasks and traces: learned from, measured with, exported (docs/learn/traces.md)."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import practicum
from practicum import Count

from .kit import Model, Shell, new_workshop, started, write_lines
from .test_service import Service

EPISODES = "--method episodes --model scripted:script.jsonl --out"
AGENT = "def last(text, context):\n    return text.split()[-1]\n"
LAST = "--agent last_word:last"


@pytest.fixture(scope="module")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = new_workshop(tmp_path_factory.mktemp("served"))
    shell.file("book.md", "# Rules\n- Be short.\n")
    shell.file("last_word.py", AGENT)
    for name in ("served", "scored", "empty"):
        shell.json(f"space import book.md --out {name}")

    async def report() -> None:
        async with practicum.open(shell / "served") as space:
            for query, outcome in (
                ("say one", {"answer": "two", "target": "one"}),
                ("say two", {"answer": "two", "target": "two"}),
                ("say it", {"answer": {"answer": "it", "steps": [{"kind": "thought", "text": "Hm."}]}, "score": 0.25}),
                ("say four", {"answer": "five", "target": "four", "user": "ann"}),
            ):
                await space.report(await space.show(query), **outcome)
            await space.show("no outcome")
        async with practicum.open(shell / "scored") as space:
            await space.report(await space.show("say one"), answer="one", score=1.0)

    practicum.run_sync(report())
    return shell


@pytest.fixture
def shell(_served: Shell, tmp_path: Path) -> Shell:
    """A folder with the spaces `served` - one wrong and one right answer with targets, a score, and a user's target -,
    `scored`, which has only a score, and `empty`."""
    return _served.copied(tmp_path)


def attempts(shell: Shell, run: str) -> list[tuple[Any, Any]]:
    return sorted((one["score"], one["correct"]) for one in shell.json(f"show {run} --attempts")["attempts"])


def test_a_new_run_learns_from_the_recorded_answers_of_a_space_as_from_its_exported_traces(shell: Shell) -> None:
    """No agent runs; a reported score counts, and an answer is compared with the target otherwise. An outcome of a
    user waits for review."""
    shell.file("traces.jsonl", shell("export served --format traces").out)
    for name, source in (("new", "--from served"), ("read", "--from-traces traces.jsonl --trust own")):
        value = shell.json(f"learn {source} {EPISODES} {name}")
        assert "agent" not in value["by_role"]
        assert attempts(shell, name) == [(0.0, False), (0.0, False), (0.25, False), (1.0, True)]
        assert (len(value["entries"]), value["held"]) == (3, 1)
        assert "say four" in json.dumps(shell.json(f"review {name}"))
    assert shell.json(f"learn --from served --trust foreign {EPISODES} careful")["held"] == 4
    assert shell.json(f"learn --from served --review none {EPISODES} bold")["held"] == 0
    assert len(shell.json(f"learn --from scored {EPISODES} rated")["entries"]) == 1


def test_a_space_may_have_learned_from_its_outcomes_already(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def learn() -> None:
        async with practicum.open(shell / "served", method="episodes", model="scripted:script.jsonl") as space:
            await space.learn()

    before = shell("export served --format traces").out
    monkeypatch.chdir(shell.folder)
    practicum.run_sync(learn())
    assert shell("export served --format traces").out == before
    shell.json(f"learn --from served {EPISODES} new")
    assert len(attempts(shell, "new")) == 4


def test_a_space_is_accepted_in_place_of_a_file_of_tasks(shell: Shell) -> None:
    """Its tasks are the outcomes that the scorer can score; they are attempted again."""
    value = shell.json(f"eval served {LAST}")
    assert [one["correct"] for one in value["attempts"]] == [True, True, True]
    shell.file("any.py", "def score(task, answer):\n    return 1.0\n")
    assert len(shell.json(f"eval served {LAST} --scorer any:score")["attempts"]) == 4
    shell.json(f"learn served {LAST} {EPISODES} new")
    assert len(attempts(shell, "new")) == 3
    assert shell.json("bench advise served")["tasks"]


def test_exported_tasks_and_traces_are_read_back_unchanged(shell: Shell) -> None:
    tasks = practicum.load_outcomes(shell / "served")
    assert shell.json("export served --format tasks --output tasks.jsonl")["outcomes"] == 4
    parts = [(task.id, task.input, task.target, dict(task.meta)) for task in tasks]
    for trust in ("own", "foreign"):
        read = practicum.load_tasks(shell / "tasks.jsonl", trust=trust)
        assert [(task.id, task.input, task.target, dict(task.meta)) for task in read] == parts
        assert [t.trust for t in read] == ([t.trust for t in tasks] if trust == "own" else ["foreign"] * 4)
    shell.file("traces.jsonl", shell("export served --format traces").out)
    traces = practicum.load_traces(shell / "traces.jsonl", trust="own")
    assert [(t.id, t.input, t.target, t.trust, t.recorded) for t in traces.tasks] == [
        (t.id, t.input, t.target, t.trust, t.recorded) for t in tasks
    ]
    assert (traces.formats, traces.problems) == ({"practicum": 4}, ())
    foreign = practicum.load_traces(shell / "traces.jsonl")
    assert {(task.target, task.recorded.score if task.recorded else None) for task in foreign.tasks} == {(None, None)}


def test_an_invalid_recorded_attempt_is_reported_with_its_line(shell: Shell) -> None:
    good = {"id": "a", "input": "say one", "recorded": {"trace": {"answer": "one"}}}
    bad = [{"trace": {}}, {"trace": {"answer": "x"}, "score": {"value": 7, "correct": True}},
           {"trace": {"answer": "x"}, "score": 1}]  # fmt: skip
    write_lines(shell / "traces.jsonl", [good, *({**good, "id": f"b{n}", "recorded": r} for n, r in enumerate(bad))])
    done = shell(f"learn --from-traces traces.jsonl --trust own {EPISODES} run --json")
    assert done.json["errors"][Count.TRACE_FAULTS.value] == 3
    for line in (2, 3):
        assert f"traces.jsonl line {line}: " in done.err


def test_an_unknown_trust_level_of_a_task_is_refused(shell: Shell) -> None:
    shell.file("tasks.jsonl", '{"input": "say one", "target": "one", "trust": "anybody"}\n')
    assert "'anybody'" in shell.fails("eval tasks.jsonl", error="tasks.invalid_field")


@pytest.mark.slow
def test_a_run_learns_from_the_outcomes_of_a_service_at_work(shell: Shell, model: Model) -> None:
    """Held-out outcomes are left out, and test a run that names the space for that."""
    run = ("serve", "store", "--upstream", model.name, "--port", 0, "--no-learning", "--json")
    with started(shell.folder, *run) as process:
        service = Service(shell, json.loads(process.line())["address"])
        for n in range(20):
            answer = service.ask(f"Which word is {n}?", **({} if n else {"x_practicum_user": "ann"}))
            service.post("/v1/feedback", {"interaction": answer["id"], "target": f"word{n}"})
        service.ask("Nothing is reported about this.")
        exported = shell.json("export store --format tasks")["outcomes"]
        shell.json(f"learn --from store/spaces/default {EPISODES} new")
        assert process.end(signal.SIGINT).code == 0
    assert 0 < exported < 20
    assert len(attempts(shell, "new")) == exported
    assert Counter(t.trust for t in practicum.load_outcomes(shell / "store"))["labelled"] <= 1
    assert exported + len(practicum.load_outcomes(shell / "store", held_out=True)) == 20
    value = shell.json(f"learn --from store --test store {LAST} {EPISODES} tested")
    assert value["scores"] == {"test": 0.0}


def test_a_source_without_outcomes_is_refused(shell: Shell) -> None:
    for typed, error in {
        f"learn --from book.md {EPISODES} run": "run.not_found",
        f"learn --from nowhere {EPISODES} run": "run.not_found",
        f"learn --from empty {EPISODES} run": "run.no_data",
        f"learn empty {EPISODES} run": "run.no_data",
        f"learn train.jsonl --test served {EPISODES} run": "run.no_data",
        f"learn train.jsonl --from served {EPISODES} run": "tasks.missing",
        f"learn --from served --from-traces logs.jsonl {EPISODES} run": "tasks.missing",
        f"learn --from served --trust-scores {EPISODES} run": "settings.unused",
        "learn --from served --set rounds=1 --model scripted:script.jsonl --out run": "settings.unused",
        "eval empty": "run.no_data",
        "eval empty/spaces/other": "run.not_found",
        "eval scored --model scripted:script.jsonl": "run.no_data",  # scores cannot be compared with targets
        "compare empty --test train.jsonl --methods none,icl": "run.no_data",
        "export empty --format tasks": "run.no_data",
        "export book.md --format traces": "run.not_found",
        "export empty/spaces/other --format tasks": "run.not_found",
        "export served --format tasks --version 0": "settings.unused",
    }.items():
        shell.fails(typed, error=error)
        assert not (shell / "run").exists()
