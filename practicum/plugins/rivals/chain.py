"""A chain of agents: each agent works on the output of the previous agent, and the last agent answers (ChatDev, Qian et
al., 2024, section 3.1: the chat chain).

Does not learn: a baseline for MAEL. docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from practicum.core.types import Instructions, Step, Task
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.none import Settings as Unlearned
from practicum.methods.none import unlearned
from practicum.plugins.rivals.teamwork import Contribution, ask_member, by_team


class Settings(Unlearned):
    warmth: float = Field(default=0.2, ge=0)
    """Temperature of the agents."""


def method(s: Settings) -> Method:
    """Plan, solve, review and answer, each with a separate agent."""
    return unlearned("chain", by_team(run_phases, ANSWER, s.warmth), s.online, calls=len(PHASES) + 1)


async def run_phases(task: Task, run: Run) -> tuple[Sequence[Step], str]:
    """Run the phases in order. An agent sees only the task and the result of the previous phase."""
    text, steps = "", list[Step]()
    for name, instructions in PHASES.items():
        previous = f"# What you are handed\n{text}" if text else ""
        text = (await ask_member(instructions, [previous], Contribution, task, run.at(name))).text
        steps.append(Step(name, text))
    return steps, f"# What you are handed\n{text}"


PHASES = {
    "plan": Instructions(
        full="""\
You are the first of a line of agents that do a task together. Plan it: say what is asked and in which form the result \
is wanted, what is given, what has to be known or found out, and which steps lead to the result, in their order. Do \
not carry the plan out. The next agent works by it.""",
        small="You plan how a task is done. Say what is asked and which steps lead to it. Do not do it yourself.",
    ),
    "solve": Instructions(
        full="""\
You are one of a line of agents that do a task together. You are handed a plan. Carry it out step by step, write down \
what each step gives, and come to a complete result. If the plan is wrong somewhere, do what is right instead. The \
next agent reviews what you write and does not see the plan.""",
        small="You are handed a plan for a task. Carry it out and write the result with the steps that led to it.",
    ),
    "review": Instructions(
        full="""\
You are one of a line of agents that do a task together. You are handed a solution. Check it against the task: every \
requirement, every step, every number, name and line of code, and the form of the result. Then hand on the solution \
in full, with all that was wrong put right. If nothing was wrong, hand it on as it is.""",
        small="You are handed the solution of a task. Check each step. Then write the solution again, with what was "
        "wrong put right.",
    ),
}
"""Agents of the chain before the last agent, in order."""

ANSWER = Instructions(
    full="""\
You are the last of a line of agents that do this task together, and you are handed what the others came to. Give the \
answer to the task now, in the form that the task asks for, and complete, since nobody sees what you were handed.""",
    small="Use what you are handed if it is right. Answer the task.",
)
