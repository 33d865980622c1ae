"""docs/service.md, "Reports that come late or again": the same rules at every face, on the same stored interaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from service_kit import RIGHT, Client, Service, command, new_space, over_http, until
from service_model import UNKNOWN

import practicum

Report = Callable[[str, "str | None", dict[str, Any]], tuple[str, Any]]
"""Reports on an interaction for a user (None: the operator); returns the status and the score."""


@dataclass(frozen=True)
class Step:
    """A report, and what it is answered."""

    said: dict[str, Any]
    status: str
    score: float | None
    user: str | None = None


CASES: dict[str, list[Step]] = {
    "twice": [Step({"score": 0.0}, "kept", 0.0), Step({"score": 0.0}, "repeated", 0.0)],
    "another score": [Step({"score": 0.0}, "kept", 0.0), Step({"score": 1.0}, "changed", 1.0)],
    "a right answer that it had": [Step({"target": UNKNOWN}, "kept", 1.0)],
    "a right answer after a score of 1": [Step({"score": 1.0}, "kept", 1.0), Step({"target": RIGHT}, "changed", 0.0)],
    "words alone": [Step({"comment": "too long"}, "kept", 0.0)],
    "words after a score of 1": [Step({"score": 1.0}, "kept", 1.0), Step({"comment": "well said"}, "changed", 1.0)],
    "a user after the operator": [
        Step({"score": 0.0}, "kept", 0.0), Step({"score": 1.0}, "outranked", 0.0, "anna"),
        Step({"comment": "no"}, "changed", 0.0, "anna"),
    ],
    "the operator after a user": [Step({"score": 1.0}, "kept", 1.0, "anna"), Step({"score": 0.0}, "changed", 0.0)],
}  # fmt: skip


def by_http(space: Client, service: Service) -> Report:
    def report(id: str, user: str | None, said: dict[str, Any]) -> tuple[str, Any]:
        told = (space if user is None else space.as_user(user)).report(id, **said)
        return told["status"], told["score"]

    return report


def by_mcp(space: Client, service: Service) -> Report:
    def report(id: str, user: str | None, said: dict[str, Any]) -> tuple[str, Any]:
        with over_http(space if user is None else space.as_user(user)) as agent:
            if "target" in said:
                told = agent.do("correct", interaction=id, right_answer=said["target"])
            elif "score" in said:
                told = agent.do("report_outcome", interaction=id, **said)
            else:
                told = agent.do("correct", interaction=id, what_was_wrong=said["comment"])
        return told.data["status"], told.data["score"]

    return report


def by_command(space: Client, service: Service) -> Report:
    def report(id: str, user: str | None, said: dict[str, Any]) -> tuple[str, Any]:
        options = [word for name, value in said.items() for word in (f"--{name}", value)]
        done = command("space", "report", id, *options, "--url", space.url, "--space", space.space, "--json")
        told = json.loads(done.stdout)
        return told["status"], told["score"]

    return report


def by_program(space: Client, service: Service) -> Report:
    async def reported(id: str, user: str | None, said: dict[str, Any]) -> tuple[str, Any]:
        # Beside the service, which has the same store open.
        async with practicum.open(service.store / "spaces" / space.space) as opened:
            told = await opened.report(id, user=user, **said)
        return told.status, told.score

    return lambda id, user, said: practicum.run_sync(reported(id, user, said))


FACES = {"http": by_http, "mcp": by_mcp, "command": by_command, "program": by_program}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("case", CASES)
def test_a_report_has_the_same_effect_at_every_face(case: str, face: str, plain: Service, shared: Client) -> None:
    steps = CASES[case]
    if face == "command" and any(step.user for step in steps):
        pytest.skip("the command reports for the operator alone")
    report, id = FACES[face](shared, plain), shared.ask().interaction
    # What waits to be written is, before this is answered.
    assert id in {one["id"] for one in shared.get("/v1/interactions", limit=5)["interactions"]}
    assert [report(id, step.user, step.said) for step in steps] == [(step.status, step.score) for step in steps]


@pytest.mark.parametrize("face", FACES)
def test_an_outcome_that_changes_after_it_was_learned_from_is_learned_from_again(face: str, keyed: Service) -> None:
    space = new_space(keyed.client)
    id = space.ask().interaction
    space.report(id, score=0.0)
    until(lambda: space.health()["waiting"] == 1)
    space.post("/v1/learn")
    until(lambda: space.health()["waiting"] == 0)
    # The command takes its key from the environment, which tests of keys do.
    report = FACES["http" if face == "command" else face](space, keyed)
    assert report(id, None, {"target": RIGHT}) == ("changed", 0.0)
    # The next round begins when it is known what becomes of the version of this one.
    until(lambda: space.health()["waiting"] == 1)


def correcting(face: str, space: Client, service: Service) -> Callable[[str, dict[str, Any]], Any]:
    """Reports on an interaction for the operator; returns the correction that it made."""

    async def by_program(id: str, said: dict[str, Any]) -> Any:
        async with practicum.open(service.store / "spaces" / space.space) as opened:
            return (await opened.report(id, **said)).correction

    if face == "program":
        return lambda id, said: practicum.run_sync(by_program(id, said))
    return lambda id, said: space.report(id, **said)["correction"]


@pytest.mark.parametrize("face", ["http", "program"])
def test_a_later_report_takes_the_place_of_the_correction_of_an_earlier_one(
    face: str, plain: Service, space: Client
) -> None:
    report, id = correcting(face, space, plain), space.ask().interaction
    # What waits to be written is, before this is answered.
    assert id in {one["id"] for one in space.get("/v1/interactions", limit=5)["interactions"]}
    assert report(id, {"target": "the first team"}) == "in effect"
    until(lambda: "the first team" in space.shown())
    # The reporter was wrong: what was answered is right.
    assert report(id, {"target": UNKNOWN}) is None
    until(lambda: "the first team" not in space.shown())
    assert report(id, {"target": RIGHT}) == "in effect"
    until(lambda: RIGHT in space.shown())
    assert report(id, {"score": 1.0}) is None
    until(lambda: RIGHT not in space.shown())
    assert report(id, {"score": 0.0}) == "in effect"
    until(lambda: RIGHT in space.shown())
    assert len(space.get("/v1/corrections", state="live")["corrections"]) == 1


def test_of_one_users_reports_on_an_answer_the_last_one_waits(space: Client) -> None:
    anna, ben = space.as_user("anna"), space.as_user("ben")
    id = anna.ask().interaction
    anna.report(id, target="the first team")
    anna.report(id, target=RIGHT)
    (waits,) = space.get("/v1/review")["corrections"]
    assert waits["target"] == RIGHT
    ben.report(ben.ask(), target="another team")
    anna.report(id, score=1.0)
    assert [one["target"] for one in space.get("/v1/review")["corrections"]] == ["another team"]


def test_users_do_not_withdraw_the_operators_correction(space: Client) -> None:
    anna = space.as_user("anna")
    id = anna.ask().interaction
    space.report(id, target=RIGHT)
    (waits,) = space.get("/v1/review")["corrections"]
    assert anna.report(id, score=1.0)["score"] == 0.0
    assert anna.report(id, comment="It is fine.")["correction"] == "waits for review"
    assert waits["id"] in {one["id"] for one in space.get("/v1/review")["corrections"]}
