"""Answers as models give them: thoughts are no answer, and an answer without text is counted by its kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks, run_command, write_tasks
from refusals import refused

import practicum
from practicum.core.counts import Count
from practicum.core.errors import ProviderError
from practicum.core.types import Recorded, Task, Trace
from practicum.models.scripted import Call, ScriptedClient
from practicum.testing import ServerOptions, ServerProcess, serve, start_process

GPT_OSS = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final<|message|>word0<|return|>"
GPT_OSS_JSON = "<|channel|>analysis<|message|>Eagle?<|end|><|start|>assistant<|channel|>final <|constrain|>json"

TEXTS = {
    # What most models write, with and without the opening mark, which the chat template may have written.
    "<think>\nEagle?\n</think>\n\nword0": "word0",
    "Eagle?\n</think>\n\nword0": "word0",
    "<think>\n\n</think>\n\nword0": "word0",
    "<think>a</think>word1<think>b</think>word0": "word0",
    "<think>a</think>word0\n<think>and then": "word0",
    "[THINK]Eagle?[/THINK]word0": "word0",
    "<seed:think>Eagle?</seed:think>word0": "word0",
    "<|START_THINKING|>Eagle?<|END_THINKING|><|START_RESPONSE|>word0<|END_RESPONSE|>": "word0",
    "<|channel>thought\nEagle?<channel|>word0": "word0",
    GPT_OSS: "word0",
    f"{GPT_OSS_JSON}<|message|>word0": "word0",
    "<thinking>Eagle?</thinking>\nword0": "word0",
    "<reasoning>Eagle?</reasoning>\nword0": "word0",
    # Marks that are part of an answer.
    "The tag `</think>` ends thoughts.": "The tag `</think>` ends thoughts.",
    "<think>They ask for `</think>`.</think>`</think>`": "`</think>`",
    "<doc><reasoning>a</reasoning></doc>": "<doc><reasoning>a</reasoning></doc>",
    '{"tag": "a </think> b"}': '{"tag": "a </think> b"}',
    "word0": "word0",
}


def attempt(text: str, **parts: Any) -> practicum.Evaluation:
    model = ScriptedClient(lambda call: text)
    given = practicum.Parts(**(parts or {"clients": {"agent": model}}))
    return practicum.run_sync(practicum.evaluate(make_tasks(1), practicum.Context(), parts=given, scorer="exact"))


@pytest.mark.parametrize(("text", "answer"), TEXTS.items())
def test_thoughts_are_no_part_of_an_answer_whoever_gives_it(text: str, answer: str) -> None:
    async def own(task: str, context: str) -> str:
        return text

    for found in (attempt(text), attempt(text, agent=own)):
        first = found.rollouts[0].first
        assert (first.trace.answer, found.score, found.errors) == (answer, float(answer == "word0"), 0)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<think>\nThe answer is word0", Count.UNSAID_THOUGHTS),
        ("[THINK]word0", Count.UNSAID_THOUGHTS),
        ("word0</think>", Count.UNSAID_THOUGHTS),
        ("<think></think>", Count.EMPTY_ANSWERS),
        (" \n", Count.EMPTY_ANSWERS),
    ],
)
def test_thoughts_alone_are_no_answer(text: str, kind: Count) -> None:
    def reply(call: Call) -> str:
        return text if "say word0" in call.text else "word1"

    parts = practicum.Parts(clients={"agent": ScriptedClient(reply)})
    found = practicum.run_sync(practicum.evaluate(make_tasks(2), practicum.Context(), parts=parts, scorer="exact"))
    assert (found.score, found.errors, found.counts[kind]) == (0.5, 1, 1)
    with pytest.raises(ProviderError):
        attempt(text)


def test_an_agent_that_acts_may_end_without_an_answer() -> None:
    async def own(task: str, context: str) -> dict[str, Any]:
        return {"answer": "", "steps": [{"kind": "action", "text": "write(report)"}]}

    assert attempt("", agent=own).errors == 0


def test_a_draft_in_the_thoughts_is_never_the_object_of_a_role(tmp_path: Path) -> None:
    """A longer draft than the object itself, which a search for the longest object would find."""
    judged = {"reason": "it is", "right": True}

    def reply(call: Call) -> str:
        if call.role == "agent":
            return "word1"
        draft = json.dumps({"reason": "a draft that is much longer than what is said at the end", "right": False})
        return f"Perhaps {draft}, no.\n</think>\n{json.dumps(judged)}"

    clients = {"agent": ScriptedClient(reply), "judge": ScriptedClient(reply)}
    parts = practicum.Parts(clients=clients)
    found = practicum.run_sync(practicum.evaluate(make_tasks(1), practicum.Context(), parts=parts, scorer="judge"))
    assert found.score == 1.0


def test_traces_have_their_thoughts_apart(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Which team?"}, {"role": "assistant", "content": "Eagle?</think>Falcon"}]
    (tmp_path / "traces.jsonl").write_text(json.dumps({"messages": said}) + "\n")
    (task,) = practicum.load_traces(tmp_path / "traces.jsonl").tasks
    assert isinstance(task.recorded, Recorded)
    assert (task.recorded.trace.answer, task.recorded.trace.reasoning) == ("Falcon", "Eagle?")


# ---- a server that behaves so

SILENT = {
    "thoughts-unclosed": Count.SILENT_CUTS, "only-reasoning-content": Count.SILENT_CUTS,
    "only-thinking-content": Count.SILENT_CUTS, "empty": Count.EMPTY_ANSWERS, "null-content": Count.EMPTY_ANSWERS,
    "refusal": Count.REFUSED_ANSWERS, "filtered": Count.FILTERED_ANSWERS,
}  # fmt: skip


async def _evaluate(behaviour: str, every: int) -> practicum.Evaluation:
    options = ServerOptions(behaviours=[(behaviour, every)], responder=lambda body: "word0")
    async with serve(options) as server:
        tasks = [Task(f"t{n}", f"Say word0 ({n})", "word0") for n in range(4)]
        return await practicum.evaluate(
            tasks, practicum.Context(), model=f"{server.url}#sim", scorer="exact", concurrency=1
        )  # fmt: skip


@pytest.mark.parametrize(
    "behaviour", ["thoughts", "thoughts-unopened", "reasoning-content", "reasoning", "list-content-thinking"]
)
def test_thoughts_of_a_server_are_no_part_of_the_answer(behaviour: str) -> None:
    found = asyncio.run(_evaluate(behaviour, 1))
    assert (found.score, dict(found.counts)) == (1.0, {})


@pytest.mark.parametrize(("behaviour", "kind"), SILENT.items())
def test_answers_without_text_are_counted_by_kind_and_nothing_else_fails(behaviour: str, kind: Count) -> None:
    found = asyncio.run(_evaluate(behaviour, 2))
    assert (found.score, found.errors) == (0.5, 2)
    assert dict(found.counts) == {kind: 2, Count.LOST_ATTEMPTS: 2}


@contextmanager
def server(behaviour: str) -> Iterator[ServerProcess]:
    with start_process(behaviours=((behaviour, 1),)) as process:
        yield process


@pytest.mark.parametrize(("behaviour", "advice"), [("thoughts-unclosed", "--max-output-tokens"), ("empty", "empty")])
def test_a_run_whose_answers_all_say_nothing_fails_and_the_same_command_asks_again(
    tmp_path: Path, behaviour: str, advice: str
) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    for command in (["learn", "tasks.jsonl", "--out", "run"], ["eval", "tasks.jsonl", "--out", "scores"]):
        with server(behaviour) as silent:
            command += ["--model", f"{silent.url}#sim", "--json"]
            done = run_command(command, tmp_path)
            assert (done.code, done.json["error"]["code"]) == (1, "attempts.all_failed")
            assert advice in done.line
            asked = silent.stats()["calls"]
            assert asked
            # The server may have been corrected since.
            assert run_command(command, tmp_path).code == 1
            assert silent.stats()["calls"] == 2 * asked


def test_a_resume_asks_again_where_no_answer_had_text(tmp_path: Path) -> None:
    silent = True

    def reply(call: Call) -> str:
        return "" if silent else "word1" if call.role == "agent" else "{}"

    clients = {role: ScriptedClient(reply) for role in ("agent", "reflector", "curator")}
    parts = practicum.Parts(clients=clients)  # type: ignore[arg-type]
    how: dict[str, Any] = {"out": tmp_path / "run", "parts": parts, "settings": {"rounds": 0}}
    with pytest.raises(ProviderError):
        practicum.run_sync(practicum.learn(make_tasks(3), **how))
    silent = False
    # The reflector, which says {}, is asked now.
    with refused("attempts.all_failed"):
        practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert len(clients["agent"].calls) == 6


def test_a_trace_with_an_error_keeps_its_answer() -> None:
    async def own(task: str, context: str) -> Trace:
        return Trace("<think>a", error="it broke")

    first = attempt("", agent=own).rollouts[0].first
    assert (first.trace.answer, first.trace.error) == ("<think>a", "it broke")
