"""MAEL: a network of agents that keeps the steps of its attempts as experience and consults it on later tasks (Li et
al., sections 2.1 to 2.3; METHODS, section 6).

Deviations: parts are criticised as soon as they are solved, not when all are; a critique that found a solution adequate
changed nothing, so it has no reward and makes no experience; more parts than neighbours are shared out among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from practicum.agents.network import MAX_PARTS
from practicum.agents.team import SHAPES, Team, load_team, make_team
from practicum.blocks.accept.always import always
from practicum.blocks.act.network import Experience, Level, Retrieval, by_network, seat
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.rewards import rewarded
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import pooled
from practicum.engine.loop import Method
from practicum.methods.settings import Batched

CHOOSING = ("alpha", "similarity", "reward")
"""Settings of how experience is chosen."""


class Settings(Batched):
    """Settings of MAEL."""

    TRACES: ClassVar = None

    agents: int = Field(default=4, ge=1, le=64)
    """Agents of the network."""
    topology: str | dict[str, Any] = "complete"
    """How they are linked: complete, ring, star, chain, random (by the seed), or a JSON or GraphML file of the team."""
    rounds: int = Field(default=2, ge=0)
    """Most rounds of critique on a part (paper: 2, 3 for hard sets)."""
    depth: int = Field(default=1, ge=0)
    """Levels of decomposition (paper: 1, 2 for hard sets); 0: one agent, alone."""
    retrieval: Retrieval = "step"
    """step: experience for every step anew; task: one past trace throughout; none."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """Weight of similarity against reward in retrieval."""
    similarity: Level = "high"
    """high: like experience is preferred; low: unlike, as in the paper's table 3."""
    reward: Level = "high"
    """high: good experience is preferred; low: bad, as in the paper's table 3."""
    warmth: float = Field(default=0.2, ge=0)
    """Temperature of the agents."""

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Where nothing is retrieved nothing is chosen. A team from a file and a number of agents have no room beside
        each other: the one that was put over the other stays."""
        chosen = CHOOSING if values.get("retrieval") == "none" else ()
        both = "agents" in values and values.get("topology", "complete") not in SHAPES
        return (*chosen, "agents", "topology") if both else chosen

    @field_validator("topology")
    @classmethod
    def _read(cls, topology: str | dict[str, Any]) -> str | dict[str, Any]:
        """What a file holds takes the place of its name, so that a run needs nothing outside of its folder."""
        return topology if topology in SHAPES else load_team(topology).as_json()

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        given = self.model_fields_set
        if isinstance(self.topology, dict) and "agents" in given:
            raise ValueError("a topology from a file says how many agents there are: leave out agents")
        if self.retrieval == "none" and (unused := given & {*CHOOSING}):
            raise ValueError(f"{', '.join(sorted(unused))} needs retrieval=task or step")
        return self


def method(settings: Settings) -> Method:
    """Attempt as a network, reward each step, keep it in its agent's pool."""
    s = settings
    team = cache(partial(team_of, s))
    members = team(0).members
    experience = Experience(s.retrieval, s.alpha, s.similarity, s.reward)
    act = by_network(team, experience, rounds=s.rounds, depth=s.depth, warmth=s.warmth)
    return Method(
        name="mael",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=rewarded(),
        update=pooled(),
        accept=always,
        roles=("judge",),
        act_calls=_most_calls(s, len(members)),
        models={seat(m.name): m.model for m in members if m.model},
        costs="the network's calls, and a judge's for each part",
    )


def team_of(s: Settings, seed: int) -> Team:
    """The network these settings name, in a run of this seed, from which the links of a random one come."""
    return make_team(s.agents, s.topology, seed) if isinstance(s.topology, str) else load_team(s.topology)


def _most_calls(s: Settings, agents: int) -> int:
    """The most model calls of an attempt: divided at every level, each part handed back once and refined each round."""
    most = 1
    for _ in range(min(s.depth, agents - 1)):
        most = 3 + MAX_PARTS * (min(2, agents - 1) * most + 2 * s.rounds)
    return most
