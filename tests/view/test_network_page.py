"""The page of an answer: a network's graph and its steps, or the steps of any other method; and the pools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, run_command
from scripts import Learned
from teams import SHOWING, divided, learned, team

import practicum
from practicum.agents.team import AgentTeam, make_team
from practicum.session.ask import Answered
from practicum.session.space import ask
from practicum.view.network import picture
from practicum.view.pages.attempt import answer_page


class Reader(HTMLParser):
    """What stands in a page: its tags, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += f"{data}\n"

    def of(self, kind: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if kind in (attrs.get("class") or "").split()]


def asked(run: Learned, query: str = "Message 9: say word9", **how: Any) -> Answered:
    parts = practicum.Parts(clients={"agent": client(team())})
    return practicum.run_sync(ask(query, run.folder, parts=parts, **how))


def page_of(answered: Answered, network: AgentTeam | None, folder: Path) -> Reader:
    return Reader(answer_page(answered, network, folder))


def moves_of(answered: Answered) -> Sequence[Any]:
    return answered.attempt.trace.data["moves"]


def test_the_page_shows_the_network_and_its_steps_in_order(tmp_path: Path) -> None:
    run = learned(tmp_path, divided(2))
    answered, network = asked(run), make_team(4, "complete")
    page = page_of(answered, network, run.folder)
    drawn = picture(network, moves_of(answered))
    # agent4 was given nothing.
    assert [(node.name, node.role, node.steps, len(node.kinds)) for node in drawn.nodes] == [
        ("agent1", "entry", 6, 4), ("agent2", "agent", 2, 1), ("agent3", "agent", 1, 1), ("agent4", "idle", 0, 0),
    ]  # fmt: skip
    assert [link.handed for link in drawn.links].count(True) == 2
    shown = {kind: len(page.of(kind)) for kind in ("entry", "agent", "idle", "handed", "link")}
    assert shown == {"entry": 1, "agent": 2, "idle": 1, "handed": 2, "link": 4}
    steps = re.findall(r"(agent\d)\n (\w+) (the whole|part \d)(, round \d)?", page.words)
    assert [(who, did, what) for who, did, what, _ in steps] == [
        ("agent1", "judged", "the whole"), ("agent1", "decomposed", "the whole"),
        ("agent2", "solved", "part 1"), ("agent1", "criticised", "part 1"), ("agent2", "solved", "part 1"),
        ("agent1", "criticised", "part 1"), ("agent3", "solved", "part 2"), ("agent1", "criticised", "part 2"),
        ("agent1", "aggregated", "the whole"),
    ]  # fmt: skip
    assert len(re.findall(r"experience e\d+, reward 0\.70", page.words)) == 2
    assert not page.of("reward")


def test_the_page_shows_rewards_if_the_query_was_learned_from(tmp_path: Path) -> None:
    run = learned(tmp_path, divided(2))
    page = page_of(asked(run, learn=True, target="word9"), make_team(4, "complete"), run.folder)
    assert len(page.of("reward")) == 9
    assert re.search(r"aggregated the whole task *\nreward 1\.00", page.words)
    # What was learned from is in the run, with its calls.
    assert "Prompts of the agent" in page.words


def test_the_page_of_another_method_shows_its_steps(tmp_path: Path) -> None:
    run = learned(tmp_path, 1, {"depth": 0})
    page = page_of(asked(run), None, run.folder)
    assert not [tag for tag, _ in page.tags if tag == "svg"]
    assert "word9" in page.words


# ---- by the commands


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.jsonl"
    path.write_text(
        json.dumps({"role": "agent", "match": r"(?s).*say (\w+)", "answer": r"\1"}) + "\n", encoding="utf-8"
    )
    return path


def network(tmp_path: Path, script: Path) -> Path:
    """A run on the disk that commands can go on with."""
    work = practicum.learn(
        make_tasks(3), out=tmp_path / "run", method="mael", settings={"depth": 0, "agents": 2},
        model=f"scripted:{script}",
    )  # fmt: skip
    practicum.run_sync(work)
    return tmp_path / "run"


def test_run_writes_the_page(tmp_path: Path, script: Path) -> None:
    run, page = network(tmp_path, script), tmp_path / "a" / "trace.html"
    done = run_command(("run", "--context", run, "--trace-out", page, "say hello"), tmp_path)
    assert done.code == 0
    assert f"trace written to {page}" in done.out
    assert "solved the whole" in Reader(page.read_text(encoding="utf-8")).words.replace("\n ", " ")


# ---- pools


def test_the_pool_of_one_agent_is_reported_by_kind(tmp_path: Path) -> None:
    run = learned(tmp_path, divided(2), SHOWING)
    plot = tmp_path / "pools.png"
    done = run_command(("space", "pools", run.folder, "--pool", "agent1", "--plot", plot), tmp_path)
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()]
    # Of each task a gain and two acceptances; the second task's three critiques were shown one of the first each.
    assert ["critique", "6", "0.60", "0.40", "0.50", "0.90", "3"] in rows
    assert ["all", "12"] in [row[:2] for row in rows]
    assert "agent2" not in done.out
    assert plot.read_bytes().startswith(b"\x89PNG")
