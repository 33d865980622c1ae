"""docs/service.md, "Learning in the background": rounds, the held-out test, the canary, promotion and rollback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from service_kit import (
    LEARNING,
    Client,
    command,
    learn,
    learn_live,
    refused,
    rollouts,
    score_until_decided,
    serving,
    teach,
    teach_to_try,
    unique,
    until,
)
from service_model import Model, prompt_of, running_model

SESSIONS = 24


def seen(space: Client, name: str = "s") -> dict[str, int]:
    """The version that each of many sessions sees."""
    return {f"{name}{n}": space.in_session(f"{name}{n}").ask("Which one?").version for n in range(SESSIONS)}


def test_a_round_on_command_makes_a_version_from_the_outcomes(locked: Client) -> None:
    teach(locked, 8)
    assert locked.post("/v1/learn")["learning"] == "begins"
    candidate = until(lambda: locked.health()["candidate"])
    # Others see nothing of it yet.
    assert locked.health()["version"] == 0
    assert locked.entries() == []
    (rollout,) = rollouts(locked)
    assert (rollout["version"], rollout["base"], rollout["state"]) == (candidate, 0, "canary")
    assert locked.metric("practicum_canary_version", space=locked.space) == candidate


def test_what_was_learned_is_shown_once_it_is_live(locked: Client) -> None:
    teach(locked, 8)
    version = learn_live(locked)
    reply = locked.in_session("new").ask("Which team handles case 1, now?")
    assert reply.version == version
    assert "case team 1" in reply.prompt
    assert locked.get("/v1/playbook")["total"] > 0


def test_a_share_of_the_sessions_sees_a_new_version_and_each_stays_on_its_side(locked: Client) -> None:
    teach(locked, 8)
    candidate = learn(locked)
    first = seen(locked)
    assert set(first.values()) == {0, candidate}
    assert seen(locked) == first


def test_a_candidate_that_is_not_worse_is_promoted_after_its_length(locked: Client) -> None:
    teach(locked, 8)
    candidate = learn(locked)
    score_until_decided(locked, lambda _: 1.0)
    assert (locked.health()["version"], locked.health()["candidate"]) == (candidate, None)
    (rollout,) = rollouts(locked)
    assert (rollout["state"], rollout["test"]["all"]["canary"]["scores"]) == ("promoted", 20)
    # All sessions see it, and those of the trial, too, once they are asked again.
    assert set(seen(locked, "later").values()) == {candidate}
    assert [one["kind"] for one in locked.get("/v1/history")["alarms"]] == ["rollout"]


def test_a_candidate_that_is_worse_is_taken_back_by_itself(locked: Client) -> None:
    teach(locked, 8)
    learn(locked)
    learned = seen(locked)
    score_until_decided(locked, lambda candidate: 0.0 if candidate else 1.0)
    assert (locked.health()["version"], locked.health()["candidate"]) == (0, None)
    assert rollouts(locked)[0]["state"] == "taken back"
    # Sessions on it see the live one with their next request.
    assert set(learned.values()) != {0}
    assert set(seen(locked).values()) == {0}
    assert "case team 1" not in json.dumps(locked.entries())


@pytest.mark.slow
def test_a_candidate_that_is_better_is_promoted_before_its_length(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store", *LEARNING, "--canary-length", 10_000) as service:
        teach(service.client, 8)
        candidate = learn(service.client)
        assert score_until_decided(service.client, lambda better: 1.0 if better else 0.0) < 1_000
        assert service.client.health()["version"] == candidate


def test_the_held_out_test_drops_a_version_that_answers_worse(locked: Client, model: Model) -> None:
    word = unique("gate")

    def knowing(body: dict[str, Any]) -> str:
        """Right, unless it is shown solved tasks."""
        number = re.findall(rf"{word} (\d+)", prompt_of(body))[-1]
        confused = "Solved tasks" in prompt_of(body) or any(one["role"] == "assistant" for one in body["messages"])
        return "I am confused" if confused else f"{word} team {number}"

    model.answers[word] = knowing
    teach_to_try(locked, word)
    locked.post("/v1/learn")
    (rollout,) = until(lambda: rollouts(locked), "a rollout")
    assert rollout["state"] == "dropped"
    assert rollout["gate"]["tasks"] >= 1
    assert (locked.health()["version"], locked.health()["candidate"]) == (0, None)


@pytest.mark.slow
def test_the_held_out_test_goes_on_with_another_model(model: Model, tmp_path: Path) -> None:
    options = (tmp_path / "store", *LEARNING, "--canary", 0)
    with serving(model, *options) as service:
        teach_to_try(service.client)
        service.client.post("/v1/learn")
        (first,) = until(lambda: rollouts(service.client), "a rollout")
        # That the version is live is written after its trial.
        until(lambda: service.client.health()["version"] == first["version"])
    with running_model() as other, serving(other, *options) as service:
        # A score alone is not held out, so the same requests are asked again, also under the version that was tried.
        service.client.report(service.client.ask(), score=1.0)
        service.client.post("/v1/learn")
        second, _ = until(lambda: tried if len(tried := rollouts(service.client)) > 1 else None, "another rollout")
    assert (second["base"], second["gate"]["tasks"]) == (first["version"], first["gate"]["tasks"])


def test_no_round_begins_while_a_version_is_tried(locked: Client) -> None:
    teach(locked, 8)
    candidate = learn(locked)
    teach(locked, 8, start=100)
    assert str(candidate) in locked.post("/v1/learn")["learning"]
    assert locked.health()["candidate"] == candidate
    assert len(rollouts(locked)) == 1


# Rollback


def test_a_rollback_takes_the_candidate_back_and_then_the_live_version(locked: Client) -> None:
    teach(locked, 8)
    live = learn(locked)
    score_until_decided(locked, lambda _: 1.0)
    teach(locked, 8, start=100)
    learn(locked)
    assert locked.post("/v1/rollback") == {"version": live}
    assert locked.health()["candidate"] is None
    assert locked.post("/v1/rollback") == {"version": 0}
    assert set(seen(locked).values()) == {0}
    assert rollouts(locked)[0]["state"] == "taken back"


def test_a_rollback_by_number_holds_from_the_next_request_of_every_session(space: Client) -> None:
    for text in ("one", "two"):
        space.add_entry(f"Rule {text}.")
    old = space.in_session("old")
    assert old.ask().version == 2
    assert space.post("/v1/rollback", version=1) == {"version": 1}
    reply = old.ask("And now?")
    assert (reply.version, "Rule two." in reply.prompt) == (1, False)
    assert space.entries() == ["Rule one."]
    assert space.post("/v1/rollback", version=2) == {"version": 2}
    assert "Rule two." in old.shown("And again?")


NOWHERE: list[tuple[dict[str, Any], str]] = [
    ({}, "version.unknown"), ({"version": 999}, "version.unknown"), ({"version": 0}, "version.unchanged"),
    ({"version": "x"}, "request.malformed"), ({"version": -1}, "request.malformed"),
    ({"version": True}, "request.malformed"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code"), NOWHERE, ids=range(len(NOWHERE)))
def test_a_rollback_to_nothing_is_refused(body: dict[str, Any], code: str, untaught: Client) -> None:
    refused(untaught.send("POST", "/v1/rollback", body), code)


def test_an_outcome_that_changes_after_it_was_learned_from_is_learned_from_again(locked: Client) -> None:
    ids = teach(locked, 8)
    learn_live(locked)
    assert locked.metric("practicum_outcomes_waiting", space=locked.space) == 0
    for id in ids:
        assert locked.report(id, target="another team")["status"] == "changed"
    assert locked.metric("practicum_outcomes_waiting", space=locked.space) > 0
    learn_live(locked)
    assert "another team" in json.dumps(locked.entries())


@pytest.mark.slow
def test_practicum_name_takes_a_version_back_from_another_terminal(locked: Client, keyed: Any) -> None:
    for text in ("one", "two"):
        locked.add_entry(f"Rule {text}.")
    teach(locked, 8)
    learn(locked)
    done = command("space", "name", keyed.store / "spaces" / locked.space, "live", 1)
    assert done.returncode == 0, done.stderr
    until(lambda: locked.health()["candidate"] is None)
    assert set(seen(locked).values()) == {1}


# Whole services


@pytest.mark.slow
def test_a_round_begins_by_itself_when_enough_outcomes_wait(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store", *LEARNING, "--learn-every", 4) as service:
        teach(service.client, 10)
        assert until(lambda: service.client.health()["candidate"])


@pytest.mark.slow
def test_without_a_canary_and_held_out_requests_nothing_goes_live_untested(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store", *LEARNING, "--canary", 0) as service:
        teach(service.client, 6)
        service.client.post("/v1/learn")
        (rollout,) = until(lambda: rollouts(service.client))
        assert (rollout["state"], service.client.health()["version"]) == ("dropped", 0)


@pytest.mark.slow
def test_a_rollout_and_the_sides_of_its_sessions_go_on_after_a_restart(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store", *LEARNING) as service:
        teach(service.client, 8)
        candidate = learn(service.client)
        sides = seen(service.client)
        for n in range(12):
            asking = service.client.in_session(f"x{n}")
            asking.report(asking.ask(), score=1.0)
        assert service.stop() == 0
    with serving(model, tmp_path / "store", *LEARNING) as service:
        assert service.client.health()["candidate"] == candidate
        assert seen(service.client) == sides
        after = score_until_decided(service.client, lambda _: 1.0)
        (rollout,) = rollouts(service.client)
        arms = rollout["test"]["all"]
        assert rollout["state"] == "promoted"
        # The scores from before count, too. A few of those after may be later than the decision.
        assert arms["live"]["scores"] + arms["canary"]["scores"] >= 12 + after - 5


@pytest.mark.slow
def test_the_budget_of_a_day_is_hard(model: Model, tmp_path: Path) -> None:
    options = ("--learn-every", 1_000_000, "--max-calls-day", 3, "--method", "ace")
    with serving(model, tmp_path / "store", *options) as service:
        client = service.client
        teach(client, 10)
        before = len(model.received())
        client.post("/v1/learn")
        until(lambda: ended(client), "the end of the round")
        assert 1 <= len(model.received()) - before <= 3
        assert client.metric("practicum_learning_calls_today") <= 3
        assert client.ask().status == 200


def ended(client: Client) -> float:
    """How many rounds have ended, well or not."""
    return client.metric("practicum_learning_rounds_total") + client.metric("practicum_learning_failures_total")


@pytest.mark.slow
def test_a_round_that_fails_is_an_alarm_and_disturbs_no_request(model: Model, tmp_path: Path) -> None:
    options = ("--learn-every", 1_000_000, "--method", "ace", "--learner", "http://127.0.0.1:9/v1#away")
    with serving(model, tmp_path / "store", *options) as service:
        client = service.client
        teach(client, 10)
        client.post("/v1/learn")
        alarms = until(lambda: [one for one in client.get("/v1/history")["alarms"] if one["kind"] == "learning"])
        assert len(alarms) == 1
        assert client.ask().status == 200
        assert client.metric("practicum_outcomes_waiting") > 0


@pytest.mark.slow
def test_no_learning_keeps_corrections_alone(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store", "--no-learning") as service:
        service.client.correct()
        assert "the blue team" in service.client.shown()
        refused(service.client.send("POST", "/v1/learn"), "learning.disabled")


@pytest.mark.slow
def test_a_judge_scores_answers_that_nobody_reported_on(model: Model, tmp_path: Path) -> None:
    verdict = json.dumps({"reason": "It is right.", "success": True, "correct": True, "verdict": True})
    model.answers['"response_format"'] = verdict
    try:
        with serving(model, tmp_path / "store", *LEARNING, "--judge-share", 1.0, "--learn-every", 4) as service:
            for n in range(8):
                service.client.ask(f"Which team handles judged case {n}?")
            until(lambda: service.client.health()["candidate"], "a version that was learned from verdicts")
    finally:
        del model.answers['"response_format"']
