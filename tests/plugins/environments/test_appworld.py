"""AppWorld over HTTP, against a simulated server: the calls there, the score, and failures."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from appworlds import HUNG, AppWorlds, serving
from helpers import Launcher, client, context_bytes, run_command, wait_until
from refusals import refused

import practicum
from practicum.core.context import Context
from practicum.core.errors import ProviderError
from practicum.core.types import Task, Trace
from practicum.models.scripted import Call, ScriptedClient
from practicum.plugins.environments.appworld.scorer import score_world
from practicum.tasks.load import load_tasks
from practicum.testing import ServerProcess, start_process

Code = Callable[[str, int], str | None]


def sums(*ids: str) -> list[Task]:
    return [Task(id, f"Do {id}, please.") for id in ids]


def coding(code: Code, other: Callable[[Call], Any] = lambda call: {}) -> ScriptedClient:
    """A model whose code follows from the task's id and the turn, from 1; it finishes without code."""

    def respond(call: Call) -> str | Exception:
        if call.role != "agent":
            return json.dumps(other(call))
        [id] = re.findall(r"Do (\w+), please", call.text)
        written = code(id, 1 + len(call.prompt.turns))
        action = {"finish": {"answer": "done"}} if written is None else {"execute": {"code": written}}
        whole = {"used": [], "thought": "on", "action": action}
        return json.dumps({name: value for name, value in whole.items() if name in call.schema["properties"]})

    return client(respond)


def solved(id: str, turn: int) -> str | None:
    """Compute the sum, report it, and finish."""
    first, second = id.removeprefix("s").split("_")
    return [f"x = {first} + {second}\nprint(x)", "apis.supervisor.complete_task(answer=x)", None][turn - 1]


def evaluated(servers: list[AppWorlds], model: ScriptedClient, tasks: list[Task], **config: Any) -> Any:
    agent = "appworld:" + ",".join(server.address for server in servers)
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.evaluate(tasks, Context(), parts=parts, agent=agent, **config))


@pytest.fixture
def server() -> Iterator[AppWorlds]:
    with serving() as [one]:
        yield one


def test_code_is_run_the_world_is_judged_and_closed(server: AppWorlds) -> None:
    [attempt] = evaluated([server], coding(solved), sums("s3_4"), tool_timeout=7.0).attempts
    trace = attempt.trace
    assert [step.text for step in trace.steps if step.kind == "observation"] == ["7\n", "Execution successful."]
    assert (attempt.score.value, attempt.score.correct, attempt.score.note) == (1.0, True, "2 of 2 tests pass.")
    assert trace.data["state"]["evaluation"]["success"] is True
    assert [name for name, _ in server.seen] == ["initialize", "execute", "execute", "evaluate", "close"]
    assert {id for _, id in server.seen} == {"s3_4"}
    first = server.bodies[0]
    assert (first["timeout_seconds"], first["experiment_name"]) == (7, f"practicum_{server.port}")
    assert server.bodies[3]["suppress_errors"] is True


def test_failed_tests_are_in_the_feedback_with_their_values(server: AppWorlds) -> None:
    model = coding(lambda id, turn: ["apis.supervisor.complete_task(answer=1)", None][turn - 1])
    [attempt] = evaluated([server], model, sums("s3_4")).attempts
    assert (attempt.score.value, attempt.score.correct) == (0.0, False)
    assert attempt.score.note.startswith("1 of 2 tests pass.")
    assert "AssertionError:  '1' == '7'" in attempt.score.note


def test_code_that_fails_or_takes_too_long_is_observed(server: AppWorlds) -> None:
    model = coding(lambda id, turn: ["1/0", HUNG, "print('on')", None][turn - 1])
    [attempt] = evaluated([server], model, sums("s1_1"), tool_timeout=3.0).attempts
    failed, hung, printed = [step.text for step in attempt.trace.steps if step.kind == "observation"]
    assert "ZeroDivisionError: division by zero" in failed
    assert "Execution timed out after 3 seconds." in hung
    assert printed == "on\n"
    assert attempt.trace.error is None


def test_a_server_holds_one_world_at_a_time_and_several_servers_work_at_once() -> None:
    with serving(2) as servers:
        tasks = sums(*(f"s{n}_{m}" for n in range(1, 4) for m in range(1, 3)))
        assert evaluated(servers, coding(solved), tasks).score == 1.0
        assert sum(server.called("initialize") for server in servers) == 6
        for server in servers:
            assert server.called("initialize") == server.called("close") > 0
            assert server.replaced == 0
            experiments = {b["experiment_name"] for b in server.bodies if "timeout_seconds" in b}
            assert experiments == {f"practicum_{server.port}"}
            # Each world from its beginning to its end before the next one.
            opened = [id for name, id in server.seen if name == "initialize"]
            assert list(dict.fromkeys(id for _, id in server.seen)) == opened


def curriculum(call: Call) -> dict[str, Any]:
    """The roles of ACE that learn: one rule, the same each time."""
    if call.role == "reflector":
        texts = {"correction": "report the sum", "insight": "If asked for a sum, report it.", "diagnosis": "no report"}
        return {"kind": "a sum", **texts, "tags": [], "bullets": []}
    numbers = re.findall(r"^(?:Lesson|Insight) (\d+)", call.prompt.user, re.M)
    return {"decisions": [{"lesson": int(n), "op": "ADD"} for n in numbers]}


def learned(server: AppWorlds, model: ScriptedClient, folder: Path, **config: Any) -> practicum.Result:
    parts = practicum.Parts(clients={"agent": model})
    how: dict[str, Any] = {"settings": {"batch": 2, "rounds": 0}, "trust_tools": True, **config}
    tasks = sums("s1_1", "s1_2", "s2_1", "s2_2")
    return practicum.run_sync(
        practicum.learn(tasks, agent=f"appworld:{server.address}", parts=parts, out=folder, **how)
    )


def half(id: str, turn: int) -> str | None:
    """Right about the tasks of the first scenario only."""
    return solved(id, turn) if id.startswith("s1_") else ["print(0)", None][turn - 1]


def test_the_world_is_closed_if_the_model_fails(server: AppWorlds) -> None:
    answer = coding(solved).respond
    model = client(lambda call: ProviderError("provider.failed", "away") if call.prompt.turns else answer(call))
    with refused("attempts.all_failed"):
        evaluated([server], model, sums("s1_1", "s1_2"))
    assert server.called("initialize") == server.called("close") == 2
    assert server.world is None


def test_the_world_is_closed_if_no_turn_or_no_budget_is_left(server: AppWorlds, tmp_path: Path) -> None:
    assert evaluated([server], coding(lambda id, turn: "print(1)"), sums("s1_1", "s1_2"), max_turns=2).errors == 2
    result = learned(server, coding(solved, curriculum), tmp_path / "run", max_calls=13)
    assert result.stopped is not None
    assert result.usage.calls <= 13
    assert server.called("initialize") == server.called("close") >= 4
    assert server.world is None


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_the_world_is_closed_at_ctrl_c(server: AppWorlds, launcher: Launcher, tmp_path: Path, times: int) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "s1_1", "input": "Do s1_1, please."}) + "\n")
    log = tmp_path / "log"
    with start_process(latency=30 if times > 1 else 0.3, log=str(log)) as model:
        command = ("learn", "tasks.jsonl", "--agent", f"appworld:{server.address}", "--model", f"{model.url}#sim")
        running = launcher.start((*command, "--out", "run", "--json"), tmp_path)
        wait_until(lambda: (log.exists() and log.stat().st_size > 0) or running.ended(), event="a call")
        running.kill(signal.SIGINT)
        if times > 1:
            wait_until(lambda: "Ctrl-C again" in running.errors, event="the first message")
            running.kill(signal.SIGINT)
        assert running.end().code == 130
    assert server.called("initialize") == server.called("close") == 1


def test_learning_sees_the_failed_tests_only_with_labels(server: AppWorlds, tmp_path: Path) -> None:
    for labels in (True, False):
        model = coding(half, curriculum)
        result = learned(server, model, tmp_path / str(labels), labels=labels, profile="small")
        assert "If asked for a sum, report it." in {entry.text for entry in result.context}
        read = "".join(call.text for call in model.calls)
        assert ("AssertionError:  'None' == '3'" in read) is labels
        assert ("tests pass" in read) is labels


def test_a_resume_pays_for_nothing_twice(server: AppWorlds, tmp_path: Path) -> None:
    whole = learned(server, coding(half, curriculum), tmp_path / "whole")
    stopped = learned(server, coding(half, curriculum), tmp_path / "run", max_calls=12)
    assert stopped.stopped is not None
    parts = practicum.Parts(clients={"agent": coding(half, curriculum)})
    again = practicum.run_sync(practicum.resume(tmp_path / "run", max_calls=1000, parts=parts))
    assert (context_bytes(again), again.scores) == (context_bytes(whole), whole.scores)
    assert again.usage.calls == whole.usage.calls


def test_a_server_that_does_not_answer_or_is_of_another_kind_is_refused(fast_server: ServerProcess) -> None:
    model = coding(solved)
    parts = practicum.Parts(clients={"agent": model})
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
    for address in (closed, fast_server.url.removesuffix("/v1")):
        work = practicum.evaluate(sums("s1_1"), Context(), parts=parts, agent=f"appworld:{address}")
        with refused("environment.unreachable"):
            practicum.run_sync(work)
    assert model.calls == []


def test_an_unknown_task_is_lost_and_named(server: AppWorlds) -> None:
    model = coding(solved)
    with refused("attempts.all_failed"):
        evaluated([server], model, [Task("x", "Do x, please.")])
    assert model.calls == []
    result = evaluated([server], coding(solved), [Task("x", "Do x, please."), *sums("s1_1")])
    assert [attempt.trace.lost for attempt in result.attempts] == [True, False]
    assert server.world is None


def test_a_server_that_fails_in_the_middle_loses_the_attempt_and_is_named(server: AppWorlds) -> None:
    server.breaks_in = "execute"
    with refused("attempts.all_failed"):
        evaluated([server], coding(solved), sums("s1_1"))
    assert server.called("close") == 1


def test_wrong_use_is_refused_before_anything_is_opened(server: AppWorlds) -> None:
    good = f"appworld:{server.address}"
    for config, code in (
        ({"agent": "appworld:"}, "environment.invalid_address"),
        ({"agent": "appworld:localhost:8000"}, "environment.invalid_address"),
        ({"agent": f"{good},{server.address}/"}, "environment.invalid_address"),
        ({"agent": good, "scorer": "exact"}, "tasks.no_target"),
    ):
        parts = practicum.Parts(clients={"agent": coding(solved)})
        with refused(code):
            practicum.run_sync(practicum.evaluate(sums("s1_1"), Context(), parts=parts, **config))
    assert server.seen == []


def test_an_attempt_without_an_evaluation_cannot_be_scored() -> None:
    for data in ({}, {"state": None}, {"state": {"evaluation": {"success": True}}}, {"state": []}):
        with refused("scorer.failed"):
            score_world(Task("s1_1", "x"), Trace("done", data=data))


@pytest.mark.slow
def test_ids_become_tasks_and_the_printed_command_runs(server: AppWorlds, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("s1_2\n\ns1_3:tag\n")
    converted = run_command(["bench", "tasks", "train.txt", "--server", server.address, "--out", "t.jsonl"], tmp_path)
    assert converted.code == 0, converted.err
    first, second = load_tasks(tmp_path / "t.jsonl")
    assert first.input.startswith("How much is 1 plus 2?")
    assert "Ada Example (ada@example.com, phone 5550101). It is 2023-05-18T12:00:00." in first.input
    assert (second.id, second.target, second.meta) == ("s1_3", None, {"tags": ["s1"]})
    assert "complete_task" in (tmp_path / "t.instructions.txt").read_text()
    answer = {"used": [], "thought": "on", "action": {"finish": {"answer": "done"}}}
    (tmp_path / "model").write_text(json.dumps({"role": "agent", "answer": answer}))
    typed = shlex.split(converted.out.split("practicum learn ")[1])
    done = run_command(["eval", *typed, "--model", "scripted:model", "--json"], tmp_path)
    assert (done.json["score"], done.json["n"]) == (0.0, 2), done.err


def test_lists_of_ids_that_cannot_be_used_are_one_line(server: AppWorlds, tmp_path: Path) -> None:
    command = ["bench", "tasks", "ids.txt", "--server", server.address]
    for text, line in (
        ("s1_2\nx\n", "ids.txt line 2: .*'x'"),
        ("s1_2\ns1_2\n", "ids.txt line 2: .*'s1_2'"),
        ("\n", "ids.txt: "),
    ):
        (tmp_path / "ids.txt").write_text(text)
        done = run_command(command, tmp_path)
        assert done.code == 2
        assert re.match(line, done.line), done.line
    assert run_command([*command, "--format", "mmlu"], tmp_path).code == 2
