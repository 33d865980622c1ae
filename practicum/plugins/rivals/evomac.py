"""EvoMAC: a team that changes during the task; the team's result is checked, faults of the result are traced back to
members, and members are revised, added or removed (Hu et al., 2025, section 3: textual backpropagation).

Does not learn across tasks: a baseline for MAEL (table 1 of the MAEL paper). docs/learn/methods/reproductions.md lists
the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field

from practicum.core.bounded import MaxChars, MaxItems, Output
from practicum.core.types import Instructions, Step, Task
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.none import Settings as Unlearned
from practicum.methods.none import unlearned
from practicum.plugins.rivals.teamwork import Contribution, ask_member, by_team


class Settings(Unlearned):
    SMALL: ClassVar[Mapping[str, Any]] = {"agents": 2, "iterations": 1}

    agents: int = Field(default=4, ge=1)
    """Maximum number of members of a team."""
    iterations: int = Field(default=3, ge=0)
    """Maximum number of times that the team is changed during a task. If all checks pass, the team is not changed any
    more."""
    warmth: float = Field(default=0.2, ge=0)
    """Temperature of the agents."""


class Member(Output):
    """A member of the team."""

    name: Annotated[str, MaxChars(30)] = Field(description="a short name")
    job: Annotated[str, MaxChars(300)] = Field(description="what the member does for the task, and how")


class Team(Output):
    """A team, in the order in which its members work."""

    members: Annotated[list[Member], MaxItems(4)] = Field(description="the members, in the order of the work")


class Checks(Output):
    """What a right result fulfils."""

    checks: Annotated[list[Annotated[str, MaxChars(200)]], MaxItems(4)] = Field(description="a check each")


class Faults(Output):
    """What is wrong with a result, or with the members that it came from."""

    faults: Annotated[list[Annotated[str, MaxChars(300)]], MaxItems(4)] = Field(
        description="a fault each; none if there is nothing wrong"
    )


def method(s: Settings) -> Method:
    """Work as a team, check the result, change the team and repeat, then answer."""
    act = by_team(partial(run_team, s.agents, s.iterations), ANSWER, s.warmth)
    calls = 2 + (s.iterations + 1) * s.agents + 3 * s.iterations + 1
    return unlearned("evomac", act, s.online, calls)


async def run_team(most: int, iterations: int, task: Task, run: Run) -> tuple[Sequence[Step], str]:
    """Run rounds of a team. Forward pass: the members work one after the other. Backward pass: faults of the result are
    traced back to members, and the team is changed. `most` is the maximum number of members. Return the steps and the
    result of the last round."""
    size = f"# The most members\n{most}"
    team = (await ask_member(COORDINATE, [size], Team, task, run.at("coordinate"))).members[:most]
    tests = _listed("# Checks", (await ask_member(TEST, [], Checks, task, run.at("test"))).checks)
    steps = list[Step]()
    for n in range(iterations + 1):
        at, result = run.at(f"round {n + 1}"), ""
        for number, member in enumerate(team, 1):
            job = f"# Your job\n{member.job}"
            part = await ask_member(WORK, [result, job], Contribution, task, at.at(f"member {number}"))
            steps.append(Step(member.name, part.text))
            result = "\n\n".join(filter(None, (result or "# The result so far", f"## {member.name}\n{part.text}")))
        if n == iterations:
            break
        faults = (await ask_member(VERIFY, [result, tests], Faults, task, at.at("verify"))).faults
        if not faults:
            break
        members = "# The team\n" + "\n".join(f"- {member.name}: {member.job}" for member in team)
        problems = _listed("# What is wrong with the result", faults)
        causes = (await ask_member(GRADIENT, [members, result, problems], Faults, task, at.at("gradient"))).faults
        changes = _listed("# What has to change about the team", causes)
        steps.append(Step("feedback", "\n\n".join((problems, changes))))
        team = (await ask_member(UPDATE, [members, changes, size], Team, task, at.at("update"))).members[:most] or team
    return steps, result


def _listed(heading: str, texts: Sequence[str]) -> str:
    return f"{heading}\n" + "\n".join(f"- {text}" for text in texts)


COORDINATE = Instructions(
    full="""\
You put a team together for a task. Divide the work among members that build on each other, each with a job of its \
own: what it makes, from what, and what it has to heed. They work one after the other, and each sees the results of \
those before it. Take as few members as the task needs.""",
    small="Divide the work on a task among a few members, who work one after the other. Give each its job.",
)

TEST = Instructions(
    full="""\
You say how the result of a task is to be checked, before there is one. Go through the task and write a check for each \
requirement that it states or implies: what has to be there, what has to hold, in which form. Each can be decided by \
looking at the result alone.""",
    small="Say by which checks one sees whether a task was done right. A check is one short sentence.",
)

WORK = Instructions(
    full="""\
You are a member of a team that does a task together. You see the task, what the members before you made, and your \
own job. Do your job, completely, so that the next member can build on it: write out text, calculations and code in \
full. Where an earlier result is wrong, write it anew as it should be.""",
    small="You work on a task in a team. Do your job and write its result in full.",
)

VERIFY = Instructions(
    full="""\
You check the result of a task. Go through the checks one by one, recompute what is computed, and read code as it \
would run. Name each fault that you find: which check it fails, where, and what would be right. If every check passes, \
name none.""",
    small="Check the result of a task. Name each check that fails and what is wrong. If all pass, name none.",
)

GRADIENT = Instructions(
    full="""\
The result of a team has faults. Find out for each where it came from: which member made it, and whether its job told \
it something wrong, left something out, or was not done; or whether a job is missing, done twice, or in the wrong \
place of the order. Say for each what about the team has to change.""",
    small="The result of a team has faults. Say which member's job led to each, and what has to change about it.",
)

UPDATE = Instructions(
    full="""\
You change a team so that its faults do not come back. You see its members with their jobs and what has to change. \
Write the whole team anew, in the order of the work: revise jobs, add members whose work was missing, leave out those \
that are not needed or whose work is done, and keep what nobody complains of.""",
    small="Change a team as you are told. Write all members with their jobs, in the order of the work.",
)

ANSWER = Instructions(
    full="""\
The team that you belong to did this task and came to the result that you see. Give the answer to the task now, in \
the form that the task asks for, and complete, since nobody sees the team's result.""",
    small="Use the result of the team if it is right. Answer the task.",
)
