"""AppWorld over HTTP, against a simulated server: the calls there, the score, and failures."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from appworlds import HUNG, AppWorlds, serving
from helpers import Launcher, client, context_bytes, run_command, wait_until
from refusals import refused

import practicum
from practicum.core.context import Context
from practicum.core.errors import ProviderError
from practicum.core.types import Attempt, Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.tasks.load import load_tasks
from practicum.testing import start_process

Code = Callable[[str, int], str | Exception | None]

PROGRAMS: dict[str, list[str | Exception | None]] = {
    "s3_4": ["x = 3 + 4\nprint(x)", "apis.supervisor.complete_task(answer=x)", None],
    "s1_1": ["apis.supervisor.complete_task(answer=1)", None],
    "s1_2": ["1/0", HUNG, "print('on')", None],
    "s1_3": ["print(1)"] * 9,  # it has five turns
    "s2_1": ["print(1)", ProviderError("provider.failed", "away")],
    "s2_2": ["print(1)"],  # the server breaks off
    "x": [],  # no server has this task
}
"""The code of each turn in the attempts of `played`; None finishes."""


def tasks_of(*ids: str) -> list[Task]:
    return [Task(id, f"Do {id}, please.") for id in ids]


def coding(code: Code, other: Callable[[Call], Any] = lambda call: {}) -> ScriptedClient:
    """A model whose code follows from the task's id and the turn, from 1; it finishes without code."""

    def respond(call: Call) -> str | Exception:
        if call.role != "agent":
            return json.dumps(other(call))
        [id] = re.findall(r"Do (\w+), please", call.text)
        written = code(id, 1 + len(call.prompt.turns))
        if isinstance(written, Exception):
            return written
        action = {"finish": {"answer": "done"}} if written is None else {"execute": {"code": written}}
        whole = {"used": [], "thought": "on", "action": action}
        return json.dumps({name: value for name, value in whole.items() if name in call.schema["properties"]})

    return client(respond)


@pytest.fixture
def server() -> Iterator[AppWorlds]:
    with serving() as [one]:
        yield one


@dataclass(frozen=True)
class Played:
    servers: list[AppWorlds]
    model: ScriptedClient
    attempts: dict[str, Attempt]

    def observations(self, id: str) -> list[str]:
        return [step.text for step in self.attempts[id].trace.steps if step.kind == "observation"]


@pytest.fixture(scope="module")
def played() -> Played:
    """An attempt at each task of PROGRAMS, on two servers."""
    model = coding(lambda id, turn: PROGRAMS[id][turn - 1])
    with serving(2) as servers:
        for server in servers:
            server.breaks_for = "s2_2"
        agent = "appworld:" + ",".join(server.address for server in servers)
        work = practicum.evaluate(
            tasks_of(*PROGRAMS), Context(), parts=practicum.Parts(clients={"agent": model}), agent=agent,
            tool_timeout=7.0, max_turns=5,
        )  # fmt: skip
        attempts = practicum.run_sync(work).attempts
    return Played(servers, model, {attempt.task.id: attempt for attempt in attempts})


def test_code_is_run_and_observed_and_the_world_is_judged(played: Played) -> None:
    right, wrong = played.attempts["s3_4"], played.attempts["s1_1"]
    assert played.observations("s3_4") == ["7\n", "Execution successful."]
    assert (right.score.value, right.score.correct, right.score.note) == (1.0, True, "2 of 2 tests pass.")
    assert right.trace.data["state"]["evaluation"]["success"] is True
    assert (wrong.score.value, wrong.score.correct) == (0.0, False)
    assert wrong.score.note.startswith("1 of 2 tests pass.")
    assert "AssertionError:  '1' == '2'" in wrong.score.note
    failed, hung, printed = played.observations("s1_2")
    assert "ZeroDivisionError: division by zero" in failed
    assert "Execution timed out after 7 seconds." in hung
    assert printed == "on\n"
    assert played.attempts["s1_2"].trace.error is None


def test_a_failure_of_the_server_or_the_model_loses_the_attempt(played: Played) -> None:
    assert [id for id, attempt in played.attempts.items() if attempt.trace.lost] == ["s2_1", "s2_2", "x"]
    assert [id for id, attempt in played.attempts.items() if attempt.trace.error] == ["s1_3", "s2_1", "s2_2", "x"]
    assert not any("Do x, please" in call.text for call in played.model.calls)


def test_each_server_holds_one_world_at_a_time_and_every_world_is_closed(played: Played) -> None:
    seen = [call for server in played.servers for call in server.seen]
    assert [name for name, id in seen if id == "s3_4"] == ["initialize", "execute", "execute", "evaluate", "close"]
    assert sorted(id for name, id in seen if name == "close") == [id for id in sorted(PROGRAMS) if id != "x"]
    for server in played.servers:
        assert server.called("close") > 0
        assert (server.replaced, server.world) == (0, None)
        opened = [body for (name, _), body in zip(server.seen, server.bodies, strict=True) if name == "initialize"]
        assert {(b["timeout_seconds"], b["experiment_name"]) for b in opened} == {(7, f"practicum_{server.port}")}
        # Each world from its beginning to its end before the next one.
        assert [id for id, _ in groupby(id for _, id in server.seen)] == [body["task_id"] for body in opened]


def curriculum(call: Call) -> dict[str, Any]:
    """The roles of ACE that learn: one rule, the same each time."""
    if call.role == "reflector":
        texts = {"correction": "report the sum", "insight": "If asked for a sum, report it.", "diagnosis": "no report"}
        return {"kind": "a sum", **texts, "tags": [], "bullets": []}
    numbers = re.findall(r"^(?:Lesson|Insight) (\d+)", call.prompt.user, re.M)
    return {"decisions": [{"lesson": int(n), "op": "ADD"} for n in numbers]}


def half(id: str, turn: int) -> str | None:
    """Right about one of two tasks."""
    return [f"apis.supervisor.complete_task(answer={2 if id == 's1_1' else None})", None][turn - 1]


def learned(server: AppWorlds, model: ScriptedClient, folder: Path, **config: Any) -> practicum.Result:
    parts, settings = practicum.Parts(clients={"agent": model}), {"batch": 2, "rounds": 0}
    work = practicum.learn(
        tasks_of("s1_1", "s2_1"), agent=f"appworld:{server.address}", settings=settings, trust_tools=True,
        profile="small", parts=parts, out=folder, **config,
    )  # fmt: skip
    return practicum.run_sync(work)


def test_learning_sees_the_failed_tests_only_with_labels_and_a_resume_pays_for_nothing_twice(
    server: AppWorlds, tmp_path: Path
) -> None:
    results = []
    for labels in (False, True):
        model = coding(half, curriculum)
        results.append(learned(server, model, tmp_path / str(labels), labels=labels))
        assert "If asked for a sum, report it." in {entry.text for entry in results[-1].context}
        read = "".join(call.text for call in model.calls)
        assert ("AssertionError:  'None' == '3'" in read) is labels
        assert ("tests pass" in read) is labels
    whole = results[1]
    # The budget ends within the second attempt.
    assert learned(server, coding(half, curriculum), tmp_path / "run", max_calls=3).stopped
    assert server.called("initialize") == server.called("close") == 6
    parts = practicum.Parts(clients={"agent": coding(half, curriculum)})
    again = practicum.run_sync(practicum.resume(tmp_path / "run", max_calls=1000, parts=parts))
    assert (context_bytes(again), again.scores) == (context_bytes(whole), whole.scores)
    assert again.usage.calls == whole.usage.calls


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


def test_wrong_use_is_refused_before_anything_is_opened_and_paid(server: AppWorlds) -> None:
    good, model = f"appworld:{server.address}", coding(half)
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"appworld:http://127.0.0.1:{free.getsockname()[1]}"
    for config, code in (
        ({"agent": "appworld:localhost:8000"}, "environment.invalid_address"),
        ({"agent": f"{good},{server.address}/"}, "environment.invalid_address"),
        ({"agent": good, "scorer": "exact"}, "tasks.no_target"),
        ({"agent": closed}, "environment.unreachable"),
        ({"agent": f"{good}/v1"}, "environment.unreachable"),  # a server of another kind
    ):
        parts = practicum.Parts(clients={"agent": model})
        with refused(code):
            practicum.run_sync(practicum.evaluate(tasks_of("s1_1"), Context(), parts=parts, **config))
    assert (server.seen, model.calls) == ([], [])


def test_a_list_of_ids_becomes_tasks_and_the_printed_command_runs(server: AppWorlds, tmp_path: Path) -> None:
    ids, command = tmp_path / "ids.txt", ["bench", "tasks", "ids.txt", "--server", server.address]
    for text, line in (
        ("s1_2\nx\n", "ids.txt line 2: .*'x'"),
        ("s1_2\ns1_2\n", "ids.txt line 2: .*'s1_2'"),
        ("\n", "ids.txt: "),
    ):
        ids.write_text(text)
        done = run_command(command, tmp_path)
        assert done.code == 2
        assert re.match(line, done.line), done.line
    ids.write_text("s1_2\n\ns1_3:tag\n")
    assert run_command([*command, "--format", "mmlu"], tmp_path).code == 2
    converted = run_command([*command, "--out", "t.jsonl"], tmp_path)
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
