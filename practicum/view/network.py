"""Picture of a network of agents: its links, the steps of each agent, and the links over which an agent handed work
to another agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any, Literal

from practicum.agents.network import Kind
from practicum.agents.team import AgentTeam
from practicum.core.graph import distances

MoveData = Mapping[str, Any]
"""Step of an agent, as recorded in the trace of the attempt."""

VERBS: Mapping[Kind, str] = {
    "judge": "judged", "decompose": "decomposed", "solve": "solved",
    "critique": "criticised", "aggregate": "aggregated",
}  # fmt: skip

WIDTH, HEIGHT = 520, 360
"""Size of the picture, in SVG units."""

_SIDES, _ABOVE, _BELOW = 58, 34, 44
"""Margins of the picture, for the names and dots of the outermost agents."""


@dataclass(frozen=True)
class AgentNode:
    """An agent in the picture: its position, and the number and kinds of its steps. `role`: "entry" for the agent that
    received the task, "idle" for an agent without a step, else "agent"."""

    name: str
    x: float
    y: float
    steps: int
    kinds: tuple[Kind, ...]
    role: Literal["entry", "agent", "idle"]


@dataclass(frozen=True)
class AgentLink:
    """A link between two agents. `ends`: x1, y1, x2, y2. `handed`: whether one of the two agents handed work to
    the other agent."""

    ends: tuple[float, float, float, float]
    handed: bool


@dataclass(frozen=True)
class Picture:
    """Picture of a network and its work on one task."""

    nodes: tuple[AgentNode, ...]
    links: tuple[AgentLink, ...]


def picture(team: AgentTeam, moves: Sequence[MoveData]) -> Picture:
    """Draw a network and the steps of its agents. The distance between two agents in the picture follows the length of
    the path between these agents in the network. The layout is deterministic."""
    places = _laid_out(team.links)
    across = _scaled((x for x, _ in places.values()), _SIDES, WIDTH - _SIDES)
    down = _scaled((y for _, y in places.values()), _ABOVE, HEIGHT - _BELOW)
    at = {name: (x, y) for name, x, y in zip(places, across, down, strict=True)}
    handed_over = {frozenset((move["agent"], receiver)) for move in moves for receiver in move["to"]}
    nodes = []
    for name in sorted(at):
        kinds = [move["kind"] for move in moves if move["agent"] == name]
        role: Literal["entry", "agent", "idle"] = "entry" if name == team.entry else "agent" if kinds else "idle"
        nodes.append(AgentNode(name, *at[name], len(kinds), tuple(kind for kind in VERBS if kind in kinds), role))
    links = [
        AgentLink((*at[one], *at[other]), frozenset((one, other)) in handed_over) for one, other in sorted(team.edges)
    ]
    return Picture(tuple(nodes), tuple(links))


def _laid_out(links: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """Return a position for each node, such that distances approximate path lengths. Uses stress majorization, starting
    from a circle (Gansner, Koren and North 2004)."""
    import numpy as np

    paths = [distances(name, links) for name in links]
    lengths = np.array([[path[name] for name in links] for path in paths], dtype=float)
    apart_from_itself = np.eye(len(links))
    weights = (1 - apart_from_itself) / (lengths + apart_from_itself) ** 2
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    angles = [2 * pi * n / len(links) for n in range(len(links))]
    places = np.array([(cos(angle), sin(angle)) for angle in angles])
    for _ in range(_ROUNDS):
        away = np.linalg.norm(places[:, None] - places[None], axis=2)
        pull = weights * lengths / np.maximum(away, 1e-9)
        places = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ places
    return {name: (float(x), float(y)) for name, (x, y) in zip(links, places, strict=True)}


_ROUNDS = 300
"""Number of iterations of the layout. Further iterations would not visibly move an agent."""


def _scaled(values: Iterable[float], low: float, high: float) -> list[float]:
    """Scale values linearly to the range from `low` to `high`; equal values go to the middle."""
    numbers = list(values)
    smallest, spread = min(numbers), max(numbers) - min(numbers)
    if spread < 1e-9:
        return [(low + high) / 2] * len(numbers)
    return [round(low + (value - smallest) / spread * (high - low), 1) for value in numbers]
