"""Sessions as a judge reads them: no message is lost or changes its place, with any answer of the judge."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from practicum.core.types import Evidence, Recorded, Step, Task, Trace
from practicum.engine.sessions import MOST_MESSAGES, MessageReading, SessionReading, read_sessions, sessions

WORK = st.sampled_from(["right", "wrong", "unknown"])
READINGS = st.builds(MessageReading, message=st.integers(0, 12), begins=st.booleans(), work=WORK)


class Judge:
    """Place of a run whose judge gives these answers."""

    profile = "full"

    def __init__(self, readings: list[MessageReading]) -> None:
        self.readings, self.prompts = {one.message: one for one in readings}, list[str]()

    def at(self, name: str) -> Judge:
        return self

    async def gather(self, jobs: Any) -> list[Any]:
        return [await job(self) for _, job in jobs]

    async def try_ask(self, role: str, prompt: Any, *how: Any, **more: Any) -> SessionReading:
        """An answer about every message; of a message without an answer of this judge, that it begins a request."""
        self.prompts.append(prompt.user)
        numbers = map(int, re.findall(r"^(\d+)\. User", prompt.user, re.MULTILINE))
        begins = {n: MessageReading(message=n, begins=True, work="unknown") for n in numbers}
        return SessionReading(messages=[self.readings.get(n, begins[n]) for n in begins])

    def count(self, *how: Any) -> None:
        pass


def request(n: int, evidence: tuple[Evidence, ...] = (), *inner: str, later: str = "") -> Task:
    steps = [step for text in inner for step in (Step("message", "one moment"), Step("user", text))]
    trace = Trace(f"answer {n}", steps=(Step("action", "edit()"), *steps))
    return Task(
        f"s/{n}", f"message {n}", recorded=Recorded(trace, evidence=evidence, later=later or f"message {n + 1}")
    )


def read(tasks: list[Task], judge: Judge) -> list[Task]:
    (joined,) = asyncio.run(read_sessions([tasks], judge))  # type: ignore[arg-type]
    assert joined is not None
    return joined


def recorded(task: Task) -> Recorded:
    assert task.recorded is not None
    return task.recorded


def spoken(task: Task) -> list[str]:
    texts = [step.text for step in recorded(task).trace.steps if step.kind in ("user", "message")]
    return [task.input, *texts, recorded(task).trace.answer]


@given(st.lists(READINGS, max_size=12), st.lists(st.lists(st.sampled_from(["go on", "why?"]), max_size=2), min_size=1))
def test_every_message_stays_in_its_place(readings: list[MessageReading], inner: list[list[str]]) -> None:
    tasks = [request(n, (), *texts) for n, texts in enumerate(inner)]
    joined = read(tasks, Judge(readings))
    assert [text for task in joined for text in spoken(task)] == [text for task in tasks for text in spoken(task)]
    assert [task.id for task in joined if task.id not in {task.id for task in tasks}] == []
    assert {recorded(task).later for task in joined} == {""}
    assert [*sessions(joined)] == []


def test_the_judge_reads_the_words_and_the_rules_read_the_tests() -> None:
    tests = Evidence("tests failed", False, "the last test run failed")
    passed = Evidence("tests passed", True, "the last test run passed")
    words = Evidence("objection", False, "the user objected: wait")
    tasks = [request(1, (words, tests)), request(2, (passed,)), request(3)]
    readings = [
        MessageReading(message=2, begins=False, work="unknown"),
        MessageReading(message=3, begins=True, work="right"),
    ]
    first, other = read(tasks, Judge(readings))
    assert [sign.signal for sign in recorded(first).evidence] == ["approval", "tests passed"]
    assert recorded(other).evidence == ()


def test_a_long_session_is_read_in_parts_that_share_a_message() -> None:
    tasks = [request(n) for n in range(1, 60)]
    judge = Judge([])
    read(tasks, judge)
    numbers = [[*map(int, re.findall(r"^(\d+)\. User", user, re.MULTILINE))] for user in judge.prompts]
    assert max(map(len, numbers)) == MOST_MESSAGES
    assert [part[-1] for part in numbers[:-1]] == [part[0] for part in numbers[1:]]
    assert (numbers[0][0], numbers[-1][-1]) == (1, 60)


def test_only_consecutive_tasks_of_a_session_are_read_together() -> None:
    one, two, other = request(1), request(2), request(7)
    assert [*sessions([Task("t", "alone"), one, two, other])] == [(1, [one, two]), (3, [other])]
    assert [*sessions([one, Task("t", "message 2 in other words")])] == [(0, [one])]
