"""One user's data: written out as a whole, removed with all that was learned from it, and nothing of others with it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from helpers import run_command
from scripts import FORM
from serving import Place, Served, asynchronous, prompt, served, until
from sqlalchemy import make_url
from users import ANNA, BEN, EPISODES, SECRETS, files_with, judging, learn, rows, said, teach, texts

from practicum.core.errors import RunBusy
from practicum.serve import tables
from practicum.serve.feedback import HELD, LEARNED, WAITING, Unknown
from practicum.serve.log import FolderDatabase
from practicum.serve.personal import export_user, forget_user
from practicum.session.amend import writing
from practicum.store import schema
from practicum.store.database import Store
from practicum.testing import Answer


@asynchronous
async def test_all_that_came_of_a_user_is_gone_and_the_service_goes_on(long_place: Place, tmp_path: Path) -> None:
    async with served(**long_place, responder=judging, **{**EPISODES, "judge": 1.0}) as at:
        service, space = at.service, at.service.spaces["default"]
        ids = [(await at.ask("Where is the quetzal kept?", ANNA)).interaction]  # which the judge scores
        ids += await teach(at, ANNA, "quetzal", 8)
        theirs = await teach(at, BEN, "albatross", 8)
        await learn(at)
        # What waits to be learned from, and what waits for review.
        ids += await teach(at, ANNA, "quetzal", 2, 100)
        ids.append((await at.ask("And the other quetzal?", ANNA)).interaction)
        told = await at.report(ANNA, interaction=ids[-1], target="It is no quetzal.")
        assert told.json["correction"] == "waits for review"
        before = rows(at, tables.outcomes)
        assert {LEARNED, WAITING} <= {row.state for row in before if row.id in ids}
        assert "The quetzal team" in texts(at)
        assert "The albatross team" in texts(at)

        items = await export_user(service, "default", "anna")
        assert [item["id"] for item in items if item["what"] == "interaction"] == ids
        assert "albatross" not in json.dumps(items)
        for what in ("interaction", "outcome", "correction", "outcome of the run", "task", "attempt", "edit", "entry"):
            assert "quetzal" in said(items, what), what
        assert bool(said(items, "session") != "[]") == service.log.database.shared

        done = await forget_user(service, "default", "anna")
        assert (done.left, done.again, done.entries > 0) == (0, 0, True)
        assert done.interactions == len(ids)
        assert done.outcomes == len([row for row in before if row.id in ids])
        assert done.corrections == 11
        # At once: nothing of hers is shown, and all of his.
        assert "quetzal" not in texts(at)
        assert "The albatross team" in texts(at)
        assert [c.query for c in space.corrections if "quetzal" in c.query] == []
        assert len(space.corrections) == len(theirs)
        assert space.waiting == len([row for row in rows(at, tables.outcomes) if row.state == WAITING])
        assert [*files_with(tmp_path, *SECRETS, *ids)] == []
        for table in tables.metadata.sorted_tables:
            assert not any(word in str(rows(at, table)) for word in (*SECRETS, "anna", *ids)), table.name
        assert {row.id for row in rows(at, tables.outcomes)} == {row.id for row in before} - {*ids}
        assert "albatross" in str(rows(at, tables.interactions))

        # It goes on without her: what is gone is unknown, and everybody is served and learned from.
        assert (await at.report(interaction=ids[0], score=1.0)).status == 404
        with pytest.raises(Unknown, match="nothing is kept of a user 'anna' in space default"):
            await forget_user(service, "default", "anna")
        assert (await at.report(interaction=theirs[0], score=0.5)).status == 200
        assert "The quetzal team" not in await at.shown("Which team looks after the quetzal number 3?", ANNA)
        assert "The albatross team 3" in await at.shown("Which team looks after the albatross number 3?", ANNA)
        await teach(at, BEN, "pelican", 8)
        await learn(at)
        assert "The pelican team" in texts(at)
        # What she asked since is a new matter.
        again = await forget_user(service, "default", "anna")
        assert (again.interactions, again.left) == (2, 0)
        assert "The pelican team" in texts(at)
        assert [*files_with(tmp_path, "quetzal")] == []


def reflecting(body: Any) -> Answer:
    """A model that writes a rule for each request, and answers."""
    if "response_format" not in body:
        return judging(body)
    text = prompt(json.dumps(body).encode())
    about = re.findall(r"looks after the (\w+) number", text)
    # What says nearly the same would rest on both, by its words.
    said = "Quetzal: marzipan team." if "quetzal" in about else "Birds of the sea have an albatross office."
    rule = {"text": said, "section": "strategies"}
    lessons = {int(n) for n in re.findall(r"^(?:Lesson|Insight) (\d+)", text, re.MULTILINE)}
    changes = [{"op": "ADD", "insights": [n]} for n in sorted(lessons)]
    return json.dumps({**FORM, "reasoning": "", "insights": [rule], "changes": changes})


@asynchronous
async def test_rules_that_a_model_wrote_are_gone_with_their_lessons_and_prompts(
    long_place: Place, tmp_path: Path
) -> None:
    settings = {**EPISODES, "method": "ace", "profile": "full"}
    async with served(**long_place, responder=reflecting, **settings) as at:
        await teach(at, ANNA, "quetzal", 6)
        await teach(at, BEN, "albatross", 6)
        await learn(at)
        assert "Quetzal" in texts(at)
        assert "albatross office" in texts(at)
        assert "quetzal" in said(await export_user(at.service, "default", "anna"), "lesson")
        done = await forget_user(at.service, "default", "anna")
        assert (done.left, done.interactions) == (0, 6)
        assert "Quetzal" not in texts(at)
        assert "albatross office" in texts(at)
        assert [*files_with(tmp_path, "quetzal", "Quetzal", "marzipan")] == []
        with Store.read(at.service.spaces["default"].folder) as store:
            for table in schema.metadata.sorted_tables:
                assert "quetzal" not in str(store.rows(store.select(table))).lower(), table.name


def credits(at: Served) -> dict[str, tuple[int, float]]:
    return {row.item: (row.scored, row.total) for row in rows(at, tables.credits)}


@asynchronous
async def test_no_score_of_the_user_stays_counted(long_place: Place) -> None:
    async with served(**long_place, **EPISODES) as at:
        await teach(at, BEN, "albatross", 8)
        await learn(at)
        before = credits(at)
        await teach(at, ANNA, "albatross", 4)
        for n, score in enumerate((1.0, 0.25)):
            reply = await at.ask(f"The albatross number {n}?", {**ANNA, "x-practicum-session": "hers"})
            await at.report(interaction=reply.interaction, score=score)
        await at.report(session="hers", score=0.5)
        assert credits(at) != before
        assert (await forget_user(at.service, "default", "anna")).records == 0
        assert credits(at) == before


@asynchronous
async def test_a_session_with_others_is_learned_from_again_without_the_user(long_place: Place) -> None:
    async with served(**long_place, **EPISODES) as at:
        both = {"x-practicum-session": "table 4"}
        await teach(at, BEN, "albatross", 8)
        await at.ask("May I pay for the quetzal?", {**ANNA, **both})
        last = (await at.ask("And what do I owe for the soup?", {**BEN, **both})).interaction
        assert (await at.report(session="table 4", correction="He paid.", score=0.0)).json["interaction"] == last
        await learn(at)
        assert "quetzal" in texts(at)
        counted = credits(at)["version 0"]

        done = await forget_user(at.service, "default", "anna")
        assert (done.left, done.again, done.interactions, done.outcomes) == (0, 1, 1, 0)
        assert "quetzal" not in texts(at)
        assert "The albatross team" in texts(at)
        (row,) = (row for row in rows(at, tables.outcomes) if row.id == last)
        assert (row.state, row.revision, at.service.spaces["default"].waiting) == (WAITING, 2, 1)
        assert [one.session for one in rows(at, tables.interactions) if one.id == last] == ["table 4"]
        assert credits(at)["version 0"] == counted
        await learn(at)
        assert "what do I owe for the soup" in texts(at)
        assert "quetzal" not in texts(at)


@asynchronous
async def test_what_the_replay_gate_asked_is_gone_too(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "canary": 0.0}) as at:
        count = 0
        while sum(row.state == HELD for row in rows(at, tables.outcomes)) < 8:
            count += len(await teach(at, ANNA, "quetzal", 10, count))
        at.service.learner.want("default")
        await until(lambda: rows(at, tables.rollouts))
        gate = json.loads(rows(at, tables.rollouts)[0].data)["gate"]
        assert gate["tasks"] >= 8
        assert [*files_with(tmp_path / "spaces", "quetzal")]
        assert (await forget_user(at.service, "default", "anna")).left == 0
        assert [*files_with(tmp_path, "quetzal")] == []


@pytest.mark.parametrize("waited_for", [True, False])
@asynchronous
async def test_a_round_under_way_is_interrupted_and_hands_over_nothing_of_the_user(
    long_place: Place, waited_for: bool
) -> None:
    async with served(**long_place, **{**EPISODES, "learn": False}) as at:
        learner, begun, go_on = at.service.learner, Event(), Event()
        await teach(at, ANNA, "quetzal", 8)
        await teach(at, BEN, "albatross", 8)
        hand_over = learner._hand_over

        def slow(space: Any) -> Any:
            begun.set()
            assert go_on.wait(30)
            return hand_over(space)

        learner._hand_over = slow  # type: ignore[method-assign]
        learner.start()
        learner.want("default")
        await until(begun.is_set)
        forgetting = asyncio.create_task(forget_user(at.service, "default", "anna"))
        await until(lambda: learner._ended)
        if not waited_for:
            forgetting.cancel()
        go_on.set()
        if waited_for:
            assert (await forgetting).left == 0
        await until(lambda: at.service.learner is not learner)
        assert {row.user for row in rows(at, tables.interactions)} == {"ben"}
        await learn(at)
        assert "The albatross team" in texts(at)
        assert "quetzal" not in texts(at)


@asynchronous
async def test_who_else_writes_is_waited_for_by_asking_again(long_place: Place) -> None:
    async with served(**long_place, **EPISODES) as at:
        await teach(at, ANNA, "quetzal", 2)
        folder = at.service.spaces["default"].folder
        async with writing(folder):
            with pytest.raises(RunBusy, match="another process is writing to"):
                await forget_user(at.service, "default", "anna")
        assert at.service.learner.is_alive()
        assert len(rows(at, tables.interactions)) == 2
        with at.service.log.database.alone(f"learning in {at.service.spaces['default'].id}"):
            if at.service.log.database.shared:
                with pytest.raises(RunBusy, match="another node learns in space default: ask again"):
                    await forget_user(at.service, "default", "anna")
        assert (await forget_user(at.service, "default", "anna")).interactions == 2


@pytest.mark.postgres
@asynchronous
async def test_other_nodes_hear_of_it(postgresql: str, tmp_path: Path) -> None:
    where = make_url(postgresql)
    async with (
        served(where, folder=tmp_path / "a", **EPISODES) as a,
        served(where, folder=tmp_path / "b", **{**EPISODES, "learn": False}) as b,
    ):
        await teach(a, ANNA, "quetzal", 8)
        await teach(a, BEN, "albatross", 8)
        await learn(a)
        await until(lambda: "quetzal" in texts(b) and len(b.service.spaces["default"].corrections) == 16)
        assert (await forget_user(a.service, "default", "anna")).left == 0
        await until(lambda: "quetzal" not in texts(b) and len(b.service.spaces["default"].corrections) == 8)
        assert "The quetzal team" not in await b.shown("Which team looks after the quetzal number 3?")
        assert "The albatross team" in texts(b)


async def kept(folder: Path) -> None:
    """Let a service learn from two users, and end."""
    async with served(folder, spaces=("default", "other"), **EPISODES) as at:
        await teach(at, ANNA, "quetzal", 8)
        await teach(at, BEN, "albatross", 8)
        await learn(at)
        await at.ask("Which quetzal?", {**ANNA, "x-practicum-space": "other"})


def test_the_command_line_writes_and_forgets_what_a_store_keeps(tmp_path: Path) -> None:
    store = tmp_path / "practicum-store"
    asyncio.run(kept(store))
    (store / "llama.log").write_text("prompt: Which team looks after the quetzal number 1?\n")
    done = run_command(["export", "practicum-store", "--user", "anna", "--output", "anna.jsonl"], tmp_path)
    assert (done.code, done.err) == (0, "")
    items = [json.loads(line) for line in (tmp_path / "anna.jsonl").read_text().splitlines()]
    assert {item["space"] for item in items} == {"default", "other"}
    assert "quetzal" in said(items, "entry")
    assert "albatross" not in str(items)
    shown = run_command(["export", "practicum-store", "--user", "anna", "--space", "other"], tmp_path)
    assert [json.loads(line)["what"] for line in shown.out.splitlines()] == ["interaction"]

    forget = ["forget", "practicum-store", "--user", "anna"]
    assert "add --yes to go on" in run_command(forget, tmp_path).err
    done = run_command([*forget, "--text", "--yes"], tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "space default: 8 interactions, 8 outcomes, 8 corrections removed" in done.out
    assert "space other: 1 interaction, 0 outcomes, 0 corrections removed" in done.out
    (tmp_path / "anna.jsonl").unlink()
    assert [*files_with(tmp_path, *SECRETS)] == []
    assert [*files_with(tmp_path, "albatross")] == ["service.sqlite", "run.sqlite"]
    again = run_command([*forget, "--yes"], tmp_path)
    assert (again.code, "nothing is kept of a user 'anna'" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["forget", "away", "--user", "u", "--yes"], "away is no store of a service"),
        (["export", "away", "--user", "u"], "away is no store of a service"),
        (["forget", "away", "--user", "u", "--task", "t1", "--yes"], "--user"),
        (["forget", "away", "--space", "default", "--yes"], "--space"),
    ],
)
def test_what_does_not_fit_is_said(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = run_command(arguments, tmp_path)
    assert done.code != 0
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize(("command", "asked"), [("forget --yes", "DELETE"), ("export", "GET")])
def test_a_store_in_use_says_whom_to_ask(command: str, asked: str, tmp_path: Path) -> None:
    database = FolderDatabase(tmp_path / "store")
    try:
        done = run_command([*command.split(), "store", "--user", "anna"], tmp_path)
        assert done.err.endswith(f"ask the service itself: {asked} /v1/user\n")
    finally:
        database.close()


@asynchronous
async def test_a_users_notes_are_the_users_too(long_place: Place, tmp_path: Path) -> None:
    async with served(**long_place) as at:
        note = {"text": "The quetzal is fed at noon.", "about": "feeding"}
        assert (await at.send("POST", "/v1/notes", note, ANNA)).json["note"] == "waits for review"
        assert (await at.send("POST", "/v1/notes", {"text": "The albatross is fed at ten."})).status == 200
        assert "quetzal" in said(await export_user(at.service, "default", "anna"), "correction")
        assert (await forget_user(at.service, "default", "anna")).left == 0
        with pytest.raises(Unknown):
            await forget_user(at.service, "default", "anna")
        assert "albatross" in await at.shown("When is the albatross fed?")
    assert not [*files_with(tmp_path, "quetzal")]


@pytest.mark.postgres
@asynchronous
async def test_no_node_takes_feedback_on_what_another_one_forgot(postgresql: str, tmp_path: Path) -> None:
    url = make_url(postgresql)
    async with served(url, folder=tmp_path / "a") as a, served(url, folder=tmp_path / "b") as b:
        id = (await b.ask("Where is the quetzal kept?", ANNA)).interaction
        assert (await b.report(interaction=id, score=1.0)).status == 200
        await forget_user(a.service, "default", "anna")
        assert (await b.report(interaction=id, target="In the quetzal house.")).status == 404
        assert rows(a, tables.corrections) == []


@asynchronous
async def test_a_service_that_runs_is_asked_over_http(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await teach(at, ANNA, "quetzal", 2)
        data = (await at.send("GET", "/v1/user?user=anna")).json
        assert {item["what"] for item in data["items"]} == {"interaction", "outcome", "correction"}
        gone = await at.send("DELETE", "/v1/user", {"user": "anna"})
        assert (gone.status, gone.json["interactions"], gone.json["left"]) == (200, 2, 0)
        assert (await at.send("DELETE", "/v1/user", {"user": "anna"})).status == 404
        assert (await at.send("GET", "/v1/user?user=anna")).status == 404
        assert (await at.send("DELETE", "/v1/user", {"user": 5})).status == 400
