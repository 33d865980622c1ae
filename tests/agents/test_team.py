"""Teams: by their shape, from files, and what is not a valid team."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.agents.team import SHAPES, AgentTeam, load_team, make_team
from practicum.core.graph import distances


def links(team: AgentTeam) -> set[tuple[str, str]]:
    return {*team.edges}


@given(st.integers(1, 20), st.sampled_from(SHAPES), st.integers(0, 5))
def test_every_shape_is_connected_and_the_same_for_the_same_seed(size: int, shape: str, seed: int) -> None:
    team = make_team(size, shape, seed)
    assert len(distances("agent1", team.links)) == size
    assert [member.name for member in team.members] == [f"agent{n}" for n in range(1, size + 1)]
    assert team == make_team(size, shape, seed)


TEAM = {
    "agents": [{"name": "lead", "role": "You plan."}, {"name": "coder", "model": "local"}, {"name": "tester"}],
    "links": [["lead", "coder"], ["tester", "lead"]],
}


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def graphml(path: Path, nodes: Sequence[Mapping[str, str]], edges: Sequence[tuple[str, str]]) -> Path:
    """A file as networkx 3.6 writes it. A node has an `id` and attributes."""
    keys = {"role": "d0", "model": "d1", "name": "d2"}
    data = "".join(f'<key id="{id}" for="node" attr.name="{n}" attr.type="string" />\n' for n, id in keys.items())
    drawn = "".join(
        f'<node id="{node["id"]}">'
        + "".join(f'<data key="{keys[name]}">{value}</data>' for name, value in node.items() if name != "id")
        + "</node>\n"
        for node in nodes
    )
    drawn += "".join(f'<edge source="{a}" target="{b}" />\n' for a, b in edges)
    path.write_text(
        "<?xml version='1.0' encoding='utf-8'?>\n"
        f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{data}<graph edgedefault="undirected">{drawn}</graph>'
        "</graphml>",
        encoding="utf-8",
    )
    return path


def node_links(nodes: Sequence[Mapping[str, str]], edges: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Node-link data as networkx 3.6 makes it."""
    links = [{"source": a, "target": b} for a, b in edges]
    return {"directed": False, "multigraph": False, "graph": {}, "nodes": [*nodes], "links": links}


def test_graphml_and_node_link_data_give_the_same_team(tmp_path: Path) -> None:
    team = load_team(written(tmp_path / "team.json", TEAM))
    nodes = [{"id": member.name, "role": member.role, "model": member.model} for member in team.members]
    edges = sorted(team.edges)
    assert load_team(graphml(tmp_path / "team.graphml", nodes, edges)) == team
    assert load_team(written(tmp_path / "links.json", node_links(nodes, edges))) == team


@pytest.mark.parametrize(
    ("team", "code"),
    [
        ({"agents": []}, "team.invalid"),
        ({"links": []}, "team.invalid"),
        ([], "team.invalid"),
        ({"agents": [{"name": "a"}, {"name": "a"}]}, "team.invalid"),
        ({"agents": [{"name": "a"}, {"name": "b"}]}, "team.invalid"),
        ({"agents": [{"name": "a"}], "links": [["a", "b"]]}, "team.invalid"),
        ({"agents": [{"name": "a", "job": "cook"}]}, "team.invalid"),
        ({"agents": [{"name": "a", "role": 3}]}, "team.invalid"),
        ({"agents": [{"name": " "}]}, "team.invalid"),
        ({"agents": [{"role": "cook"}]}, "team.invalid"),
        ({"nodes": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "team.invalid"),
        ({"agents": ["a"]}, "team.invalid"),
        ({"agents": [{"name": "a"}], "links": [["a"]]}, "team.invalid"),
        ({"agents": 3}, "team.invalid"),
    ],
    ids=str,
)
def test_an_invalid_team_is_refused_with_file_and_reason(tmp_path: Path, team: Any, code: str) -> None:
    path = written(tmp_path / "team.json", team)
    with refused(code) as error:
        load_team(path)
    assert str(path) in str(error.value)


def test_unreadable_files_and_unknown_shapes_are_refused(tmp_path: Path) -> None:
    with refused("file.unreadable"):
        load_team(tmp_path / "none.json")
    (tmp_path / "bad.graphml").write_text("<graphml")
    with refused("team.invalid"):
        load_team(tmp_path / "bad.graphml")
    (tmp_path / "empty.graphml").write_text("<graphml></graphml>")
    with refused("team.invalid"):
        load_team(tmp_path / "empty.graphml")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with refused("team.invalid"):
        load_team(tmp_path / "deep.json")
    (tmp_path / "bad.json").write_text("{")
    with refused("team.invalid"):
        load_team(tmp_path / "bad.json")
    with refused("team.invalid"):
        make_team(4, "cube")
