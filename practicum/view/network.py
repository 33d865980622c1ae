"""The picture of a network of agents: who is linked to whom, who made which steps, and where work was handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any, Literal

from practicum.agents.network import Kind
from practicum.agents.team import AgentTeam
from practicum.core.graph import distances

MoveData = Mapping[str, Any]
"""One step of an agent, as the network's act records it in the trace."""

VERBS: Mapping[Kind, str] = {
    "judge": "judged", "decompose": "decomposed", "solve": "solved",
    "critique": "criticised", "aggregate": "aggregated",
}  # fmt: skip

WIDTH, HEIGHT = 520, 360
"""The units in which the picture is laid out."""

_SIDES, _ABOVE, _BELOW = 58, 34, 44
"""The room that names and dots need around the agents on the edge."""


@dataclass(frozen=True)
class AgentNode:
    """An agent at a place of the picture: the number of its steps, and the kinds of them. `role` is "entry" for the
    agent that received the task, "idle" for one that made no step."""

    name: str
    x: float
    y: float
    steps: int
    kinds: tuple[Kind, ...]
    role: Literal["entry", "agent", "idle"]


@dataclass(frozen=True)
class AgentLink:
    """A link between two places; `handed` if work was handed over."""

    ends: tuple[float, float, float, float]
    handed: bool


@dataclass(frozen=True)
class Picture:
    """A network as it did one task."""

    nodes: tuple[AgentNode, ...]
    links: tuple[AgentLink, ...]


def picture(team: AgentTeam, moves: Sequence[MoveData]) -> Picture:
    """Lay out a network. The layout follows the lengths of paths, so it is the same each time."""
    places = _laid_out(team.links)
    across = _scaled((x for x, _ in places.values()), _SIDES, WIDTH - _SIDES)
    down = _scaled((y for _, y in places.values()), _ABOVE, HEIGHT - _BELOW)
    at = {name: (x, y) for name, x, y in zip(places, across, down, strict=True)}
    handed = {frozenset((move["agent"], receiver)) for move in moves for receiver in move["to"]}
    nodes = []
    for name in sorted(at):
        made = [move["kind"] for move in moves if move["agent"] == name]
        role: Literal["entry", "agent", "idle"] = "entry" if name == team.entry else "agent" if made else "idle"
        nodes.append(AgentNode(name, *at[name], len(made), tuple(kind for kind in VERBS if kind in made), role))
    links = [AgentLink((*at[one], *at[other]), frozenset((one, other)) in handed) for one, other in sorted(team.edges)]
    return Picture(tuple(nodes), tuple(links))


def _laid_out(links: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """A place for each node, so that the distance of two is about the length of the path between them: majorization of
    stress, from a circle (Gansner, Koren and North 2004)."""
    import numpy as np

    paths = [distances(name, links) for name in links]
    wanted = np.array([[path[name] for name in links] for path in paths], dtype=float)
    apart_from_itself = np.eye(len(links))
    weights = (1 - apart_from_itself) / (wanted + apart_from_itself) ** 2
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    angles = [2 * pi * n / len(links) for n in range(len(links))]
    places = np.array([(cos(angle), sin(angle)) for angle in angles])
    for _ in range(_ROUNDS):
        away = np.linalg.norm(places[:, None] - places[None], axis=2)
        pull = weights * wanted / np.maximum(away, 1e-9)
        places = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ places
    return {name: (float(x), float(y)) for name, (x, y) in zip(links, places, strict=True)}


_ROUNDS = 300
"""Rounds of the layout, after which nothing moves that can be seen."""


def _scaled(values: Iterable[float], low: float, high: float) -> list[float]:
    """Values moved and stretched so that they lie between two others; equal ones lie in the middle."""
    given = list(values)
    least, room = min(given), max(given) - min(given)
    if room < 1e-9:
        return [(low + high) / 2] * len(given)
    return [round(low + (value - least) / room * (high - low), 1) for value in given]
