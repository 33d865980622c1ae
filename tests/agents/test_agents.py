"""Agents: what each is given, how its answer is read, and what its failures become."""

from __future__ import annotations

import json
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from attempts import RULES, act
from helpers import client, make_tasks, wait_until
from refusals import refused

import practicum
from practicum.agents.external import CommandAgent, FunctionAgent
from practicum.core.context import Context
from practicum.core.errors import AgentError, JournalMismatch, UsageError
from practicum.core.types import Step, Trace
from practicum.models.local import choice_grammar
from practicum.models.scripted import Call


def evaluate(agent: Any = None, model: Any = None, n: int = 4, **config: Any) -> practicum.Evaluation:
    parts = practicum.Parts(agent=agent, clients={"agent": model} if model else {})
    return practicum.run_sync(practicum.evaluate(make_tasks(n), RULES, parts=parts, **config))


def program(folder: Path, body: str) -> str:
    """A program that is run by this Python; its request is in `asked`."""
    path = folder / "agent"
    path.write_text(f"#!{sys.executable}\nimport json, sys, time\nasked = json.loads(sys.stdin.readline())\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_chat_prompt_is_laid_out_for_a_prefix_cache(tmp_path: Path) -> None:
    """Fixed words, the playbook, earlier turns, the task: each after what changes less often."""

    def answer(call: Call) -> str:
        return "Used: e0\nAnswer: word1"

    model = client(answer)
    evaluate(model=model, n=2, instructions="You route messages.")
    first, second = (call.prompt for call in model.calls)
    assert first.system.startswith("You route messages.")
    assert first.head == second.head
    assert first.head.index("You route") < first.head.index("[e0] (rules) Say") < first.head.index("[e1] (manners) Be")
    assert (first.user, second.user) == ("Message 0: say word0", "Message 1: say word1")


def test_a_server_with_grammars_is_held_to_the_choices_where_nothing_but_an_answer_is_asked_for() -> None:
    choices = ("word0", "word1")
    schemas: dict[bool, list[Any]] = {}
    for held in (True, False):
        model = client(lambda call: "word1", holds_to_choices=held)
        for context in (Context(), RULES):
            parts = practicum.Parts(clients={"agent": model})
            practicum.run_sync(practicum.evaluate(make_tasks(1), context, parts=parts, choices=choices))
        schemas[held] = [call.schema for call in model.calls]
    assert schemas == {True: [{"enum": [*choices]}, None], False: [None, None]}
    assert choice_grammar(('say "so"', "b")) == 'root ::= "say \\"so\\"" | "b"'


@pytest.mark.slow
def test_episodes_are_earlier_turns_between_instructions_and_task(tmp_path: Path) -> None:
    model = client(lambda call: call.prompt.user.split()[-1])
    parts = practicum.Parts(clients={"agent": model})
    work = practicum.learn(
        make_tasks(6),
        out=tmp_path / "run",
        parts=parts,
        method="episodes",
        settings={"k": 2, "online": True},
        instructions="Route it.",
    )
    practicum.run_sync(work)
    last = model.calls[-1].prompt
    assert last.head == "Route it."
    assert len(last.turns) == 2
    assert all(turn.assistant == turn.user.split()[-1] for turn in last.turns)
    assert last.user.startswith("Message")


WORDS = ("word0", "word1", "word2")


def test_an_answer_alone_is_asked_for_in_plain_text_and_what_names_one_choice_is_taken_for_it() -> None:
    model = client(
        lambda call: "WORD0 or word1" if "2" in call.prompt.user else f"It is {call.text.split()[-1].upper()}."
    )
    parts = practicum.Parts(clients={"agent": model})
    found = practicum.run_sync(practicum.evaluate(make_tasks(3), Context(), parts=parts, choices=WORDS, scorer="exact"))
    assert {call.schema is None for call in model.calls} == {True}
    assert model.calls[0].prompt.system.endswith("nothing else: word0; word1; word2")
    assert [r.trace.answer for r in found.rollouts] == ["word0", "word1", "WORD0 or word1"]
    assert found.score == pytest.approx(2 / 3)
    assert found.counts["unclear_choices"] == 1


def test_more_than_an_answer_is_asked_for_in_labelled_parts() -> None:
    model = client(lambda call: "Used: [e1] and e77, e1\n**Reasoning:** it says so.\nSo:\n\nAnswer:\nI say **word1**.")
    found = evaluate(model=model, n=2, choices=WORDS, reasoning=True)
    assert model.calls[0].schema is None
    form = re.findall(r"^(\w+): <(.*)>$", model.calls[0].prompt.system, re.MULTILINE)
    assert [label for label, _ in form] == ["Used", "Reasoning", "Answer"]
    trace = found.rollouts[0].trace
    assert (trace.answer, trace.used, trace.unknown) == ("word1", ("e1",), 1)
    assert trace.reasoning == "it says so.\nSo:"


@pytest.mark.parametrize(
    ("text", "used", "answer"),
    [
        ("Used: e1\nAnswer: def f():\n    Used: 1\n\nAnswer: 2", ("e1",), "def f():\n    Used: 1\n\nAnswer: 2"),
        ("used: none\nanswer: word1", (), "word1"),
        ("Used: e0, e1\nThe answer is word1.\nIndeed.", ("e0", "e1"), "The answer is word1.\nIndeed."),
        ("Used: e0", ("e0",), "Used: e0"),
        ("word1", (), "word1"),
        ("I used e1: word1", (), "I used e1: word1"),
        ("Answer: word1\nUsed: e1", (), "word1\nUsed: e1"),
    ],
)
def test_parts_that_are_missing_or_out_of_order_are_read(text: str, used: tuple[str, ...], answer: str) -> None:
    trace = evaluate(model=client(lambda call: text), n=1).rollouts[0].trace
    assert (trace.used, trace.answer) == (used, answer)


def test_a_program_gets_one_line_and_answers_with_its_last(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        "print('a word on the way')\n"
        "print(json.dumps({'answer': json.dumps(asked, sort_keys=True), 'reasoning': 'r\\u2028', 'used': ['e1', 'e9'],"
        " 'steps': [{'kind': 'tool', 'text': 'ls'}]}, ensure_ascii=False))",
    )
    trace = act(CommandAgent(command, "Be exact."))
    asked = json.loads(trace.answer)
    assert asked == {
        "task": {"id": "t1", "input": "Message 1: say word1"},
        "context": "[e0] (rules) Say the last word.\n[e1] (manners) Be brief.",
        "instructions": "Be exact.",
        "place": "step 1/attempt/0.t1",
    }
    assert (trace.used, trace.unknown, trace.steps) == (("e1",), 1, (Step("tool", "ls"),))


BROKEN: dict[str, tuple[str, str]] = {
    "exit code": ("sys.exit('it broke')", "ended with exit code 1: it broke"),
    "silence": ("pass", "printed nothing"),
    "no json": ("print('hello')", "'hello', which is not JSON"),
    "no answer": ("print('{\"text\": 1}')", "returned no 'answer' (the keys are: text)"),
    "a list": ("print('[1]')", "returned list"),
    "wrong field": ("print('{\"answer\": [1]}')", "returned an invalid 'answer'"),
    "too slow": ("time.sleep(60)", "did not answer within 0.5 s"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("body", "words"), BROKEN.values(), ids=BROKEN)
def test_a_program_that_fails_says_how(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(AgentError) as caught:
        act(CommandAgent(program(tmp_path, body), timeout=0.5 if "sleep" in body else 30))
    assert words in str(caught.value)


def test_a_program_that_does_not_exist_is_refused() -> None:
    with refused("agent.cannot_start"):
        CommandAgent("/no/such/program")
    with refused("agent.invalid"):
        CommandAgent(" ")
    with refused("agent.invalid"):
        CommandAgent("a 'b")


@pytest.mark.slow
def test_the_children_of_a_slow_program_are_killed_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = (
        "import subprocess\n"
        f"child = subprocess.Popen(['sleep', '60'])\nopen({str(pid)!r}, 'w').write(str(child.pid))\nchild.wait()"
    )
    with pytest.raises(AgentError, match="did not answer"):
        act(CommandAgent(program(tmp_path, body), timeout=1.0))
    wait_until(lambda: not _alive(int(pid.read_text())), what="the end of the child")


@pytest.mark.slow
def test_a_child_that_keeps_the_output_open_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = (
        "import subprocess\n"
        f"child = subprocess.Popen(['sleep', '60'])\nopen({str(pid)!r}, 'w').write(str(child.pid))\n"
        'print(\'{"answer": "a"}\')'
    )
    with refused("agent.timeout"):
        act(CommandAgent(program(tmp_path, body), timeout=1.0))
    wait_until(lambda: not _alive(int(pid.read_text())), what="the end of the child")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_failed_attempt_is_data_and_is_not_made_again(tmp_path: Path) -> None:
    calls: list[str] = []

    def agent(text: str, context: str) -> str:
        calls.append(text)
        if "Message 2" in text:
            raise ValueError("no idea")
        return text.split()[-1]

    parts = practicum.Parts(agent=agent)
    work = practicum.learn(make_tasks(4), out=tmp_path / "run", parts=parts, method="episodes", settings={"batch": 4})
    result = practicum.run_sync(work)
    assert result.errors["failed_attempts"] == 1
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert len(calls) == 4
    assert practicum.export(again.context, "json") == practicum.export(result.context, "json")
    assert again.errors == result.errors


def test_functions_of_every_kind_are_agents() -> None:
    async def asynchronous(text: str, context: str) -> dict[str, Any]:
        return {"answer": text.split()[-1], "used": ["e0", "e9"]}

    class Callable_:
        async def __call__(self, text: str, context: str) -> str:
            return text.split()[-1]

    def placed(text: str, context: str, place: str) -> str:
        return f"{place}: {context[:4]}"

    def tracing(text: str, context: str) -> Trace:
        return Trace("a", used=("e1", "e5"))

    def instructed(text: str, context: str, instructions: str = "its own") -> str:
        return instructions

    assert act(FunctionAgent(asynchronous)).used == ("e0",)
    assert act(FunctionAgent(asynchronous)).unknown == 1
    assert act(FunctionAgent(Callable_())).answer == "word1"
    assert act(FunctionAgent(placed)).answer == "step 1/attempt/0.t1: [e0]"
    assert act(FunctionAgent(lambda text, context: 3)).answer == "3"
    assert act(FunctionAgent(instructed, "be brief")).answer == "be brief"
    assert act(FunctionAgent(instructed)).answer == "its own"
    assert (act(FunctionAgent(tracing)).used, act(FunctionAgent(tracing)).unknown) == (("e1",), 1)
    with refused("agent.invalid_answer"):
        act(FunctionAgent(lambda text, context: None))
    with refused("agent.failed"):
        act(FunctionAgent(lambda text, context: {}["x"]))


def test_attempts_of_external_agents_are_bounded_by_the_concurrency() -> None:
    import asyncio

    flying, most = 0, 0

    async def agent(text: str, context: str) -> str:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.01)
        flying -= 1
        return "x"

    evaluate(agent, n=20, concurrency=3)
    assert most == 3


def test_the_current_folder_is_searched_for_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "bad_agent_module.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "leaving_agent_module.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "good_agent_module.py").write_text("def agent(text, context):\n    return text.split()[-1]\n\nx = 3\n")
    work = practicum.evaluate(make_tasks(2), RULES, agent="good_agent_module:agent")
    assert practicum.run_sync(work).score == 1.0
    for name, words in (
        ("bad_agent_module:agent", "RuntimeError: at import"),
        ("leaving_agent_module:agent", "SystemExit: 3"),
        ("good_agent_module:nobody", "nobody"),
        ("good_agent_module:x", "is a int, not a function"),
        ("no_such_module:agent", "No module named"),
    ):
        with pytest.raises(UsageError, match=words):
            practicum.run_sync(practicum.evaluate(make_tasks(1), RULES, agent=name))


def test_answers_under_other_instructions_are_not_taken_from_the_journal(tmp_path: Path) -> None:
    def told(text: str, context: str, instructions: str = "") -> str:
        return instructions

    def untold(text: str, context: str) -> str:
        return "word0"

    for agent in (told, untold):
        evaluate(agent, n=1, out=tmp_path / agent.__name__, instructions="Be brief.")
    with pytest.raises(JournalMismatch):
        evaluate(told, n=1, out=tmp_path / "told", instructions="Be long.")
    assert evaluate(untold, n=1, out=tmp_path / "untold", instructions="Be long.").score == 1.0
