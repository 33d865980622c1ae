"""The picture of a network of agents: who is linked to whom, who made which steps, and where work was handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from practicum.agents.network import Kind
from practicum.agents.team import Team

MoveData = Mapping[str, Any]
"""One step of an agent, as the network's act records it in the trace."""

VERBS: Mapping[Kind, str] = {
    "judge": "judged", "decompose": "decomposed", "solve": "solved",
    "critique": "criticised", "aggregate": "aggregated",
}  # fmt: skip

WIDTH, HEIGHT = 520, 360
"""The units in which the picture is laid out."""

RADIUS = 17

_SIDES, _ABOVE, _BELOW = 58, 34, 44
"""The room that names and dots need around the agents on the edge."""


@dataclass(frozen=True)
class Node:
    """An agent at a place of the picture: the number of its steps, and the kinds of them. `role` is "entry" for the
    agent that received the task, "idle" for one that made no step."""

    name: str
    x: float
    y: float
    steps: int
    kinds: tuple[Kind, ...]
    role: Literal["entry", "agent", "idle"]


@dataclass(frozen=True)
class Link:
    """A link between two places; `handed` if work was handed over."""

    ends: tuple[float, float, float, float]
    handed: bool


@dataclass(frozen=True)
class Picture:
    """A network as it did one task."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


def picture(team: Team, moves: Sequence[MoveData]) -> Picture:
    """Lay out a network. The layout follows the lengths of paths (Kamada and Kawai), so it is the same each time."""
    import networkx as nx

    places = nx.kamada_kawai_layout(team.graph) if len(team.members) > 1 else {team.entry: (0.0, 0.0)}
    across = _scaled((x for x, _ in places.values()), _SIDES, WIDTH - _SIDES)
    down = _scaled((y for _, y in places.values()), _ABOVE, HEIGHT - _BELOW)
    at = {name: (x, y) for name, x, y in zip(places, across, down, strict=True)}
    handed = {frozenset((move["agent"], receiver)) for move in moves for receiver in move["to"]}
    nodes = []
    for name in sorted(at):
        made = [move["kind"] for move in moves if move["agent"] == name]
        role: Literal["entry", "agent", "idle"] = "entry" if name == team.entry else "agent" if made else "idle"
        nodes.append(Node(name, *at[name], len(made), tuple(kind for kind in VERBS if kind in made), role))
    links = [Link((*at[one], *at[other]), frozenset((one, other)) in handed) for one, other in sorted(team.edges)]
    return Picture(tuple(nodes), tuple(links))


def _scaled(values: Iterable[float], low: float, high: float) -> list[float]:
    """Values moved and stretched so that they lie between two others; equal ones lie in the middle."""
    given = list(values)
    least, room = min(given), max(given) - min(given)
    if room < 1e-9:
        return [(low + high) / 2] * len(given)
    return [round(low + (value - least) / room * (high - low), 1) for value in given]
