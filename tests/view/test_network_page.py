"""The page of an answer: the graph of a network and its steps, or the steps of another method."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers import client
from scripts import Learned
from sites import Reader
from teams import divided, learned, team

import practicum
from practicum.agents.team import AgentTeam, make_team
from practicum.session.ask import Answered
from practicum.session.space import ask
from practicum.view.network import picture
from practicum.view.pages.attempt import answer_page


def asked(run: Learned, **how: Any) -> Answered:
    parts = practicum.Parts(clients={"agent": client(team())})
    return practicum.run_sync(ask("Message 9: say word9", run.folder, parts=parts, **how))


def page_of(run: Learned, answered: Answered, network: AgentTeam | None) -> Reader:
    return Reader(answer_page(answered, network, run.folder))


def count(page: Reader, kind: str) -> int:
    return sum(kind in (attrs.get("class") or "").split() for _, attrs in page.tags)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return learned(tmp_path_factory.mktemp("network"), divided(2))


def test_the_page_shows_the_network_and_its_steps_in_order(run: Learned) -> None:
    answered, network = asked(run), make_team(4, "complete")
    page = page_of(run, answered, network)
    drawn = picture(network, answered.attempt.trace.data["moves"])
    # agent4 received no work.
    assert [(node.name, node.role, node.steps, len(node.kinds)) for node in drawn.nodes] == [
        ("agent1", "entry", 6, 4), ("agent2", "agent", 2, 1), ("agent3", "agent", 1, 1), ("agent4", "idle", 0, 0),
    ]  # fmt: skip
    assert [link.handed for link in drawn.links].count(True) == 2
    shown = {kind: count(page, kind) for kind in ("entry", "agent", "idle", "handed", "link", "reward")}
    assert shown == {"entry": 1, "agent": 2, "idle": 1, "handed": 2, "link": 4, "reward": 0}
    steps = re.findall(r"(agent\d) (\w+) (the whole|part \d)", page.words)
    assert steps == [
        ("agent1", "judged", "the whole"), ("agent1", "decomposed", "the whole"),
        ("agent2", "solved", "part 1"), ("agent1", "criticised", "part 1"), ("agent2", "solved", "part 1"),
        ("agent1", "criticised", "part 1"), ("agent3", "solved", "part 2"), ("agent1", "criticised", "part 2"),
        ("agent1", "aggregated", "the whole"),
    ]  # fmt: skip
    assert len(re.findall(r"experience e\d+, reward 0\.70", page.words)) == 2
    other = page_of(run, answered, None)
    assert not [tag for tag, _ in other.tags if tag == "svg"]
    assert "word9" in other.words


def test_the_page_shows_rewards_and_prompts_if_the_query_was_learned_from(run: Learned) -> None:
    page = page_of(run, asked(run, learn=True, target="word9"), make_team(4, "complete"))
    assert count(page, "reward") == 9
    assert re.search(r"aggregated the whole task reward 1\.00", page.words)
    assert "Prompts of the agent" in page.words
