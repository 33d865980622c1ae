"""Teams: undirected graphs of named agents, each with a role and optionally a separate model (MAEL, section 2.1). A
team is made from a shape, or read from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from practicum.core.errors import UsageError
from practicum.core.files import read_text
from practicum.core.graph import components, distances
from practicum.core.visible import lines
from practicum.core.words import folded

SHAPES = ("complete", "ring", "star", "chain", "random")


@dataclass(frozen=True, slots=True)
class TeamMember:
    """Agent of a team. `role`: description of the agent's role, for the agent's prompts. `model`: name of the agent's
    model, or empty for the model of the team."""

    name: str
    role: str = ""
    model: str = ""


@dataclass(frozen=True)
class AgentTeam:
    """Members of a team. `edges`: pairs of names of agents that may hand each other work. Raise UsageError if the
    team has no members, if two names only differ in case or spaces, if an edge names an unknown agent, or if the graph
    is not connected."""

    members: tuple[TeamMember, ...]
    edges: frozenset[tuple[str, str]]

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if not names:
            raise UsageError("team.invalid", "the team has no agents")
        by_folded_name: dict[str, str] = {}
        for name in names:
            if name in by_folded_name.values():
                raise UsageError("team.invalid", f"two agents of the team are called {name!r}")
            if (other := by_folded_name.setdefault(folded(name), name)) != name:
                raise UsageError(
                    "team.invalid",
                    f"the agents {other!r} and {name!r} differ only in case or spaces: rename one of them",
                )
        for one, other in self.edges:
            if missing := {one, other} - {*names}:
                raise UsageError(
                    "team.invalid", f"the team has a link to {min(missing)!r}, which is not an agent of the team"
                )
        parts = sorted(map(sorted, components(self.links)))
        if len(parts) > 1:
            raise UsageError(
                "team.invalid", f"the team is not connected: {', '.join(parts[0])} cannot reach {', '.join(parts[1])}"
            )

    @cached_property
    def links(self) -> dict[str, list[str]]:
        """Agent → sorted names of the agents that it may hand work to."""
        links: dict[str, list[str]] = {member.name: [] for member in self.members}
        for one, other in self.edges:
            links[one].append(other)
            links[other].append(one)
        return {name: sorted(others) for name, others in links.items()}

    @cached_property
    def entry(self) -> str:
        """The agent that gets each task first: the agent with the highest closeness centrality, that is the smallest
        sum of distances to the other agents. Of agents with equal sums, the first by name is taken."""
        return min(self.links, key=lambda name: (sum(distances(name, self.links).values()), name))

    def neighbours(self, name: str) -> list[str]:
        """Return the sorted names of the agents that an agent may hand work to."""
        return self.links[name]

    def member(self, name: str) -> TeamMember:
        """Return the agent with this name."""
        return next(member for member in self.members if member.name == name)

    def as_json(self) -> dict[str, Any]:
        """Return the team as the JSON object that `load_team` reads. Equal teams have equal objects."""
        return {"agents": [asdict(member) for member in self.members], "links": [list(e) for e in sorted(self.edges)]}


def make_team(size: int, shape: str, seed: int = 0) -> AgentTeam:
    """Make a team of `size` equal agents, linked in a shape of `SHAPES`. A random team is connected, and has about half
    the links of a complete team."""
    names = [f"agent{n}" for n in range(1, size + 1)]
    chain = [(n - 1, n) for n in range(1, size)]
    match shape:
        case "complete":
            edges = [*combinations(range(size), 2)]
        case "ring":
            edges = [*chain, *([(0, size - 1)] if size > 2 else [])]
        case "star":
            edges = [(0, n) for n in range(1, size)]
        case "chain":
            edges = chain
        case "random":
            # A random tree, which is connected, plus each other link with probability 1/2.
            rng = random.Random(seed)
            edges = [(rng.randrange(n), n) for n in range(1, size)]
            edges += [(a, b) for b in range(size) for a in range(b) if rng.random() < 0.5]
        case _:
            raise UsageError("team.invalid", f"unknown topology {shape!r}: pass one of {', '.join(SHAPES)}, or a file")
    return AgentTeam(tuple(map(TeamMember, names)), frozenset((names[a], names[b]) for a, b in edges))


def load_team(source: Path | str | Mapping[str, Any]) -> AgentTeam:
    """Read a team from a file, or from the JSON object of such a file. A file is GraphML or JSON: {"agents": [{"name",
    "role"?, "model"?}], "links": [[name, name]]}, or networkx's node-link data. Raise UsageError with the file's name
    and the problem if the team is invalid."""
    name = "the topology" if isinstance(source, Mapping) else source
    try:
        if isinstance(source, Mapping):
            return _from_json(source)
        path = Path(source)
        graphml = path.suffix.lower() in (".graphml", ".xml")
        return _from_json(_read_graphml(path) if graphml else json.loads(read_text(path)))
    except OSError as error:
        raise UsageError("file.unreadable", f"cannot read the team {name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError) as error:
        raise UsageError("team.invalid", f"{name} is not a valid team: {type(error).__name__}: {error}") from error
    except UsageError as error:
        raise UsageError("team.invalid", f"{name}: {error}") from error


def _read_graphml(path: Path) -> dict[str, Any]:
    """Read the first graph of a GraphML file as node-link data. Attributes are texts."""
    root = ElementTree.parse(path).getroot()
    graph = root.find("{*}graph")
    if graph is None:
        raise ValueError("the file has no graph")
    names = {key.get("id"): key.get("attr.name") for key in root.findall("{*}key")}
    nodes = [
        {**{str(names.get(d.get("key"))): d.text or "" for d in node.findall("{*}data")}, "id": node.attrib["id"]}
        for node in graph.findall("{*}node")
    ]
    links = [{"source": e.attrib["source"], "target": e.attrib["target"]} for e in graph.findall("{*}edge")]
    return {"nodes": nodes, "links": links}


def _from_json(value: Any) -> AgentTeam:
    if not isinstance(value, Mapping):
        raise ValueError("a team must be an object with 'agents' and 'links'")
    if "nodes" in value:
        value = _named(value["nodes"], value.get("links", value.get("edges", [])))
    if "agents" not in value:
        raise ValueError(f"the object has no 'agents' (its keys are: {', '.join(value) or 'none'})")
    members = []
    for agent in value["agents"]:
        if not isinstance(agent, Mapping):
            raise ValueError(f"{agent!r} is not an agent: write an object with 'name'")
        if unknown := {*agent} - {"name", "role", "model"}:
            raise ValueError(f"agent {agent.get('name')!r} has an unknown field {min(unknown)!r}")
        if not all(isinstance(value, str) for value in agent.values()) or not _is_name(agent["name"]):
            raise ValueError(
                f"agent {agent.get('name')!r}: name, role and model must be texts, and the name must be one line"
            )
        members.append(TeamMember(**agent))
    links = [(str(a), str(b)) for a, b in value.get("links", [])]
    return AgentTeam(tuple(members), frozenset((min(a, b), max(a, b)) for a, b in links if a != b))


def _is_name(name: str) -> bool:
    """Return whether the name of an agent is valid: one line, because the name of the agent's pool of experiences
    contains the agent's name."""
    return bool(name.strip()) and len(lines(name)) == 1


def _named(nodes: Iterable[Mapping[str, Any]], links: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Convert node-link data to agents and links by name. The name of an agent is the field `name` of its node; without
    this field, the id of its node."""
    agents: dict[str, dict[str, Any]] = {}
    for node in nodes:
        id = str(node["id"])
        if id in agents:
            raise ValueError(f"two nodes have the id {id!r}")
        agents[id] = {"name": id, **{field: value for field, value in node.items() if field != "id"}}
    names = {id: agent["name"] for id, agent in agents.items()}
    ends = [(str(link["source"]), str(link["target"])) for link in links]
    return {"agents": [*agents.values()], "links": [(names.get(a, a), names.get(b, b)) for a, b in ends]}
