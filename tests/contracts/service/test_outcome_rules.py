"""Reports that come late or again (docs/serve/outcomes.md): the same rules at every face, on the same stored
interaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
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
    """A program that has the store of the running service open."""
    portal = stack.enter_context(start_blocking_portal())
    folder = service.store / "spaces" / space.space
    opened = stack.enter_context(portal.wrap_async_context_manager(practicum.open(folder)))

    def report(id: str, user: str | None, outcome: dict[str, Any]) -> dict[str, Any]:
        result = portal.call(partial(opened.report, id, user=user, **outcome))
        return {"status": result.status, "score": result.score, "correction": result.correction}

    return report


FACES = {"http": by_http, "mcp": by_mcp, "command": by_command, "program": by_program}


def stored(space: Client) -> str:
    """An interaction that other processes can read: reading it writes what waits."""
    id = space.ask().interaction
    assert id in {one["id"] for one in space.get("/v1/interactions", limit=5)["interactions"]}
    return id


@pytest.mark.parametrize("face", FACES)
def test_a_report_has_the_same_effect_at_every_face(face: str, plain: Service, space: Client) -> None:
    # The command reports for the operator only.
    cases = {name: steps for name, steps in CASES.items() if face != "command" or not any(one.user for one in steps)}
    with ExitStack() as stack:
        report = FACES[face](space, plain, stack)
        for name, steps in cases.items():
            id = stored(space)
            answers = [report(id, step.user, step.outcome) for step in steps]
            expected = [(step.status, step.score) for step in steps]
            assert [(one["status"], one["score"]) for one in answers] == expected, name


def test_an_outcome_that_changes_after_it_was_learned_from_is_learned_from_again(keyed: Service) -> None:
    space, faces = keyed.client.new_space(), ("mcp", "program")
    ids = [space.ask().interaction for _ in faces]
    for id in ids:
        space.report(id, score=0.0)
    until(lambda: space.health()["waiting"] == 2)
    space.learn_live()
    until(lambda: space.health()["waiting"] == 0)
    with ExitStack() as stack:
        for count, (face, id) in enumerate(zip(faces, ids, strict=True), 1):
            assert FACES[face](space, keyed, stack)(id, None, {"target": RIGHT})["status"] == "changed"
            until(lambda count=count: space.health()["waiting"] == count)
    space.learn_live()
    assert RIGHT in str(space.entries())


def test_a_later_report_replaces_the_correction_of_an_earlier_one(plain: Service, space: Client) -> None:
    for face in ("http", "program"):
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


def test_of_a_users_reports_the_last_one_waits_and_none_withdraws_the_operators_correction(space: Client) -> None:
    anna, ben = space.as_user("anna"), space.as_user("ben")
    id, others = anna.ask().interaction, ben.ask()
    anna.report(id, target="the first team")
    anna.report(id, target=RIGHT)
    (waits,) = space.get("/v1/review")["corrections"]
    assert waits["target"] == RIGHT
    ben.report(others, target="the red team")
    anna.report(id, score=1.0)
    assert [one["target"] for one in space.get("/v1/review")["corrections"]] == ["the red team"]
    space.report(id, target=RIGHT)
    assert anna.report(id, score=1.0)["score"] == 0.0
    assert anna.report(id, comment="It is fine.")["correction"] == "waits for review"
    assert RIGHT in [one["target"] for one in space.get("/v1/review")["corrections"]]
