"""The outcomes of a space as tasks and traces: learned from, measured with, exported (docs/learn/traces.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import practicum

from .kit import Shell, new_workshop

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


def test_an_unknown_trust_level_of_a_task_is_refused(shell: Shell) -> None:
    shell.file("tasks.jsonl", '{"input": "say one", "target": "one", "trust": "anybody"}\n')
    assert "'anybody'" in shell.fails("eval tasks.jsonl", error="tasks.invalid_field")


def test_a_source_without_outcomes_is_refused(shell: Shell) -> None:
    for typed, error in {
        f"learn --from nowhere {EPISODES} run": "run.not_found",
        f"learn --from empty {EPISODES} run": "run.no_data",
        f"learn train.jsonl --test served {EPISODES} run": "run.no_data",
        f"learn train.jsonl --from served {EPISODES} run": "tasks.missing",
        f"learn --from served --trust-scores {EPISODES} run": "settings.unused",
        "eval empty": "run.no_data",
        "eval scored --model scripted:script.jsonl": "run.no_data",  # scores cannot be compared with targets
        "export empty --format tasks": "run.no_data",
    }.items():
        shell.fails(typed, error=error)
        assert not (shell / "run").exists()
