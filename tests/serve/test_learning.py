"""Learning in the background: rounds, the replay gate, the canary, and what a restart goes on with."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import Place, Served, asynchronous, prompt, served, until
from sqlalchemy import select

from practicum.serve import tables
from practicum.serve.feedback import HELD, LEARNED, WAITING
from practicum.serve.learner import reported
from practicum.serve.space import LIVE
from practicum.session.amend import roll_back
from practicum.session.review import count_pending
from practicum.store.database import Store
from practicum.store.names import name_version
from practicum.testing import Answer

SOLVED = "Solved tasks that are similar"
"""Begins what a prompt shows of learned episodes."""

EPISODES: dict[str, Any] = {"method": "episodes", "learn": True, "learn_every": 4, "canary": 0.5, "canary_length": 20}
"""A method that asks no model to learn."""


def states(at: Served, table: Any = tables.rollouts) -> list[str]:
    return [row.state for row in at.service.log.rows(select(table))]


def alarms(at: Served) -> list[str]:
    return [row.text for row in at.service.log.rows(select(tables.alarms))]


async def teach(at: Served, count: int, start: int = 0, headers: dict[str, str] | None = None) -> None:
    """Ask, and correct the answers."""
    for n in range(start, start + count):
        reply = await at.ask(f"Which team handles case {n}?", headers)
        told = await at.report(headers, interaction=reply.interaction, target=f"team {n}")
        assert told.status == 200


async def out(at: Served, count: int = 30) -> None:
    """Teach until a candidate is out."""
    await teach(at, count)
    await until(lambda: at.service.spaces["default"].rollout)


async def score(at: Served, of: Callable[[bool], float], most: int = 400) -> int:
    """Score requests of new sessions until the rollout ends: by whether they were shown the candidate. Returns how many
    it took."""
    space = at.service.spaces["default"]
    rollout = space.rollout
    assert rollout is not None
    for n in range(most):
        reply = await at.ask("And this one?", {"x-practicum-session": f"{rollout.number} {n}"})
        candidate = int(reply.headers["x-practicum-version"]) == rollout.version
        await at.report(interaction=reply.interaction, score=of(candidate))
        if space.rollout is not rollout:
            return n + 1
    raise AssertionError("the rollout does not end")


async def promote(at: Served) -> None:
    """Make the next candidate live by hand, from outside."""
    space = at.service.spaces["default"]
    await until(lambda: space.rollout)
    rollout = space.rollout
    assert rollout is not None
    with Store.beside(space.folder) as store:
        name_version(store, store.run_id, LIVE, rollout.version)
    await until(lambda: space.rollout is not rollout)
    assert space.live == rollout.version


def knowing(body: Any) -> Answer:
    """Answers rightly, unless it is shown solved tasks."""
    confused = any(message["role"] == "assistant" for message in body["messages"])
    number = re.findall(r"case (\d+)", prompt(json.dumps(body).encode()))[-1]
    return "I do not know" if confused else f"team {number}"


@asynchronous
async def test_what_is_learned_is_shown_to_a_share_and_then_to_all(long_place: Place) -> None:
    async with served(**long_place, **EPISODES) as at:
        await out(at)
        space = at.service.spaces["default"]
        assert space.rollout is not None
        assert (space.live, space.rollout.base) == (0, 0)
        versions = set()
        for n in range(40):
            headers = {"x-practicum-session": f"s{n}"}
            seen = {(await at.ask(f"Case {n} again?", headers)).headers["x-practicum-version"] for _ in range(3)}
            assert len(seen) == 1
            versions |= seen
        assert versions == {"0", str(space.rollout.version)}
        candidate = space.rollout.version
        await score(at, lambda _: 1.0)
        assert (space.live, space.rollout) == (candidate, None)
        assert states(at)[0] == "promoted"
        await until(lambda: any("promoted: not worse in 20 scored requests" in text for text in alarms(at)))
        assert SOLVED in await at.shown("Which team handles case 1, now?", {"x-practicum-session": "new"})
        # What was corrected by the operator holds beside all that.
        assert LEARNED in states(at, tables.outcomes)


@asynchronous
async def test_a_candidate_that_is_worse_is_taken_back_alone(long_place: Place) -> None:
    async with served(**long_place, **{**EPISODES, "canary_length": 200}) as at:
        await out(at)
        space = at.service.spaces["default"]
        assert space.rollout is not None
        bad = space.context(space.rollout.version)
        requests = await score(at, lambda candidate: 0.0 if candidate else 1.0)
        assert requests < 60
        assert not len(space.context(space.live))
        assert states(at)[0] == "taken back"
        assert SOLVED not in await at.shown("Which team handles case 1, now?", {"x-practicum-session": "new"})
        # The next round begins from the live version, with what is left to learn from.
        await teach(at, 12, 100)
        await until(lambda: space.rollout)
        again = space.rollout
        assert again is not None
        assert again.base == space.live
        assert not {entry.text for entry in bad} & {entry.text for entry in space.context(again.version)}


@asynchronous
async def test_a_candidate_that_is_better_is_promoted_early(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "canary_length": 10_000}) as at:
        await out(at)
        await score(at, lambda candidate: 1.0 if candidate else 0.0)
        assert states(at)[0] == "promoted"


@asynchronous
async def test_the_replay_gate_drops_what_does_worse_on_held_out_requests(tmp_path: Path) -> None:
    async with served(tmp_path, knowing, **{**EPISODES, "learn_every": 10_000}) as at:
        await teach(at, 80)
        assert states(at, tables.outcomes).count(HELD) >= 8
        assert (await at.send("POST", "/v1/learn", {})).status == 202
        await until(lambda: states(at))
        assert states(at) == ["dropped"]
        assert at.service.spaces["default"].live == 0
        await until(lambda: alarms(at))
        assert "worse on held-out requests (-100.0 points" in alarms(at)[-1]
        # It is not tried again.
        at.service.learner.wake()
        await teach(at, 1, 200)
        assert states(at) == ["dropped"]


@asynchronous
async def test_a_rollout_goes_on_after_a_restart(long_place: Place) -> None:
    async with served(**long_place, **EPISODES) as at:
        await out(at)
        rollout = at.service.spaces["default"].rollout
        assert rollout is not None
        for n in range(12):
            reply = await at.ask("And this one?", {"x-practicum-session": f"s {n}"})
            await at.report(interaction=reply.interaction, score=n % 2)
        before = rollout.test.as_json()
        assert before["all"]["canary"]["scores"] > 0
        shown = (await at.ask("Whose?", {"x-practicum-session": "mine"})).headers["x-practicum-version"]
    async with served(**long_place, **EPISODES) as at:
        again = at.service.spaces["default"].rollout
        assert again is not None
        assert (again.number, again.version, again.test.as_json()) == (rollout.number, rollout.version, before)
        assert (await at.ask("Whose?", {"x-practicum-session": "mine"})).headers["x-practicum-version"] == shown


@asynchronous
async def test_a_rollback_by_hand_takes_back_the_candidate_and_then_the_live_version(long_place: Place) -> None:
    async with served(**long_place, **EPISODES) as at:
        await out(at)
        space = at.service.spaces["default"]
        await score(at, lambda _: 1.0)
        promoted = space.live
        await teach(at, 12, 100)
        await until(lambda: space.rollout)
        await asyncio.to_thread(at.service.learner.stop)
        assert (await at.send("POST", "/v1/rollback", {})).json == {"version": promoted}
        assert space.rollout is None
        assert (await at.send("POST", "/v1/rollback", {})).json == {"version": 0}
        assert (await at.ask("Now?", {"x-practicum-session": "s0"})).headers["x-practicum-version"] == "0"
        assert (await at.send("POST", "/v1/rollback", {})).status == 400
        assert (await at.send("POST", "/v1/rollback", {"version": 999})).status == 400
        assert (await at.send("POST", "/v1/rollback", {"version": "x"})).status == 400


@asynchronous
async def test_what_users_say_waits_for_review_and_changes_no_version(tmp_path: Path) -> None:
    async with served(tmp_path, **EPISODES) as at:
        await teach(at, 8, headers={"x-practicum-user": "u"})
        await until(lambda: at.service.counts["rounds"])
        space = at.service.spaces["default"]
        assert (space.live, space.rollout) == (0, None)
        with Store.read(space.folder) as store:
            assert count_pending(store) > 0


@asynchronous
async def test_learning_that_fails_is_an_alarm_and_disturbs_no_request(tmp_path: Path) -> None:
    settings = {**EPISODES, "method": "ace", "learner": "http://127.0.0.1:9/v1#away"}
    async with served(tmp_path, **settings) as at:
        await teach(at, 8)
        await until(lambda: at.service.counts["rounds that failed"])
        await until(lambda: alarms(at))
        assert "http://127.0.0.1:9/v1#away" in alarms(at)[0]
        assert (await at.ask("Still there?")).status == 200
        assert states(at, tables.outcomes).count(WAITING) >= 4


@asynchronous
async def test_the_budget_of_a_day_is_not_exceeded(tmp_path: Path) -> None:
    calls = 0

    def counting(body: Any) -> Answer:
        nonlocal calls
        calls += "response_format" in body
        return "{}"

    async with served(tmp_path, counting, **{**EPISODES, "method": "ace", "max_calls_day": 2}) as at:
        await teach(at, 12)
        await until(lambda: at.service.counts["rounds"] or at.service.counts["rounds that failed"])
        assert calls <= 2
        at.service.learner.want("default")
        await teach(at, 8, 100)
        assert calls <= 2


@pytest.mark.parametrize(("every", "rounds"), [(10_000, 0), (4, 1)])
@asynchronous
async def test_a_round_begins_when_enough_outcomes_wait(every: int, rounds: int, tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "learn_every": every}) as at:
        await teach(at, 12)
        if rounds:
            await until(lambda: at.service.counts["rounds"])
        else:
            assert at.service.counts["rounds"] == 0
            await at.send("POST", "/v1/learn", {})
            await until(lambda: at.service.counts["rounds"])


@asynchronous
async def test_an_outcome_that_changes_after_it_was_learned_from_is_learned_from_again(tmp_path: Path) -> None:
    async with served(tmp_path, **EPISODES) as at:
        replies = [await at.ask(f"Which team handles case {n}?") for n in range(12)]
        for reply in replies:
            await at.report(interaction=reply.interaction, target="the old team")
        space = at.service.spaces["default"]
        await promote(at)
        assert LEARNED in states(at, tables.outcomes)
        rows = at.service.log.rows(select(tables.outcomes).where(tables.outcomes.c.state == LEARNED))
        told = (await at.report(interaction=rows[0].id, target="the new team")).json
        assert (told["status"], told["correction"]) == ("changed", "in effect")
        # Those that waited before may be a round of their own.
        while not any("the new team" in str(entry.data) for entry in space.context(space.live)):
            at.service.learner.want("default")
            await promote(at)
        query = at.service.log.rows(select(tables.interactions).where(tables.interactions.c.id == rows[0].id))[0]
        asked = json.loads(query.data)["query"]
        answers = [entry.data["answer"] for entry in space.context(space.live) if entry.text == asked]
        assert answers == ["the new team"]


@asynchronous
async def test_a_judge_scores_answers_without_an_outcome(long_place: Place) -> None:
    def judging(body: Any) -> Answer:
        if "response_format" in body:
            return json.dumps({"reason": "It is right.", "success": True, "correct": True, "verdict": True})
        return "the blue team"

    async with served(**long_place, responder=judging, **{**EPISODES, "judge": 1.0}) as at:
        for n in range(8):
            await at.ask(f"Which team handles case {n}?")
        await until(lambda: at.service.counts["rounds"] or at.service.counts["rounds that failed"])
        assert at.service.counts["rounds that failed"] == 0
        assert LEARNED in states(at, tables.outcomes)


@asynchronous
async def test_what_is_forgotten_in_the_run_is_shown_no_more(tmp_path: Path) -> None:
    from practicum.session.forget import forget

    async with served(tmp_path, **EPISODES) as at:
        await teach(at, 12)
        space = at.service.spaces["default"]
        await promote(at)
        await asyncio.to_thread(at.service.learner.stop)
        text, session = "Which team handles case 1, now?", {"x-practicum-session": "pinned"}
        assert SOLVED in await at.shown(text, session)
        entries = [entry.id for entry in space.context(space.live)]
        with Store.open(space.folder) as store:
            forget(store, store.run_id, entries=entries)
        await until(lambda: space.touched is False and not len(space.context(space.live)))
        assert SOLVED not in await at.shown(text, session)
        assert (await at.ask(text, session)).status == 200


@asynchronous
async def test_without_a_canary_nothing_goes_live_untested(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "canary": 0.0}) as at:
        await teach(at, 8)
        await until(lambda: states(at))
        assert states(at)[0] == "dropped"
        assert at.service.spaces["default"].live == 0
        assert "untested: there is no canary" in at.service.log.rows(select(tables.rollouts))[0].data


@asynchronous
async def test_a_rollback_during_a_round_drops_what_the_round_learns(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "learn": False, "learn_every": 10_000}) as at:
        learner = at.service.learner
        await teach(at, 12)
        hand_over = learner._hand_over

        def rolled_back(space: Any) -> Any:
            moved = hand_over(space)
            with Store.open(space.folder) as store:
                name_version(store, store.run_id, LIVE, roll_back(store, 0))
            return moved

        learner._hand_over = rolled_back  # type: ignore[method-assign]
        learner.start()
        learner.want("default")
        await until(lambda: at.service.counts["rounds"] and "dropped" in states(at))
        assert "made live by hand meanwhile" in at.service.log.rows(select(tables.rollouts))[-1].data
        assert LEARNED not in states(at, tables.outcomes)


class Row:
    version = 3


def test_the_attempts_of_a_session_are_one() -> None:
    def interaction(query: str, answer: str, *steps: list[str], calls: list[list[str]] | None = None) -> Any:
        data = {"query": query, "answer": answer, "steps": steps, "calls": calls or [], "entries": [["e1", 0.5]]}
        row = Row()
        row.data = json.dumps(data)  # type: ignore[attr-defined]
        return row

    rows = [
        interaction("Fix it", "", calls=[["read", "a"]]),
        interaction("Fix it", "Fixed.", ["call", "read(a)"], ["result", "text"]),
        interaction("And b?", "Done."),
    ]
    told = reported(
        {"session": "s", "target": "right", "comment": "slow"}, rows, lambda asked: asked["query"], 0.0, "own"
    )
    assert told["query"] == "Fix it"
    assert told["trace"]["answer"] == "Done."
    steps = [(step["kind"], step["text"]) for step in told["trace"]["steps"]]
    assert steps == [("call", "read(a)"), ("result", "text"), ("answer", "Fixed."), ("user", "And b?")]
    assert (told["correction"], told["score"]["note"], told["trust"]) == ("right", "slow", "own")
    assert told["retrieved"] == [["e1", 0.5]]
