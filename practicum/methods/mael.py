"""MAEL: a network of agents that keeps the steps of its attempts as experience, and is shown this experience on later
tasks (Li et al., sections 2.1 to 2.3; METHODS, section 6).

Deviations: each part is criticised immediately after its solution, not after all parts are solved; a critique that
accepts a solution improves nothing, so its reward is the quality of the solution; if there are more parts than
neighbours, some neighbours solve several parts; a solution that repeats the experience that it was shown is a vote on
this experience, and experience that failed too often in a row is retired. docs/learn/methods/mael.md lists all
deviations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from practicum.agents.network import ACCEPTED
from practicum.agents.team import SHAPES, AgentTeam, load_team, make_team
from practicum.core.bounded import MaxChars, Output
from practicum.core.clashes import Clash, needs
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Entry
from practicum.core.types import Attempt, Instructions, Lesson, Rating, Score, Task, Trace
from practicum.engine.loop import Method, ReflectSeam
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.curate import without_outdated
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.network import (
    MAX_PARTS,
    Experience,
    Level,
    Strategy,
    by_network,
    of_each_step,
    pooled,
    seat,
    step_reward,
)
from practicum.methods.blocks.sample import batches
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.tasks.scoring.parts import task_for_part


class Settings(Batched, RetrievalSettings):
    TRACES: ClassVar = None

    agents: int = Field(default=4, ge=1, le=64)
    """The number of agents in the network."""
    topology: str | dict[str, Any] = "complete"
    """The links between the agents: complete, ring, star, chain, random (by the seed), or a JSON or GraphML team
    file."""
    rounds: int = Field(default=2, ge=0)
    """The maximum number of rounds of critique on a part (paper: 2, and 3 for hard data sets)."""
    depth: int = Field(default=1, ge=0)
    """The maximum number of levels of parts into which a task is divided (paper: 1, and 2 for hard data sets); 0: a
    single agent solves the task."""
    experience: Strategy = "step"
    """step: retrieve experience for every step separately; task: take the experience for all steps from one past trace;
    none: show no experience."""
    while_learning: bool = False
    """Whether agents are shown experience in learning too (paper: only in inference). In a stream they are always shown
    experience."""
    accepted: bool = True
    """Whether a critique that accepts a solution is kept as experience. The reward of the critique is the quality of
    the solution."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """The weight of the similarity in retrieval. The weight of the reward is 1 - alpha."""
    similarity: Level = "high"
    """high: prefer similar experience; low: prefer dissimilar experience, as in the paper's table 4."""
    reward: Level = "high"
    """high: prefer experience with a high reward; low: prefer a low reward, as in the paper's table 4."""
    follow_from: float = Field(default=0.5, ge=0, le=1)
    """The minimum reward of experience that is shown as an example to follow. Other experience is shown as an example
    to avoid."""
    warmth: float = Field(default=0.2, ge=0)
    """The temperature of the agents."""

    CLASHES: ClassVar = (
        needs("alpha", "similarity", "reward", "follow_from", "while_learning", experience=("task", "step")),
        # If a resume changes one of these two settings, the other is removed from the run.
        Clash(
            lambda s: s.were_set("agents") and s.topology not in SHAPES,
            "the team file sets the number of agents: leave out agents", ("agents", "topology"),
        ),
    )  # fmt: skip

    @classmethod
    def outside(cls, values: Mapping[str, Any]) -> Iterator[str]:
        """Yield "read FILE" if `topology` names a team file. If `topology` is the content of a team file, yield "send
        prompts to MODEL (AGENT)" for each agent for which the team names a model."""
        topology = values.get("topology", "complete")
        if isinstance(topology, Mapping):
            yield from (f"send prompts to {m.model} ({m.name})" for m in load_team(topology).members if m.model)
        elif topology not in SHAPES:
            yield f"read {topology}"

    @field_validator("topology")
    @classmethod
    def _read(cls, topology: str | dict[str, Any]) -> str | dict[str, Any]:
        """Replace the name of a team file by the content of the file, so that a run needs no file outside of its
        folder."""
        return topology if topology in SHAPES else load_team(topology).as_json()


def method(s: Settings) -> Method:
    """Build the method: attempt tasks by a network of agents, reward each step of an attempt, and keep the step in the
    pool of the agent that made it."""
    team = cache(partial(team_of, s))
    members = team(0).members
    experience = Experience(s.experience, s.alpha, s.similarity, s.reward, s.follow_from)
    network = partial(by_network, team, rounds=s.rounds, depth=s.depth, warmth=s.warmth)
    act = network(experience)
    learning = act if s.online or s.while_learning else network(replace(experience, strategy="none"))
    return Method(
        name="mael",
        show=of_each_step,
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(learning),
        reflect=rewarded(s),
        update=without_outdated(pooled),
        accept=always,
        roles=("judge",),
        act_calls=_most_calls(s, len(members)),
        models={seat(m.name): m.model for m in members if m.model},
        costs="the calls of the network, and a call of a judge for each solution of a part",
    )


def team_of(s: Settings, seed: int) -> AgentTeam:
    """Return the network of these settings; the seed of the run makes the links of a random network."""
    return make_team(s.agents, s.topology, seed) if isinstance(s.topology, str) else load_team(s.topology)


def _most_calls(s: Settings, agents: int) -> int:
    """Return the number of model calls of an attempt in the worst case: every plan has `MAX_PARTS` parts, and each part
    is handed back once and refined in each round. A capable model may plan more than `MAX_PARTS` parts, and then an
    attempt makes more calls than this number."""
    most = 1
    for _ in range(min(s.depth, agents - 1)):
        most = 3 + MAX_PARTS * (min(2, agents - 1) * most + 2 * s.rounds)
    return most


# ---- rewards of the steps (section 2.2)
#
# The metric of the task rewards the answer to the whole task, and each part whose solutions the metric can score
# (`tasks.scoring.parts`). A judge rewards the other parts, and the whole task if no score exists. The rewards of all
# other steps follow from the quality of the solutions.

MoveData = Mapping[str, Any]

TryId = tuple[str, tuple[str, ...]]
"""One agent's try at the task or at a part of it: the fields `task` and `again` that the moves of the try have (see
`agents.network.Question`)."""

SOLUTIONS = ("solve", "aggregate")
"""Kinds of steps that make a solution."""


class Quality(Output):
    """What a judge says of a part's solution."""

    reason: Annotated[str, MaxChars(200)] = Field(description="what decides it")
    points: int = Field(ge=0, le=10, description="from 0, useless, to 10, complete and right")


def rewarded(s: Settings) -> ReflectSeam:
    """Build a reflect seam that gives each step of each attempt a reward in [0, 1]. All solutions are scored
    concurrently.

    A solution that repeats the experience that it was shown as an example to follow votes on this experience: helpful
    or harmful, by its reward. With step-wise retrieval, a good solution of this kind teaches nothing more, so it does
    not become experience. In this way an outdated solution is a single experience, which is retired after some failures
    in a row, and a pool does not grow with tasks of one kind. The paper shows no experience in learning, so this
    concerns streams and the setting `while_learning`.

    Discarded plans have no reward either, nor have steps whose reward is unknown because a judge failed. A step without
    a reward does not become experience: its lesson has no text, and names only the experience that the step was shown.
    A step without a reward that was shown no experience has no lesson."""

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        jobs = [
            (f"{i}.{r.task.id}", partial(_lessons, r, context, s)) for i, r in enumerate(attempts) if not r.trace.lost
        ]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


async def _lessons(attempt: Attempt, context: Context, s: Settings, run: Run) -> list[Lesson]:
    run = replace(run, about=attempt.sources)
    moves: list[MoveData] = list(attempt.trace.data.get("moves", ()))
    whole = _clipped(attempt.score) if run.labels else None
    if whole is None and attempt.feedback.success is not None:
        whole = float(attempt.feedback.success)
    qualities = await _qualities(attempt, moves, whole, run)
    rewards = Rewards(moves, qualities, s.accepted)
    if whole is None:
        whole = next((quality for n, quality in qualities.items() if not moves[n]["task"]), None)
    of_whole = {} if whole is None else {"whole": round(whole, 4)}
    lessons = []
    for n, move in enumerate(moves):
        reward, text, data = rewards.of(n), "", {"experience": move["experience"]}
        votes: dict[str, Rating] = {}
        good = reward is not None and reward >= s.follow_from
        if reward is not None and (followed := _followed(move, context, s.follow_from)):
            votes[followed.id] = "helpful" if good else "harmful"
        if reward is not None and not (good and votes and s.experience == "step"):
            text = move["action"] or "(nothing)"
            data = {
                "agent": move["agent"], "kind": move["kind"], "state": move["state"], "reward": round(reward, 4),
                "trace": attempt.place, "experience": move["experience"], "output": move["output"], **of_whole,
            }  # fmt: skip
        if text or move["experience"]:
            lessons.append(Lesson(f"{run.place}/{n}", text, votes=votes, sources=attempt.sources, data=data))
    return lessons


def _followed(move: MoveData, context: Context, follow_from: float) -> Entry | None:
    """Return the experience that a solution repeated word for word, if it was shown as an example to follow."""
    shown = context.get(move["experience"])
    if shown is None or move["kind"] not in SOLUTIONS or shown.text != move["action"]:
        return None
    return shown if step_reward(shown) >= follow_from else None


async def _qualities(
    attempt: Attempt, moves: Sequence[MoveData], whole: float | None, run: Run
) -> dict[int, float | None]:
    """Return the quality of each solution, by the index of the move that made the solution; None if the quality is
    unknown. `whole` is the quality of the solution of the whole task; if it is None, a judge grades that solution."""
    parts = _scored_parts(attempt.task, moves, run)
    qualities: dict[int, float | None] = {}
    jobs: list[tuple[str, Callable[[Run], Awaitable[float | None]]]] = []
    for n, move in enumerate(moves):
        if move["kind"] not in SOLUTIONS:
            continue
        if not move["task"] and whole is not None:
            qualities[n] = whole
        else:
            jobs.append((str(n), partial(_quality, attempt.task.text, parts.get(n), move)))
    judged = await run.gather(jobs)
    return qualities | {int(name): quality for (name, _), quality in zip(jobs, judged, strict=True)}


def _scored_parts(task: Task, moves: Sequence[MoveData], run: Run) -> dict[int, Task]:
    """Return a task for each solution of a part, by the index of the move that made the solution: scoring the solution
    on this task measures the quality of the solution. Parts that the task's metric cannot score are left out. If
    learning may not see scores, the result is empty.

    Either all solutions of a try are scored or none, because the reward of a critique is the difference of the
    qualities of two solutions, which must have the same scale."""
    if run.scorer_name is None or not run.labels:
        return {}
    scoring_tasks: dict[int, Task] = {}
    for part in dict.fromkeys(_try(move) for move in moves if move["task"]):
        try_moves = [(n, move) for n, move in enumerate(moves) if _try(move) == part]
        state = try_moves[0][1]["state"]
        tasks = {
            n: task_for_part(run.scorer_name, task, state, m["action"]) for n, m in try_moves if m["kind"] in SOLUTIONS
        }
        if None not in tasks.values():
            scoring_tasks |= {n: one for n, one in tasks.items() if one is not None}
    return scoring_tasks


def _clipped(score: Score | None) -> float | None:
    return None if score is None else min(max(score.value, 0.0), 1.0)


async def _quality(task: str, scored: Task | None, move: MoveData, run: Run) -> float | None:
    """Return the quality of a solution: its score on the task `scored` or, if `scored` is None, the grade of a
    judge."""
    if scored is not None:
        return _clipped(await run.score(scored, Trace(move["action"])))
    part = [f"# The part\n{move['state']}"] if move["task"] else []
    parts = [*run.agent_instructions, f"# The whole task\n{task}", *part, f"# Its solution\n{move['action']}"]
    prompt = JUDGE.prompt(run.profile, parts)
    quality = await run.try_ask("judge", prompt, Quality, Count.UNJUDGED_ATTEMPTS, temperature=0.0)
    return None if quality is None else quality.points / 10


@dataclass(frozen=True)
class Rewards:
    """Rewards of the moves of one attempt (section 2.2). They follow from `qualities`: the quality of each solution, by
    the index of the move that made the solution. With `accepted`, the reward of a critique that accepts a solution is
    the quality of that solution."""

    moves: Sequence[MoveData]
    qualities: Mapping[int, float | None]
    accepted: bool = True

    def of(self, number: int) -> float | None:
        """Return the reward of a move, in [0, 1]; None if the reward is unknown or the move is a discarded plan."""
        move = self.moves[number]
        match move["kind"]:
            case "solve" | "aggregate":
                return self.qualities.get(number)
            case "judge" | "decompose":
                if parts := self._parts(_try(move)):
                    certain = [quality for quality in parts if quality is not None]
                    return fmean(certain) if len(certain) == len(parts) else None
                # The agent solved the task by itself: it decided so, or its plan was discarded.
                solutions = self._solutions(_try(move))
                return solutions[-1][1] if solutions and move["kind"] == "judge" else None
            case _:
                return self._gain(number, move)

    def _gain(self, number: int, move: MoveData) -> float | None:
        """Return the reward of a critique. A critique that asks for changes earns the quality of the refined solution
        minus the quality of the solution before the critique, at least 0. A critique that accepts the solution earns
        the quality of this solution, or None without `accepted`. The reward is None if a quality is unknown."""
        solutions = self._solutions(_try(move))
        before = next((quality for n, quality in reversed(solutions) if n < number), None)
        if move["action"] == ACCEPTED:
            return before if self.accepted else None
        after = next((q for n, q in solutions if n > number and self.moves[n]["round"] == move["round"]), None)
        return None if before is None or after is None else max(after - before, 0.0)

    def _parts(self, whole: TryId) -> list[float | None]:
        """Return the quality of each part into which a try divided its task: 0 for an unsolved part, None for an
        unknown quality."""
        plan = next((m for m in self.moves if m["kind"] == "decompose" and _try(m) == whole), None)
        qualities: list[float | None] = []
        for n in range(1, 1 + len(plan["to"] if plan else ())):
            id = f"{whole[0]}.{n}".lstrip(".")
            # A part that its first agent could not solve was handed to another agent.
            tries = (self._solutions((id, again)) for again in (whole[1], (*whole[1], id)))
            solutions = [solution for solutions in tries for solution in solutions]
            qualities.append(solutions[-1][1] if solutions else 0.0)
        return qualities

    def _solutions(self, try_id: TryId) -> list[tuple[int, float | None]]:
        """Return the solutions of one try in order, each as the index of the move that made the solution, and its
        quality."""
        return [
            (n, self.qualities.get(n))
            for n, move in enumerate(self.moves)
            if _try(move) == try_id and move["kind"] in SOLUTIONS
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
