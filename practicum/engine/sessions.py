"""A judge reads a session: which messages of the user begin another request, and whether they show that the work before
them is right.

A session is stored as one task per request, and rules decide where a request begins (`practicum.tasks.traces`). Rules
read words, so a complaint in other words becomes another task, and the work before it has no outcome. In a run with a
judge, one call per session decides this before learning begins. Small models cannot do this: a model of 1.5 billion
parameters joined all messages of a session. So in the profile `small` the rules decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Annotated, Literal

from pydantic import Field

from practicum.core.bounded import MaxItems, Output
from practicum.core.counts import Count
from practicum.core.types import Evidence, Instructions, Recorded, Step, Task
from practicum.core.views import truncate
from practicum.engine.run import Run
from practicum.store.journal import digest
from practicum.tasks.traces.evidence import approval, objection, once_each
from practicum.tasks.traces.sessions import MOST_TEXT

MOST_MESSAGES = 24
"""Maximum number of messages of the user that one call reads. A longer session is read in several calls."""

MOST_CHARS = 700
"""Maximum number of characters of a message in the prompt."""

IN_WORDS = ("objection", "approval")
"""Signals in the words of the user."""

JOINED = "joined"
"""Field of a task's `meta` with the ids of the tasks that were joined to it."""


class MessageReading(Output):
    """What a message of the user is, and what it shows."""

    message: int = Field(description="number of the message")
    begins: bool = Field(description="whether it asks for another piece of work")
    work: Literal["right", "wrong", "unknown"] = Field(description="what it shows about the work before it")


class SessionReading(Output):
    """The judge's reading of the messages of a session, except the first."""

    messages: Annotated[list[MessageReading], MaxItems(MOST_MESSAGES)]


@dataclass(slots=True)
class Message:
    """Message of the user in a session. `task` is the position of the task that it belongs to; the `first` message of a
    task is its input. `answer` is the agent's last message after it, and `actions` the number of tool calls."""

    text: str
    task: int
    first: bool
    answer: str = ""
    actions: int = 0


def sessions(tasks: Iterable[Task]) -> Iterator[tuple[int, list[Task]]]:
    """Yield the sessions among tasks in the order of their files, each with the index of its first task: consecutive
    tasks, each with the first message of the next task as its `later`. Sessions that a judge has read are left out."""
    session: list[Task] = []
    for index, task in enumerate(chain(tasks, (None,))):
        later = _later(session[-1]) if session else ""
        if task is not None and later and later == truncate(task.input, MOST_TEXT):
            session.append(task)
            continue
        if later or len(session) > 1:
            yield index - len(session), session
        session = [] if task is None else [task]


async def read_sessions(sessions: Sequence[Sequence[Task]], run: Run) -> list[list[Task] | None]:
    """Ask the judge about the messages of each session, concurrently, and return the tasks of each session. A task that
    begins with a message of the request before it is joined to that request, and its id is added to `meta.joined`. What
    the judge reads replaces the evidence that the rules found in the user's words. If the judge gives no answer about a
    message, return None in place of the session, and count the session."""
    return await run.gather([(_name(session), partial(_read, session)) for session in sessions])


def _name(session: Sequence[Task]) -> str:
    """Return the name of the session's place: a session that has grown is another session."""
    return f"{session[0].id} {digest([task.input for task in session], _later(session[-1]))[:8]}"


async def _read(session: Sequence[Task], run: Run) -> list[Task] | None:
    messages = _messages(session)
    shown = [_shown(number, message) for number, message in enumerate(messages, 1)]
    readings: dict[int, MessageReading] = {}
    # Each call but the first repeats the last message of the call before it.
    for start in range(0, len(messages) - 1, MOST_MESSAGES - 1):
        window = shown[start : start + MOST_MESSAGES]
        prompt = READ.prompt(run.profile, [f"# Session\n{window[0]}", *window[1:]])
        reading = await run.at(f"from {start + 1}").try_ask(
            "judge", prompt, SessionReading, Count.UNREAD_SESSIONS, temperature=0.0
        )  # fmt: skip
        if reading is None:
            return None
        readings |= {one.message: one for one in reading.messages if start + 1 < one.message <= start + len(window)}
    if len(readings) < len(messages) - 1:
        run.count(Count.UNREAD_SESSIONS)
        return None
    return [*_joined(session, messages, readings)]


def _messages(session: Sequence[Task]) -> list[Message]:
    """Return the messages of the user in a session. A message after the last task has no task: nothing followed it."""
    messages: list[Message] = []
    for n, task in enumerate(session):
        messages.append(Message(task.input, n, first=True))
        for step in _steps(task):
            match step.kind:
                case "user":
                    messages.append(Message(step.text, n, first=False))
                case "message":
                    messages[-1].answer = step.text
                case "action":
                    messages[-1].actions += 1
    if later := _later(session[-1]):
        messages.append(Message(later, len(session), first=True))
    return messages


def _shown(number: int, message: Message) -> str:
    text = f"{number}. User: {truncate(message.text, MOST_CHARS)}"
    if not message.answer and not message.actions:
        return text
    return f"{text}\n   Agent, after {message.actions} tool calls: {truncate(message.answer, MOST_CHARS)}"


def _joined(
    session: Sequence[Task], messages: Sequence[Message], readings: Mapping[int, MessageReading]
) -> Iterator[Task]:
    """Yield the tasks of a session as the judge reads it."""
    requests: list[tuple[list[Task], list[Evidence]]] = [([session[0]], [])]
    for number, message in enumerate(messages[1:], 2):
        reading = readings[number]
        if reading.work != "unknown":
            requests[-1][1].append((approval if reading.work == "right" else objection)(message.text))
        if message.first and message.task < len(session):
            if reading.begins:
                requests.append(([], []))
            requests[-1][0].append(session[message.task])
    return (_request(tasks, evidence) for tasks, evidence in requests)


def _request(tasks: Sequence[Task], in_words: Sequence[Evidence]) -> Task:
    """Join the tasks of one request to one task. Of results of tests, the last one counts."""
    by_rules = [sign for task in tasks for sign in _recorded(task).evidence if sign.signal not in IN_WORDS]
    tests = [sign for sign in by_rules if sign.signal.startswith("tests ")]
    evidence = once_each([*in_words, *(sign for sign in by_rules if sign not in tests), *tests[-1:]])
    steps = [step for task, then in pairwise(tasks) for step in (*_steps(task), Step("user", then.input))]
    last = _recorded(tasks[-1])
    trace = replace(last.trace, steps=(*steps, *last.trace.steps))
    images = {mark: image for task in tasks for mark, image in task.images.items()}
    recorded = replace(last, trace=trace, evidence=evidence, later="")
    first, others = tasks[0], [task.id for task in tasks[1:]]
    meta = {**first.meta, JOINED: others} if others else first.meta
    return replace(first, recorded=recorded, images=images, meta=meta)


def _steps(task: Task) -> Iterator[Step]:
    """Yield the steps of a recorded attempt, with its answer as the last step."""
    trace = _recorded(task).trace
    yield from trace.steps
    if trace.reasoning:
        yield Step("thought", trace.reasoning)
    yield Step("message", trace.answer)


def _recorded(task: Task) -> Recorded:
    assert task.recorded is not None
    return task.recorded


def _later(task: Task) -> str:
    return "" if task.recorded is None else task.recorded.later


READ = Instructions("""\
You read a session of a user with an agent. The messages of the user are numbered, and each message is followed by \
the last message of the agent before the user wrote again. Decide two things about each message except the first.

begins: true if the message asks for another piece of work. False if it goes on with the piece of work before it: it \
answers the agent's question or gives what the agent asked for; it says that something in the work is wrong, missing \
or does not work, corrects it, doubts it or refines it; it reports a result or an error of that work; \
it accepts the work; it repeats the request; or it asks the agent to go on. A request that builds on work that is \
complete is another piece of work.

work: what the message shows about the agent's work before it. "wrong": the user finds a fault, has a part done again \
or taken back, corrects what the agent wrote, reports that something does not work, or repeats a request that was not \
carried out. "right": the user says that it works or is good, accepts it, or has used it with success. "unknown": \
everything else, such as an answer to a question, a new wish, or another request without a word about the work before.

Judge by the meaning, in any language. Long texts are shortened.

messages: one object for each message except the first, with its number.""")
