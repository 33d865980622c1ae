"""Learning in the background (docs/serve/outcomes.md): rounds, the held-out test, the canary, promotion and
rollback."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

from helpers import prompt_of
from service_kit import LEARNING, LENGTH, Client, run_json, serving_here, slow, unique, until
from service_model import Model

SESSIONS = 14


def seen(space: Client, name: str = "s", sessions: int = SESSIONS) -> list[int]:
    """The version that each of many sessions sees."""
    return [space.in_session(f"{name}{n}").ask("Which one?").version for n in range(sessions)]


def test_a_round_makes_a_candidate_that_a_share_of_the_sessions_sees(locked: Client) -> None:
    locked.teach(6)
    assert locked.post("/v1/learn")["learning"] == "begins"
    candidate = until(lambda: locked.health()["candidate"])
    # The other sessions see the live version.
    assert locked.health()["version"] == 0
    assert locked.entries() == []
    (rollout,) = locked.rollouts()
    assert (rollout["version"], rollout["base"], rollout["state"]) == (candidate, 0, "canary")
    assert locked.metric("practicum_canary_version", space=locked.space) == candidate
    sides = seen(locked)
    assert set(sides) == {0, candidate}
    # A session stays on its side.
    assert seen(locked, sessions=5) == sides[:5]
    # Of a session, only the first score counts.
    asking = locked.in_session(f"s{sides.index(candidate)}")
    for _ in range(LENGTH + 1):
        asking.report(asking.ask("Which one?"), score=1.0)
    # No second round begins, and the playbook is not edited.
    locked.teach(2, start=100)
    assert str(candidate) in locked.post("/v1/learn")["learning"]
    assert (locked.health()["candidate"], len(locked.rollouts())) == (candidate, 1)
    locked.send("POST", "/v1/playbook", {"text": "x", "section": "rules"}).refused("rollout.pending")
    # A rollback takes the candidate back.
    assert locked.post("/v1/rollback") == {"version": 0}
    assert locked.rollouts()[-1]["state"] == "taken back"
    assert candidate not in seen(locked)


def test_a_candidate_that_is_not_worse_is_promoted_and_a_rollback_undoes_it(locked: Client) -> None:
    locked.teach(6)
    candidate = locked.learn()
    locked.score_until_decided(lambda _: 1.0)
    assert (locked.health()["version"], locked.health()["candidate"]) == (candidate, None)
    (rollout,) = locked.rollouts()
    assert (rollout["state"], rollout["test"]["all"]["canary"]["scores"]) == ("promoted", LENGTH)
    assert set(seen(locked, "later", 5)) == {candidate}
    assert [one["kind"] for one in locked.get("/v1/history")["alarms"]] == ["rollout"]
    reply = locked.in_session("new").ask("Which team handles case 1, now?")
    assert (reply.version, "case team 1" in reply.prompt) == (candidate, True)
    assert locked.get("/v1/playbook")["total"] > 0
    assert locked.post("/v1/rollback") == {"version": 0}
    assert set(seen(locked, "later", 5)) == {0}


def test_a_candidate_that_is_worse_is_taken_back(locked: Client) -> None:
    locked.teach(6)
    candidate = locked.learn()
    sessions = (locked.in_session(f"s{n}") for n in count())
    session = next(one for one in sessions if one.ask("Which one?").version == candidate)
    locked.score_until_decided(lambda candidate: 0.0 if candidate else 1.0)
    assert (locked.health()["version"], locked.health()["candidate"]) == (0, None)
    assert locked.rollouts()[0]["state"] == "taken back"
    # Its sessions see the live version with their next request.
    assert session.ask("And now?").version == 0
    assert "case team 1" not in json.dumps(locked.entries())


def test_a_lesson_from_a_conversation_of_an_end_user_waits_for_review(locked: Client) -> None:
    asking = locked.in_session("one")
    asking.as_user("anna").ask("Which team handles case 1?")
    while not locked.health()["waiting"]:  # one outcome of five is held out, drawn by chance
        locked.report(asking.ask("And which team handles case 2?"), target="case team 2")
    locked.post("/v1/learn")
    (waits,) = until(lambda: locked.get("/v1/review")["edits"], "the end of the round")
    assert waits["trust"] == "labelled"
    assert locked.health()["candidate"] is None


@slow
def test_a_candidate_that_is_better_is_promoted_before_its_length(model: Model, tmp_path: Path) -> None:
    with serving_here(model, tmp_path / "store", *LEARNING, "--canary-length", 10_000) as service:
        service.client.teach(8)
        candidate = service.client.learn()
        assert service.client.score_until_decided(lambda better: 1.0 if better else 0.0) < 1_000
        assert service.client.health()["version"] == candidate


@slow
def test_the_held_out_test_drops_a_version_that_answers_worse(locked: Client, model: Model) -> None:
    word = unique("gate")

    def confused(body: dict[str, Any]) -> str:
        """Right, except with solved tasks in the prompt."""
        number = re.findall(rf"{word} (\d+)", prompt_of(body))[-1]
        solved = "Solved tasks" in prompt_of(body) or any(one["role"] == "assistant" for one in body["messages"])
        return "I am confused" if solved else f"{word} team {number}"

    model.answers[word] = confused
    locked.teach_to_try(word)
    locked.post("/v1/learn")
    (rollout,) = until(lambda: locked.rollouts(), "a rollout")
    assert rollout["state"] == "dropped"
    assert rollout["gate"]["tasks"] >= 1
    assert (locked.health()["version"], locked.health()["candidate"]) == (0, None)


@slow
def test_a_version_is_dropped_if_another_version_goes_live_during_its_test(locked: Client, model: Model) -> None:
    word = unique("gate")
    locked.add_entry("A rule.")

    def answer(body: dict[str, Any]) -> str:
        if locked.health()["version"] == before["version"]:
            locked.post("/v1/rollback", version=0)
        return "I do not know"

    locked.teach_to_try(word)
    before = locked.health()
    model.answers[word] = answer
    locked.post("/v1/learn")
    until(lambda: locked.rollouts()[0]["state"] == "dropped", "the end of the test")
    assert locked.health()["waiting"] == before["waiting"]
    assert set(seen(locked)) == {0}


@slow
def test_without_a_canary_and_held_out_requests_no_version_becomes_live(model: Model, tmp_path: Path) -> None:
    with serving_here(model, tmp_path / "store", *LEARNING, "--canary", 0) as service:
        service.client.teach(6)
        service.client.post("/v1/learn")
        (rollout,) = until(lambda: service.client.rollouts())
        assert (rollout["state"], service.client.health()["version"]) == ("dropped", 0)


@slow
def test_a_rollout_and_the_sides_of_its_sessions_continue_after_a_restart(model: Model, tmp_path: Path) -> None:
    with serving_here(model, tmp_path / "store", *LEARNING) as service:
        service.client.teach(8)
        candidate = service.client.learn()
        sides = seen(service.client)
        for n in range(12):
            asking = service.client.in_session(f"x{n}")
            asking.report(asking.ask(), score=1.0)
        assert service.stop() == 0
    with serving_here(model, tmp_path / "store", *LEARNING) as service:
        assert service.client.health()["candidate"] == candidate
        assert seen(service.client) == sides
        after = service.client.score_until_decided(lambda _: 1.0)
        (rollout,) = service.client.rollouts()
        arms = rollout["test"]["all"]
        assert rollout["state"] == "promoted"
        # The scores before the restart count, too. A few of those after it may be later than the decision.
        assert arms["live"]["scores"] + arms["canary"]["scores"] >= 12 + after - 5


@slow
def test_the_budget_of_a_day_is_hard(model: Model, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"input": "Which team handles it?", "target": "the red team"}\n' * 3)
    # The calls of an earlier day, or before the service, do not count.
    how = ("--model", model.url, "--scorer", "contains", "--method", "ace", "--out", tmp_path / "store")
    assert run_json("learn", tmp_path / "tasks.jsonl", *how)["usage"]["calls"] > 3
    options = ("--learn-every", 1_000_000, "--max-calls-day", 3, "--method", "ace")
    with serving_here(model, tmp_path / "store", *options) as service:
        client = service.client
        client.teach(10)
        before = len(model.received())
        client.post("/v1/learn")
        ends = ("practicum_learning_rounds_total", "practicum_learning_failures_total")
        until(lambda: any(client.metric(name) for name in ends), "the end of the round")
        assert 1 <= len(model.received()) - before <= 3
        assert client.metric("practicum_learning_calls_today") <= 3
        assert client.ask().status == 200


@slow
def test_a_round_that_fails_is_an_alarm_and_requests_continue(model: Model, tmp_path: Path) -> None:
    options = ("--learn-every", 1_000_000, "--method", "ace", "--learner", "http://127.0.0.1:9/v1#away")
    with serving_here(model, tmp_path / "store", *options) as service:
        client = service.client
        client.teach(10)
        client.post("/v1/learn")
        alarms = until(lambda: [one for one in client.get("/v1/history")["alarms"] if one["kind"] == "learning"])
        assert len(alarms) == 1
        assert client.ask().status == 200
        assert client.metric("practicum_outcomes_waiting") > 0


@slow
def test_a_judge_scores_answers_without_a_report(model: Model, tmp_path: Path) -> None:
    verdict = json.dumps({"reason": "It is right.", "success": True, "correct": True, "verdict": True})
    model.answers['"response_format"'] = verdict
    try:
        options = (*LEARNING, "--judge-share", 1.0, "--learn-every", 4)
        with serving_here(model, tmp_path / "store", *options) as service:
            for n in range(8):
                service.client.ask(f"Which team handles judged case {n}?")
            until(lambda: service.client.health()["candidate"], "a version learned from verdicts")
    finally:
        del model.answers['"response_format"']
