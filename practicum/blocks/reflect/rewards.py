"""Rewards for the steps of a network's attempt, and the experiences they make (MAEL, section 2.2; METHODS, section 6).

The answer to the whole task is rewarded by the task's own metric, and so is a part whose solutions the metric can score
(`tasks.scoring.parts`). A judge rewards the other parts, and the whole if nothing else scores it. The rewards of all
other steps follow from the quality of the solutions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from practicum.agents.network import ACCEPTED
from practicum.core.bounded import MaxChars, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Instructions, Lesson, Rollout, Score, Task, Trace
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run
from practicum.tasks.scoring.parts import task_for_part

MoveData = Mapping[str, Any]

TryId = tuple[str, tuple[str, ...]]
"""One agent's try at a (sub)task: its id, and the ids down to it that were handed back before."""

SOLUTIONS = ("solve", "aggregate")
"""Kinds of steps that make a solution."""


class Quality(Output):
    """What a judge says of a part's solution."""

    reason: Annotated[str, MaxChars(200)] = Field(description="what decides it")
    points: int = Field(ge=0, le=10, description="from 0, useless, to 10, complete and right")


def rewarded(accepted: bool = True) -> ReflectSeam:
    """Each step of each attempt with its reward, in [0, 1]; all solutions are scored at once. Without `accepted`, a
    critique that accepts a solution has no reward.

    A step without a reward makes no experience: a discarded plan, and a step whose reward is unknown, because a judge
    failed. Its lesson has no text and holds only the experience that the step was shown, if any.
    """

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        jobs = [
            (f"{i}.{r.task.id}", partial(_lessons, r, accepted)) for i, r in enumerate(rollouts) if not r.trace.lost
        ]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


async def _lessons(rollout: Rollout, accepted: bool, run: Run) -> list[Lesson]:
    run = replace(run, about=rollout.sources)
    moves: list[MoveData] = list(rollout.trace.data.get("moves", ()))
    whole = _clipped(rollout.score) if run.labels else None
    if whole is None and rollout.feedback.success is not None:
        whole = float(rollout.feedback.success)
    qualities = await _qualities(rollout, moves, whole, run)
    rewards = Rewards(moves, qualities, accepted)
    if whole is None:
        whole = next((quality for n, quality in qualities.items() if not moves[n]["task"]), None)
    of_whole = {} if whole is None else {"whole": round(whole, 4)}
    lessons = []
    for n, move in enumerate(moves):
        reward, text, data = rewards.of(n), "", {"experience": move["experience"]}
        if reward is not None:
            text = move["action"] or "(nothing)"
            data = {
                "agent": move["agent"], "kind": move["kind"], "state": move["state"], "reward": round(reward, 4),
                "trace": rollout.place, "experience": move["experience"], "said": move["said"], **of_whole,
            }  # fmt: skip
        if text or move["experience"]:
            lessons.append(Lesson(f"{run.place}/{n}", text, sources=rollout.sources, data=data))
    return lessons


async def _qualities(
    rollout: Rollout, moves: Sequence[MoveData], whole: float | None, run: Run
) -> dict[int, float | None]:
    """The quality of each solution, by the number of its move; None if it is unknown. The whole task has one solution;
    `whole` is its quality, None if a judge must say it."""
    parts = _scored_parts(rollout.task, moves, run)
    known: dict[int, float | None] = {}
    jobs: list[tuple[str, Callable[[Run], Awaitable[float | None]]]] = []
    for n, move in enumerate(moves):
        if move["kind"] not in SOLUTIONS:
            continue
        if not move["task"] and whole is not None:
            known[n] = whole
        else:
            jobs.append((str(n), partial(_quality, rollout.task.input, parts.get(n), move)))
    said = await run.gather(jobs)
    return known | {int(name): quality for (name, _), quality in zip(jobs, said, strict=True)}


def _scored_parts(task: Task, moves: Sequence[MoveData], run: Run) -> dict[int, Task]:
    """The tasks that score the solutions of parts, by the numbers of the moves, if the task's metric can score them and
    learning may see it.

    All solutions of a try or none: the reward of a critique is a difference, so both sides must be on one scale.
    """
    if run.scorer_name is None or not run.labels:
        return {}
    found: dict[int, Task] = {}
    for part in dict.fromkeys(_try(move) for move in moves if move["task"]):
        made = [(n, move) for n, move in enumerate(moves) if _try(move) == part]
        state = made[0][1]["state"]
        tasks = {n: task_for_part(run.scorer_name, task, state, m["action"]) for n, m in made if m["kind"] in SOLUTIONS}
        if None not in tasks.values():
            found |= {n: one for n, one in tasks.items() if one is not None}
    return found


def _clipped(score: Score | None) -> float | None:
    return None if score is None else min(max(score.value, 0.0), 1.0)


async def _quality(task: str, scored: Task | None, move: MoveData, run: Run) -> float | None:
    """The quality of a solution: by the task that scores it or, if there is none, by a judge."""
    if scored is not None:
        return _clipped(await run.score(scored, Trace(move["action"])))
    part = [f"# The part\n{move['state']}"] if move["task"] else []
    parts = [*run.agent_instructions, f"# The whole task\n{task}", *part, f"# Its solution\n{move['action']}"]
    prompt = JUDGE.prompt(run.profile, parts)
    said = await run.try_ask("judge", prompt, Quality, Count.UNJUDGED_ATTEMPTS, temperature=0.0)
    return None if said is None else said.points / 10


@dataclass(frozen=True)
class Rewards:
    """Rewards from the moves of one attempt and the qualities of its solutions, by the numbers of the moves (section
    2.2). With `accepted`, the reward of a critique that accepts a solution is the quality of that solution."""

    moves: Sequence[MoveData]
    qualities: Mapping[int, float | None]
    accepted: bool = True

    def of(self, number: int) -> float | None:
        """The reward of a move, in [0, 1]; None if it is unknown, and for a plan that was discarded."""
        move = self.moves[number]
        match move["kind"]:
            case "solve" | "aggregate":
                return self.qualities.get(number)
            case "judge" | "decompose":
                if parts := self._parts(_try(move)):
                    known = [quality for quality in parts if quality is not None]
                    return fmean(known) if len(known) == len(parts) else None
                # The agent solved the task alone, after it said so or after its plan was discarded.
                solutions = self._solutions(_try(move))
                return solutions[-1][1] if solutions and move["kind"] == "judge" else None
            case _:
                return self._gain(number, move)

    def _gain(self, number: int, move: MoveData) -> float | None:
        """How much a critique improved the solution, at least 0. It is unknown if no refined solution came back."""
        solutions = self._solutions(_try(move))
        before = next((quality for n, quality in reversed(solutions) if n < number), None)
        if move["action"] == ACCEPTED:
            return before if self.accepted else None
        after = next((q for n, q in solutions if n > number and self.moves[n]["round"] == move["round"]), None)
        return None if before is None or after is None else max(after - before, 0.0)

    def _parts(self, whole: TryId) -> list[float | None]:
        """The quality of each part that a try was divided into: 0 if it was not solved, None if it is unknown."""
        plan = next((m for m in self.moves if m["kind"] == "decompose" and _try(m) == whole), None)
        qualities: list[float | None] = []
        for n in range(1, 1 + len(plan["to"] if plan else ())):
            id = f"{whole[0]}.{n}".lstrip(".")
            # A part that its first agent could not solve was handed to another one.
            tries = (self._solutions((id, again)) for again in (whole[1], (*whole[1], id)))
            solutions = [solution for solutions in tries for solution in solutions]
            qualities.append(solutions[-1][1] if solutions else 0.0)
        return qualities

    def _solutions(self, of: TryId) -> list[tuple[int, float | None]]:
        """The solutions of one try in order: the number of the move, and the quality."""
        return [
            (n, self.qualities.get(n))
            for n, move in enumerate(self.moves)
            if _try(move) == of and move["kind"] in SOLUTIONS
        ]


def _try(move: MoveData) -> TryId:
    return str(move["task"]), tuple(move["again"])


JUDGE = Instructions(
    full="""\
You grade the solution of a task, or of one part of a larger task: how right and how complete it is for what is asked, \
not how it is worded or how long it is. Grade a part by what the part asks; the whole task shows what it is for. Check \
facts, calculations and code yourself instead of trusting what the solution says about them. First name what decides \
the grade, then give points from 0 to 10: 10 for a solution that is right and complete, 7 if only details are wrong or \
missing, 4 if a good part of it can be used, 1 if hardly anything can, 0 if nothing can or there is no solution.""",
    small="""\
You grade the solution of a task, or of one part of a larger one: how complete and how right it is for what is asked, \
not how it is worded. First name what decides it, then give points from 0 to 10.""",
)
