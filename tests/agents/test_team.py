"""Teams: by their shape, from files, and refusals of invalid teams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.agents.team import SHAPES, load_team, make_team
from practicum.core.graph import distances


@given(st.integers(1, 20), st.sampled_from(SHAPES), st.integers(0, 5))
def test_every_shape_is_connected_and_the_same_for_the_same_seed(size: int, shape: str, seed: int) -> None:
    team = make_team(size, shape, seed)
    assert len(distances("agent1", team.links)) == size
    assert [member.name for member in team.members] == [f"agent{n}" for n in range(1, size + 1)]
    assert team == make_team(size, shape, seed)


def test_each_shape_has_its_links() -> None:
    links = {shape: len(make_team(5, shape, 0).edges) for shape in ("complete", "ring", "star", "chain")}
    assert links == {"complete": 10, "ring": 5, "star": 4, "chain": 4}
    ends = [len(make_team(5, shape, 0).links["agent1"]) for shape in ("complete", "ring", "star", "chain")]
    assert ends == [4, 2, 4, 1]


TEAM = {
    "agents": [{"name": "lead", "role": "You plan."}, {"name": "coder", "model": "local"}, {"name": "tester"}],
    "links": [["lead", "coder"], ["tester", "lead"]],
}


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


GRAPHML = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="role" attr.type="string" />
<key id="d1" for="node" attr.name="model" attr.type="string" />
<graph edgedefault="undirected">
<node id="lead"><data key="d0">You plan.</data></node>
<node id="coder"><data key="d1">local</data></node>
<node id="tester" />
<edge source="coder" target="lead" /><edge source="lead" target="tester" />
</graph></graphml>
"""
"""A file as networkx 3.6 writes it."""


def test_graphml_and_node_link_data_give_the_same_team(tmp_path: Path) -> None:
    team = load_team(written(tmp_path / "team.json", TEAM))
    nodes = [{"id": member.name, "role": member.role, "model": member.model} for member in team.members]
    edges = sorted(team.edges)
    (tmp_path / "team.graphml").write_text(GRAPHML, encoding="utf-8")
    assert load_team(tmp_path / "team.graphml") == team
    # Node-link data as networkx 3.6 writes it.
    links = [{"source": a, "target": b} for a, b in edges]
    data = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
    assert load_team(written(tmp_path / "links.json", data)) == team


INVALID: tuple[Any, ...] = (
    {"agents": []}, {"agents": [{"name": "a"}, {"name": "a"}]}, {"agents": [{"name": "a"}, {"name": "b"}]},
    {"agents": [{"name": "a"}], "links": [["a", "b"]]}, {"agents": [{"name": "a", "job": "cook"}]},
)  # fmt: skip


def test_an_invalid_team_is_refused_with_its_file(tmp_path: Path) -> None:
    for team in INVALID:
        path = written(tmp_path / "team.json", team)
        with refused("team.invalid") as error:
            load_team(path)
        assert str(path) in str(error.value)
    path = tmp_path / "team.graphml"
    path.write_text("<graphml></graphml>")
    with refused("team.invalid"):
        load_team(path)
