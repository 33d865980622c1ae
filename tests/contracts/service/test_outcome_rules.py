"""Reports that come late or again (docs/serve/outcomes.md): the same rules at every face, on the same stored
interaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from service_kit import RIGHT, Agent, Client, Service, over_http, run_json, until
from service_model import UNKNOWN

import practicum

Report = Callable[[str, "str | None", dict[str, Any]], dict[str, Any]]
"""Reports on an interaction for a user (None: the operator); returns the answer."""


@dataclass(frozen=True)
class Step:
    """A report, and the status and the score of its answer."""

    outcome: dict[str, Any]
    status: str
    score: float | None
    user: str | None = None


CASES: dict[str, list[Step]] = {
    "twice": [Step({"score": 0.0}, "kept", 0.0), Step({"score": 0.0}, "repeated", 0.0)],
    "a second score": [Step({"score": 0.0}, "kept", 0.0), Step({"score": 1.0}, "changed", 1.0)],
    "a right answer that it had": [Step({"target": UNKNOWN}, "kept", 1.0)],
    "a right answer after a score of 1": [Step({"score": 1.0}, "kept", 1.0), Step({"target": RIGHT}, "changed", 0.0)],
    "words": [Step({"comment": "too long"}, "kept", 0.0)],
    "words after a score of 1": [Step({"score": 1.0}, "kept", 1.0), Step({"comment": "good"}, "changed", 1.0)],
    "a user after the operator": [
        Step({"score": 0.0}, "kept", 0.0), Step({"score": 1.0}, "outranked", 0.0, "anna"),
        Step({"comment": "no"}, "changed", 0.0, "anna"), Step({"score": 1.0}, "changed", 1.0),
    ],
    "the operator after a user": [Step({"score": 1.0}, "kept", 1.0, "anna"), Step({"score": 0.0}, "changed", 0.0)],
}  # fmt: skip


def by_http(space: Client, service: Service, stack: ExitStack) -> Report:
    return lambda id, user, outcome: (space.as_user(user) if user else space).report(id, **outcome)


def by_mcp(space: Client, service: Service, stack: ExitStack) -> Report:
    agents = dict[str | None, Agent]()

    def report(id: str, user: str | None, outcome: dict[str, Any]) -> dict[str, Any]:
        if user not in agents:
            agents[user] = stack.enter_context(over_http(space.as_user(user) if user else space))
        return dict(agents[user].do("report", interaction=id, **outcome).data)

    return report


def by_command(space: Client, service: Service, stack: ExitStack) -> Report:
    def report(id: str, user: str | None, outcome: dict[str, Any]) -> dict[str, Any]:
        options = [word for name, value in outcome.items() for word in (f"--{name}", value)]
        return dict(run_json("space", "report", space.url, id, *options, "--space", space.space))

    return report


def by_program(space: Client, service: Service, stack: ExitStack) -> Report:
    """A program that opens the store of the running service."""

    async def reported(id: str, user: str | None, outcome: dict[str, Any]) -> dict[str, Any]:
        async with practicum.open(service.store / "spaces" / space.space) as opened:
            result = await opened.report(id, user=user, **outcome)
        return {"status": result.status, "score": result.score, "correction": result.correction}

    return lambda id, user, outcome: practicum.run_sync(reported(id, user, outcome))


FACES = {"http": by_http, "mcp": by_mcp, "command": by_command, "program": by_program}


def stored(space: Client) -> str:
    """An interaction that other processes can read: reading it writes what waits."""
    id = space.ask().interaction
    assert id in {one["id"] for one in space.get("/v1/interactions", limit=5)["interactions"]}
    return id


@pytest.mark.parametrize("face", FACES)
def test_a_report_has_the_same_effect_at_every_face(face: str, plain: Service, shared: Client) -> None:
    # The command reports for the operator only.
    cases = {name: steps for name, steps in CASES.items() if face != "command" or not any(one.user for one in steps)}
    with ExitStack() as stack:
        report = FACES[face](shared, plain, stack)
        for name, steps in cases.items():
            id = stored(shared)
            answers = [report(id, step.user, step.outcome) for step in steps]
            expected = [(step.status, step.score) for step in steps]
            assert [(one["status"], one["score"]) for one in answers] == expected, name


@pytest.mark.parametrize("face", ["mcp", "program"])
def test_an_outcome_that_changes_after_it_was_learned_from_waits_again(face: str, keyed: Service) -> None:
    space = keyed.client.new_space()
    id = space.ask().interaction
    space.report(id, score=0.0)
    until(lambda: space.health()["waiting"] == 1)
    space.post("/v1/learn")
    until(lambda: space.health()["waiting"] == 0)
    with ExitStack() as stack:
        assert FACES[face](space, keyed, stack)(id, None, {"target": RIGHT})["status"] == "changed"
    until(lambda: space.health()["waiting"] == 1)


@pytest.mark.parametrize("face", ["http", "program"])
def test_a_later_report_replaces_the_correction_of_an_earlier_one(face: str, plain: Service, space: Client) -> None:
    id = stored(space)
    with ExitStack() as stack:
        report = FACES[face](space, plain, stack)
        for outcome, effect, shown, hidden in (
            ({"target": "the first team"}, "in effect", "the first team", RIGHT),
            # The reporter was wrong: the answer is right.
            ({"target": UNKNOWN}, None, "", "the first team"), ({"target": RIGHT}, "in effect", RIGHT, "first"),
            ({"score": 1.0}, None, "", RIGHT), ({"score": 0.0}, "in effect", RIGHT, "first"),
        ):  # fmt: skip
            assert report(id, None, outcome)["correction"] == effect
            until(lambda shown=shown, hidden=hidden: shown in (text := space.shown()) and hidden not in text)
    assert len(space.get("/v1/corrections", state="live")["corrections"]) == 1


def test_of_a_users_reports_on_an_answer_the_last_one_waits(space: Client) -> None:
    anna, ben = space.as_user("anna"), space.as_user("ben")
    id = anna.ask().interaction
    anna.report(id, target="the first team")
    anna.report(id, target=RIGHT)
    (waits,) = space.get("/v1/review")["corrections"]
    assert waits["target"] == RIGHT
    ben.report(ben.ask(), target="the red team")
    anna.report(id, score=1.0)
    assert [one["target"] for one in space.get("/v1/review")["corrections"]] == ["the red team"]


def test_users_do_not_withdraw_the_operators_correction(space: Client) -> None:
    anna = space.as_user("anna")
    id = anna.ask().interaction
    space.report(id, target=RIGHT)
    (waits,) = space.get("/v1/review")["corrections"]
    assert anna.report(id, score=1.0)["score"] == 0.0
    assert anna.report(id, comment="It is fine.")["correction"] == "waits for review"
    assert waits["id"] in {one["id"] for one in space.get("/v1/review")["corrections"]}
