"""Rewards for the steps of a network's attempt, and the experiences they make (MAEL, section 2.2; METHODS, section 6).

The whole is rewarded by the task's own metric, and so is a part whose solutions that can take (`tasks.part`). A judge
rewards the others, and the whole where nothing else tells of it. From the quality of solutions follow the rewards of
all other steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from practicum.core.bounded import MaxChars, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Lesson, Prompt, Rollout, Task, Trace
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run
from practicum.tasks.scoring.parts import task_for_part

Move = Mapping[str, Any]

Try = tuple[str, tuple[str, ...]]
"""One agent's try at a (sub)task: its id, and the ids down to it that were handed back before."""

SOLUTIONS = ("solve", "aggregate")
"""Kinds of steps that make a solution."""


class Quality(Output):
    """What a judge says of a part's solution."""

    reason: Annotated[str, MaxChars(200)] = Field(description="what decides it")
    points: int = Field(ge=0, le=10, description="from 0, useless, to 10, complete and right")


def rewarded() -> ReflectSeam:
    """Each step of each attempt with its reward, in [0, 1]; solutions are looked at all at once. A step whose
    reward is not known, because its judge was away or nothing was changed that could be better, is no experience: its
    lesson has no text, and says only what the step was shown, if anything."""

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        jobs = [
            (f"{i}.{rollout.task.id}", partial(_experiences, rollout))
            for i, rollout in enumerate(rollouts)
            if not rollout.trace.lost
        ]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


async def _experiences(rollout: Rollout, run: Run) -> list[Lesson]:
    run = replace(run, about=rollout.sources)
    moves: list[Move] = list(rollout.trace.data.get("moves", ()))
    rewards = Rewards(moves, await _qualities(rollout, moves, run))
    return [
        _lesson(f"{run.place}/{n}", move, reward, rollout)
        for n, move in enumerate(moves)
        if (reward := rewards.of(n)) is not None or move["experience"]
    ]


async def _qualities(rollout: Rollout, moves: Sequence[Move], run: Run) -> dict[int, float | None]:
    """Quality of each solution, by the number of its move; None where it is not known."""
    whole, parts = _whole(rollout, run), _scored(rollout.task, moves, run)
    known: dict[int, float | None] = {}
    jobs: list[tuple[str, Callable[[Run], Awaitable[float | None]]]] = []
    for n, move in enumerate(moves):
        if move["kind"] not in SOLUTIONS:
            continue
        if not move["task"] and whole is not None:
            known[n] = whole
        elif n in parts:
            jobs.append((str(n), partial(_measured, parts[n], move)))
        else:
            jobs.append((str(n), partial(_judged, rollout.task.input, move)))
    said = await run.gather(jobs)
    return known | {int(name): quality for (name, _), quality in zip(jobs, said, strict=True)}


def _scored(task: Task, moves: Sequence[Move], run: Run) -> dict[int, Task]:
    """What solutions of parts are to be scored by, where the task's metric can take them and learning may see it.

    All solutions of a try or none: what a critique gained is a difference, so both sides must be on one scale.
    """
    if run.scorer_name is None or not run.labels:
        return {}
    found: dict[int, Task] = {}
    for part in dict.fromkeys(_try(move) for move in moves if move["task"]):
        of = [(n, move) for n, move in enumerate(moves) if _try(move) == part]
        given = of[0][1]["state"]
        tasks = {n: task_for_part(run.scorer_name, task, given, m["action"]) for n, m in of if m["kind"] in SOLUTIONS}
        if None not in tasks.values():
            found |= {n: made for n, made in tasks.items() if made is not None}
    return found


def _whole(rollout: Rollout, run: Run) -> float | None:
    """Quality of the whole: its score where learning may see it, else the verdict it got; None where nothing tells."""
    if rollout.score is not None and run.labels:
        return min(max(rollout.score.value, 0.0), 1.0)
    success = rollout.feedback.success
    return None if success is None else float(success)


async def _measured(task: Task, move: Move, run: Run) -> float | None:
    score = await run.score(task, Trace(move["action"]))
    return None if score is None else min(max(score.value, 0.0), 1.0)


async def _judged(task: str, move: Move, run: Run) -> float | None:
    whole, solution = f"# The whole task\n{task}", f"# Its solution\n{move['action']}"
    parts = [whole, f"# The part\n{move['state']}", solution] if move["task"] else [whole, solution]
    prompt = Prompt(JUDGE, "\n\n".join(parts))
    said = await run.try_ask("judge", prompt, Quality, Count.UNJUDGED_ATTEMPTS, temperature=0.0)
    return None if said is None else said.points / 10


@dataclass(frozen=True)
class Rewards:
    """Rewards from the moves of one attempt and the qualities of its solutions, by the moves' numbers."""

    moves: Sequence[Move]
    qualities: Mapping[int, float | None]

    def of(self, number: int) -> float | None:
        """The reward of a move, clipped to [0, 1]; None where nothing tells it."""
        move = self.moves[number]
        match move["kind"]:
            case "solve" | "aggregate":
                return self.qualities.get(number)
            case "judge" | "decompose":
                if not (parts := self._parts(_try(move))):
                    return self._last(_try(move))
                known = [quality for part in parts if (quality := self._last(part)) is not None]
                return _mean(known) if known else None
            case _:
                return self._gained(number)

    def _solutions(self, of: Try) -> list[tuple[int, float]]:
        """Solutions of one try whose quality is known, in order."""
        found = ((n, self.qualities.get(n)) for n, m in enumerate(self.moves) if _try(m) == of)
        return [(n, quality) for n, quality in found if quality is not None]

    def _last(self, of: Try) -> float | None:
        solutions = self._solutions(of)
        return solutions[-1][1] if solutions else None

    def _parts(self, of: Try) -> list[Try]:
        """The tries at the parts that one try was divided into; of each part, one at most came to a solution."""
        tries = dict.fromkeys(map(_try, self.moves))
        return [(id, again) for id, again in tries if id and (id.rpartition(".")[0], _before(id, again)) == of]

    def _gained(self, number: int) -> float | None:
        """How much better a solution got by a critique; of one that asked for nothing, nothing can be said."""
        move = self.moves[number]
        solutions = self._solutions(_try(move))
        before = [q for n, q in solutions if n < number]
        after = [q for n, q in solutions if n > number and self.moves[n]["round"] == move["round"]]
        return max(after[0] - before[-1], 0.0) if before and after else None


def _try(move: Move) -> Try:
    return str(move["task"]), tuple(move["again"])


def _before(id: str, again: Sequence[str]) -> tuple[str, ...]:
    """What of `again` was so before this part was begun."""
    return tuple(other for other in again if other != id)


def _mean(values: Sequence[float]) -> float:
    return min(max(fmean(values), 0.0), 1.0)


def _lesson(id: str, move: Move, reward: float | None, rollout: Rollout) -> Lesson:
    if reward is None:
        return Lesson(id, "", sources=rollout.sources, data={"experience": move["experience"]})
    data = {
        "agent": move["agent"], "kind": move["kind"], "state": move["state"],
        "reward": round(reward, 4), "trace": rollout.place, "experience": move["experience"], "said": move["said"],
    }  # fmt: skip
    return Lesson(id, move["action"] or "(nothing)", sources=rollout.sources, data=data)


JUDGE = """\
You grade the solution of a task, or of one part of a larger one: how complete and how right it is for what is asked, \
not how it is worded. First name what decides it, then give points from 0 to 10."""
