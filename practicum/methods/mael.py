"""MAEL: a network of agents that keeps the steps of its attempts as experience and consults it on later tasks (Li et
al., sections 2.1 to 2.3; METHODS, section 6).

Deviations: each part is criticised as soon as it is solved, not when all are; the reward of a critique that accepts a
solution is the quality of that solution, since nothing was improved; if there are more parts than neighbours, some
solve several. docs/methods/mael.md lists all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar

from pydantic import Field, field_validator

from practicum.agents.team import SHAPES, Team, load_team, make_team
from practicum.blocks.accept.always import always
from practicum.blocks.act.network import MAX_PARTS, Experience, Level, Strategy, by_network, of_each_step, seat
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.rewards import rewarded
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import pooled
from practicum.core.clashes import Clash, needs
from practicum.engine.loop import Method
from practicum.methods.settings import Batched, RetrievalSettings


class Settings(Batched, RetrievalSettings):
    TRACES: ClassVar = None

    agents: int = Field(default=4, ge=1, le=64)
    """The number of agents in the network."""
    topology: str | dict[str, Any] = "complete"
    """Their links: complete, ring, star, chain, random (by the seed), or a JSON or GraphML file of the team."""
    rounds: int = Field(default=2, ge=0)
    """The most rounds of critique on a part (paper: 2, 3 for hard sets)."""
    depth: int = Field(default=1, ge=0)
    """Levels of decomposition (paper: 1, 2 for hard sets); 0: one agent, alone."""
    experience: Strategy = "step"
    """step: retrieve experience for every step; task: one past trace for all steps; none."""
    while_learning: bool = False
    """Whether attempts to learn from are shown experience too (paper: only in inference); a stream's always are."""
    accepted: bool = True
    """Whether a critique that accepts a solution is kept, with the quality of this solution as its reward."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """The weight of similarity in retrieval; the rest is the weight of the reward."""
    similarity: Level = "high"
    """high: prefer similar experience; low: prefer dissimilar experience, as in the paper's table 4."""
    reward: Level = "high"
    """high: prefer experience with a high reward; low: with a low one, as in the paper's table 4."""
    follow_from: float = Field(default=0.5, ge=0, le=1)
    """The reward from which experience is shown as an example to follow; below it, as one to avoid."""
    warmth: float = Field(default=0.2, ge=0)
    """The temperature of the agents."""

    CLASHES: ClassVar = (
        needs("alpha", "similarity", "reward", "follow_from", "while_learning", experience=("task", "step")),
        # Whichever is newer stays.
        Clash(
            lambda s: s.given("agents") and s.topology not in SHAPES,
            "a team from a file has its own number of agents: leave out agents", ("agents", "topology"),
        ),
    )  # fmt: skip

    @classmethod
    def outside(cls, values: Mapping[str, Any]) -> Iterator[str]:
        """The file of a team, and the models of its agents."""
        topology = values.get("topology", "complete")
        if isinstance(topology, Mapping):
            yield from (f"send prompts to {m.model} ({m.name})" for m in load_team(topology).members if m.model)
        elif topology not in SHAPES:
            yield f"read {topology}"

    @field_validator("topology")
    @classmethod
    def _read(cls, topology: str | dict[str, Any]) -> str | dict[str, Any]:
        """Replace the name of a file by its content, so that a run needs nothing outside of its folder."""
        return topology if topology in SHAPES else load_team(topology).as_json()


def method(s: Settings) -> Method:
    """Attempt as a network, reward each step, keep it in the pool of its agent."""
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
        reflect=rewarded(s.accepted),
        update=pooled,
        accept=always,
        roles=("judge",),
        act_calls=_most_calls(s, len(members)),
        models={seat(m.name): m.model for m in members if m.model},
        costs="the network's calls, and a judge's for each part",
    )


def team_of(s: Settings, seed: int) -> Team:
    """The network of these settings; the seed of the run makes the links of a random one."""
    return make_team(s.agents, s.topology, seed) if isinstance(s.topology, str) else load_team(s.topology)


def _most_calls(s: Settings, agents: int) -> int:
    """The most model calls of an attempt: every level divides into as many parts as a small model may name, and each
    part is handed back once and refined each round. A plan with more parts makes more calls."""
    most = 1
    for _ in range(min(s.depth, agents - 1)):
        most = 3 + MAX_PARTS * (min(2, agents - 1) * most + 2 * s.rounds)
    return most
