"""The outcomes of a space as tasks and traces: learned from, measured with, exported (docs/traces.md)."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import practicum

from .kit import Model, Shell, started
from .test_service import Service

EPISODES = "--method episodes --model scripted:script.jsonl --out"
SAYS = "def last(text, context):\n    return text.split()[-1]\n"
LAST = "--agent last_word:last"


def served(shell: Shell, name: str = "served") -> Path:
    """A space with four outcomes: one wrong and one right answer with targets, a score alone, and a user's target."""
    shell.file("book.md", "# Rules\n- Be short.\n")
    shell.file("last_word.py", SAYS)
    shell.json(f"space import book.md --out {name}")

    async def report() -> None:
        async with practicum.open(shell / name) as space:
            for query, told in (
                ("say one", {"answer": "two", "target": "one"}),
                ("say two", {"answer": "two", "target": "two"}),
                ("say it", {"answer": {"answer": "it", "steps": [{"kind": "thought", "text": "Hm."}]}, "score": 0.25}),
                ("say four", {"answer": "five", "target": "four", "user": "ann"}),
            ):
                await space.report(await space.show(query), **told)
            await space.show("no outcome")

    practicum.run_sync(report())
    return shell / name


def attempts(shell: Shell, run: str) -> list[tuple[Any, Any]]:
    return sorted((one["score"], one["correct"]) for one in shell.json(f"show {run} --attempts")["attempts"])


# ---- learning and measuring


def test_a_new_run_learns_from_the_outcomes_of_a_space_as_they_were_answered(shell: Shell) -> None:
    """No agent runs; a score that was reported counts, and an answer is compared with the right one otherwise."""
    served(shell)
    value = shell.json(f"learn --from served {EPISODES} new")
    assert "agent" not in value["by_role"]
    assert attempts(shell, "new") == [(0.0, False), (0.0, False), (0.25, False), (1.0, True)]


def test_what_users_said_waits_for_review_and_the_operators_word_does_not(shell: Shell) -> None:
    served(shell)
    value = shell.json(f"learn --from served {EPISODES} new")
    assert (len(value["entries"]), value["held"]) == (3, 1)
    assert "say four" in json.dumps(shell.json("review new"))
    assert shell.json(f"learn --from served --trust foreign {EPISODES} careful")["held"] == 4
    assert shell.json(f"learn --from served --review none {EPISODES} bold")["held"] == 0


def test_a_space_may_have_learned_from_its_outcomes_already(shell: Shell) -> None:
    served(shell)

    async def learn() -> None:
        async with practicum.open(shell / "served", method="episodes", model="scripted:script.jsonl") as space:
            await space.learn()

    before = shell("export served --format traces").out
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shell.folder)
        practicum.run_sync(learn())
    assert shell("export served --format traces").out == before
    shell.json(f"learn --from served {EPISODES} new")
    assert len(attempts(shell, "new")) == 4


def test_a_space_is_taken_in_place_of_a_file_of_tasks(shell: Shell) -> None:
    """Its tasks are those that the scorer can score, and they are attempted anew."""
    served(shell)
    done = shell(f"eval served {LAST} --json")
    assert [one["correct"] for one in done.json["attempts"]] == [True, True, True]
    assert "1 of 4 outcomes in served lacks the right answer" in done.err
    shell.file("any.py", "def score(task, answer):\n    return 1.0\n")
    assert len(shell.json(f"eval served {LAST} --scorer any:score")["attempts"]) == 4
    shell.json(f"learn served {LAST} {EPISODES} new")
    assert len(attempts(shell, "new")) == 3
    assert shell.json("bench advise served")["tasks"]
    report = shell.json(f"compare served --test train.jsonl --methods none,episodes --seeds 1 {LAST} --out compared "
                        "--model scripted:script.jsonl")  # fmt: skip
    assert [row["name"] for row in report["variants"]] == ["none", "episodes"]


# ---- exporting


@pytest.mark.parametrize("trust", ["own", "foreign"])
def test_exported_tasks_are_read_back_as_they_were(shell: Shell, trust: Any) -> None:
    tasks = practicum.load_outcomes(served(shell))
    assert shell.json("export served --format tasks --output tasks.jsonl")["outcomes"] == 4
    read = practicum.load_tasks(shell / "tasks.jsonl", trust=trust)
    parts = [(task.id, task.input, task.target, dict(task.meta)) for task in tasks]
    assert [(task.id, task.input, task.target, dict(task.meta)) for task in read] == parts
    assert [t.trust for t in read] == ([t.trust for t in tasks] if trust == "own" else ["foreign"] * 4)
    lines = [json.loads(line) for line in (shell / "tasks.jsonl").read_text(encoding="utf-8").splitlines()]
    (shell / "tasks.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines if "target" in line))
    found = shell.json(f"eval tasks.jsonl {LAST}")["attempts"]
    assert [one["id"] for one in found] == [task.id for task in tasks if task.target is not None]


def test_exported_traces_are_learned_from_as_the_space_is(shell: Shell) -> None:
    tasks = practicum.load_outcomes(served(shell))
    done = shell("export served --format traces")
    shell.file("traces.jsonl", done.out)
    read = practicum.load_traces(shell / "traces.jsonl", trust="own")
    assert [(t.id, t.input, t.target, t.trust, t.recorded) for t in read.tasks] == [
        (t.id, t.input, t.target, t.trust, t.recorded) for t in tasks
    ]
    assert (read.formats, read.problems) == ({"practicum": 4}, ())
    for name, source in (("a", "--from served"), ("b", "--from-traces traces.jsonl --trust own")):
        value = shell.json(f"learn {source} {EPISODES} {name}")
        assert (len(value["entries"]), value["held"]) == (3, 1)
    assert attempts(shell, "a") == attempts(shell, "b")
    foreign = practicum.load_traces(shell / "traces.jsonl")
    assert {(task.target, task.recorded.score if task.recorded else None) for task in foreign.tasks} == {(None, None)}


@pytest.mark.parametrize(
    ("recorded", "told"),
    [({"trace": {}}, "cannot be read"), ({"trace": {"answer": "x"}, "score": {"value": 7, "correct": True}}, "score"),
     ({"trace": {"answer": "x"}, "score": 1}, "cannot be read")],
)  # fmt: skip
def test_a_recorded_attempt_that_cannot_be_used_is_reported(shell: Shell, recorded: Any, told: str) -> None:
    good = {"id": "a", "input": "say one", "recorded": {"trace": {"answer": "one"}}}
    shell.file("traces.jsonl", f"{json.dumps(good)}\n{json.dumps({**good, 'id': 'b', 'recorded': recorded})}\n")
    done = shell(f"learn --from-traces traces.jsonl --trust own {EPISODES} run")
    assert "traces.jsonl line 2: a recorded attempt" in done.err
    assert told in done.err


def test_a_file_of_tasks_says_whose_each_is(shell: Shell) -> None:
    shell.file("tasks.jsonl", '{"input": "say one", "target": "one", "trust": "anybody"}\n')
    assert "'anybody'" in shell.fails("eval tasks.jsonl", error="tasks.invalid_field")


# ---- a service


@pytest.mark.slow
def test_a_run_learns_from_what_a_service_collects_while_it_serves(shell: Shell, model: Model) -> None:
    """What the service holds out is left out, and validates or tests a run that names the space for that."""
    run = ("serve", "store", "--upstream", model.name, "--port", 0, "--no-learning", "--json")
    with started(shell.folder, *run) as process:
        service = Service(shell, json.loads(process.line())["address"])
        for n in range(30):
            asked = service.ask(f"Which word is {n}?", **({} if n else {"x_practicum_user": "ann"}))
            service.post("/v1/feedback", {"interaction": asked["id"], "target": f"word{n}"})
        service.ask("Nothing is reported about this.")
        exported = shell.json("export store --format tasks")["outcomes"]
        shell.json(f"learn --from store/spaces/default {EPISODES} new")
        assert process.end(signal.SIGINT).code == 0
    assert 0 < exported < 30
    assert len(attempts(shell, "new")) == exported
    assert Counter(t.trust for t in practicum.load_outcomes(shell / "store"))["labelled"] <= 1
    assert exported + len(practicum.load_outcomes(shell / "store", held_out=True)) == 30
    shell.file("last_word.py", SAYS)
    value = shell.json(f"learn --from store --test store {LAST} {EPISODES} tested")
    assert value["scores"] == {"test": 0.0}


# ---- what is refused


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (f"learn --from book.md {EPISODES} run", "run.not_found"),
        (f"learn --from nowhere {EPISODES} run", "run.not_found"),
        (f"learn --from empty {EPISODES} run", "run.no_data"),
        (f"learn empty {EPISODES} run", "run.no_data"),
        (f"learn --from empty/spaces/other {EPISODES} run", "run.not_found"),
        (f"learn train.jsonl --test served {EPISODES} run", "run.no_data"),
        (f"learn train.jsonl --from served {EPISODES} run", "tasks.missing"),
        (f"learn --from served --from-traces logs.jsonl {EPISODES} run", "tasks.missing"),
        (f"learn --from served --trust-scores {EPISODES} run", "settings.unused"),
        ("learn --from served --set rounds=1 --model scripted:script.jsonl --out run", "settings.unused"),
        ("eval empty", "run.no_data"),
        ("eval empty/spaces/other", "run.not_found"),
        ("compare empty --test train.jsonl --methods none,icl", "run.no_data"),
        ("export empty --format tasks", "run.no_data"),
        ("export book.md --format traces", "run.not_found"),
        ("export empty/spaces/other --format tasks", "run.not_found"),
        ("export served --format tasks --version 0", "settings.unused"),
    ],
)
def test_what_has_no_outcomes_is_one_line(shell: Shell, typed: str, error: str) -> None:
    served(shell)
    shell.json("space import book.md --out empty")
    shell.fails(typed, error=error)
    assert not (shell / "run").exists()


def test_scores_alone_cannot_be_compared_with_right_answers(shell: Shell) -> None:
    shell.file("book.md", "# Rules\n- Be short.\n")
    shell.json("space import book.md --out scored")

    async def report() -> None:
        async with practicum.open(shell / "scored") as space:
            await space.report(await space.show("say one"), answer="one", score=1.0)

    practicum.run_sync(report())
    assert "--from scored" in shell.fails("eval scored --model scripted:script.jsonl", error="run.no_data")
    assert len(shell.json(f"learn --from scored {EPISODES} new")["entries"]) == 1
