"""A group chat: agents with different roles discuss the task, a manager chooses the next speaker, and the chat ends
when an agent reports that the task is done (AutoGen, Wu et al., 2023, section 2.2: dynamic group chat).

Does not learn: a baseline for MAEL (table 1 of the MAEL paper). docs/learn/methods/reproductions.md lists the
differences from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from practicum.core.bounded import Output
from practicum.core.types import Instructions, Step, Task
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.none import Settings as Unlearned
from practicum.methods.none import unlearned
from practicum.plugins.rivals.teamwork import Contribution, ask_member, by_team


class Settings(Unlearned):
    SMALL: ClassVar[Mapping[str, Any]] = {"turns": 4}

    turns: int = Field(default=10, ge=1)
    """Maximum number of messages in the chat (AutoGen: 10)."""
    warmth: float = Field(default=0.2, ge=0)
    """Temperature of the agents."""


class NextSpeaker(Output):
    """The manager's choice."""

    model_config = ConfigDict(title="Turn")  # models see this title in the schema

    next: Literal["planner", "worker", "critic"] = Field(description="who speaks next")


class Message(Contribution):
    """What a member says to all others."""

    done: bool = Field(description="whether the task is done, so that the chat can end")


def method(s: Settings) -> Method:
    """Discuss the task until a member reports it as done, then answer."""
    act = by_team(partial(run_chat, s.turns), ANSWER, s.warmth)
    return unlearned("group_chat", act, s.online, calls=2 * s.turns + 1)


async def run_chat(turns: int, task: Task, run: Run) -> tuple[Sequence[Step], str]:
    """Run the chat: all members read every message. The chat ends when a member reports the task as done, or after
    `turns` messages."""
    messages, chat = list[Step](), ""
    for n in range(1, turns + 1):
        at = run.at(f"turn {n}")
        name = (await ask_member(MANAGER, [chat], NextSpeaker, task, at.at("manager"))).next
        message = await ask_member(MEMBERS[name], [chat], Message, task, at.at(name))
        messages.append(Step(name, message.text))
        chat = "# The chat so far\n" + "\n\n".join(f"{step.kind}: {step.text}" for step in messages)
        if message.done:
            break
    return messages, chat


def _member(full: str, small: str) -> Instructions:
    return Instructions(
        full=f"""\
You are a member of a group that does a task by talking about it. {full} Everybody reads what everybody says. Say what \
moves the task on from where it stands, and do not repeat what was said. Say that it is done only when the chat holds \
the complete result and nobody's objection to it stands open.""",
        small=f"You do a task in a group, by talking. {small} It is done when the result was said and is right.",
    )


MEMBERS = {
    "planner": _member(
        "You are the planner: you divide the task into steps, say what is missing, and mend the plan if it fails.",
        "You are the planner: say which step comes next.",
    ),
    "worker": _member(
        "You are the worker: you carry out the steps and write the results in full, with text, numbers and code.",
        "You are the worker: do the next step and write its result.",
    ),
    "critic": _member(
        "You are the critic: you check results against the task and say exactly what is wrong and why, or that it is "
        "right.",
        "You are the critic: say what is wrong with the result, or that it is right.",
    ),
}
"""Instructions of the members other than the manager, by the member's name."""

MANAGER = Instructions(
    full="""\
You manage a group that does a task by talking about it, and say who speaks next. The planner divides the task into \
steps and finds what is missing. The worker carries steps out. The critic checks results against the task. Choose the \
one whose contribution the task needs most now.""",
    small="Say who speaks next: the planner, who says what to do; the worker, who does it; the critic, who checks it.",
)

ANSWER = Instructions(
    full="""\
The group that you belong to did this task by talking about it, as you see. Give the answer to the task now, in the \
form that the task asks for, and complete, since nobody sees the chat.""",
    small="Use what the chat came to if it is right. Answer the task.",
)
