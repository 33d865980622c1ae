"""docs/service.md, "One user's data": written out as a whole, and removed with all that was learned from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from service_kit import (
    LEARNING,
    Browser,
    Client,
    Service,
    command,
    files_with,
    learn_live,
    new_space,
    refused,
    serving,
    teach,
    told,
    unique,
    until,
)
from service_model import Model

import practicum

LEARNED_FROM_USERS = (*LEARNING, "--trust-users")


@pytest.fixture
def crowd(passing: Service) -> Client:
    """A new space of the service that learns from users."""
    return new_space(passing.client)


def every_answer(space: Client, *interactions: str) -> str:
    """All that the operations, the pages and the prompts say of a space."""
    texts = [json.dumps(space.get(path, **query)) for path, query in (
        ("/v1/interactions", {"limit": 200}), ("/v1/corrections", {"state": "live"}),
        ("/v1/corrections", {"state": "waiting"}), ("/v1/corrections", {"state": "replaced"}), ("/v1/review", {}),
        ("/v1/history", {}), ("/v1/playbook", {"limit": 200}),
    )]  # fmt: skip
    browser, at = Browser(space), f"/s/{space.space}"
    assert browser.sign_in(space.headers["x-practicum-key"]).status == 303
    for path in ("", "/entries", "/versions", "/review", "/episodes", "/lessons", "/corrections", "/costs", "/alarms"):
        page = browser.get(at + path)
        assert page.status == 200
        texts.append(page.text)
    texts += [browser.get(f"{at}/episodes/{id}").text for id in interactions]
    return "\n".join(texts)


def test_a_user_is_written_out_with_all_that_came_of_it(crowd: Client) -> None:
    word = unique("quetzal")
    anna = crowd.as_user("anna")
    ids = teach(anna, 8, word)
    teach(crowd.as_user("ben"), 8, "albatross")
    learn_live(crowd)
    anna.post("/v1/notes", text=f"The {word} is fed at noon.")
    items = crowd.get("/v1/user", user="anna")["items"]
    kinds = {item["type"] for item in items}
    assert {"interaction", "outcome", "correction", "task", "attempt", "edit", "entry"} <= kinds
    assert [item["id"] for item in items if item["type"] == "interaction"] == ids
    assert word in json.dumps([item for item in items if item["type"] == "entry"])
    assert "albatross" not in json.dumps(items)


def test_a_user_is_removed_from_every_answer_from_what_was_learned_and_from_the_files(
    crowd: Client, passing: Service
) -> None:
    word, bird = unique("quetzal"), unique("albatross")
    anna, ben = crowd.as_user("anna"), crowd.as_user("ben")
    ids = teach(anna, 8, word)
    theirs = teach(ben, 8, bird)
    learn_live(crowd)
    # What waits for review and what waits to be learned from.
    anna.report(anna.ask(f"And the other {word}?"), target=f"It is no {word}.")
    ids += teach(anna, 2, word, 100)
    assert f"{word} team" in json.dumps(crowd.get("/v1/playbook", limit=200))
    assert f"{word} team 3" in anna.shown(f"Which team handles {word} 3?")
    done = crowd.send("DELETE", "/v1/user", {"user": "anna"}).json
    assert (done["left"], done["state"]) == (0, "done")
    assert done["interactions"] == len(ids) + 2
    assert done["entries"] > 0
    assert word not in every_answer(crowd, theirs[0])
    assert ids[0] not in every_answer(crowd)
    assert "anna" not in every_answer(crowd)
    assert crowd.ask("Which team handles case 3?").prompt.count(word) == 0
    assert files_with(passing.store, word, *ids) == []
    # Others keep all of theirs.
    assert f"{bird} team 3" in crowd.shown(f"Which team handles {bird} 3?")
    assert f"{bird} team" in json.dumps(crowd.get("/v1/playbook", limit=200))
    assert crowd.report(theirs[0], score=0.5)["status"] == "changed"
    # Of the user nothing is known, and the removal is recorded without a name.
    refused(crowd.try_report(ids[0], score=1.0), "interaction.unknown")
    refused(crowd.send("DELETE", "/v1/user", {"user": "anna"}), "user.unknown")
    refused(crowd.send("GET", "/v1/user?user=anna"), "user.unknown")
    assert [one["state"] for one in crowd.get("/v1/history")["erasures"]] == ["done"]
    # The space goes on learning.
    teach(ben, 8, "pelican")
    learn_live(crowd)
    assert "pelican team" in json.dumps(crowd.get("/v1/playbook", limit=200))


def test_scores_of_a_user_are_counted_no_more(crowd: Client) -> None:
    teach(crowd.as_user("ben"), 8, "albatross")
    learn_live(crowd)

    def credits() -> dict[str, tuple[int, float]]:
        return {one["item"]: (one["scored"], one["mean"]) for one in crowd.get("/v1/history")["credits"]}

    before = credits()
    anna = crowd.as_user("anna").in_session("hers")
    crowd.report(anna.ask("The albatross number 1?"), score=1.0)
    crowd.report(session="hers", score=0.5)
    assert credits() != before
    assert crowd.send("DELETE", "/v1/user", {"user": "anna"}).status == 200
    assert credits() == before


def test_a_session_with_others_is_learned_from_again_without_the_user(crowd: Client) -> None:
    word, both = unique("quetzal"), crowd.in_session("table 4")
    teach(crowd.as_user("ben"), 8, "albatross")
    both.as_user("anna").ask(f"May I pay for the {word}?")
    last = both.as_user("ben").ask("And what do I owe for the soup?")
    crowd.report(session="table 4", comment="He paid.", score=0.0)
    learn_live(crowd)
    done = crowd.send("DELETE", "/v1/user", {"user": "anna"}).json
    assert (done["left"], done["again"], done["interactions"], done["outcomes"]) == (0, 1, 1, 0)
    assert word not in json.dumps(crowd.get("/v1/playbook", limit=200))
    assert crowd.report(last, score=0.0)["status"] == "repeated"
    assert crowd.metric("practicum_outcomes_waiting", space=crowd.space) == 1


def test_a_users_notes_are_the_users_too(crowd: Client, passing: Service) -> None:
    word = unique("quetzal")
    crowd.as_user("anna").post("/v1/notes", text=f"The {word} is fed at noon.", about="feeding")
    crowd.post("/v1/notes", text="The albatross is fed at ten.")
    assert crowd.send("DELETE", "/v1/user", {"user": "anna"}).json["corrections"] == 1
    refused(crowd.send("DELETE", "/v1/user", {"user": "anna"}), "user.unknown")
    assert "albatross" in crowd.shown("When is the albatross fed?")
    assert files_with(passing.store, word) == []


def test_other_spaces_keep_what_they_have_of_the_user(passing: Service) -> None:
    one, two = new_space(passing.client), new_space(passing.client)
    for space in (one, two):
        teach(space.as_user("anna"), 1)
    assert one.send("DELETE", "/v1/user", {"user": "anna"}).json["interactions"] == 1
    assert len(two.get("/v1/user", user="anna")["items"]) == 3


@pytest.mark.slow
def test_rules_that_a_model_wrote_are_gone_with_their_prompts(model: Model, tmp_path: Path) -> None:
    word = unique("quetzal")

    def write(body: dict[str, object]) -> str:
        about = word if word in json.dumps(body) else "albatross"
        rule = {"text": f"The {about} has an office of its own.", "section": "strategies"}
        form = {"reasoning": "", "diagnosis": "", "cause": "", "correction": "", "tags": [], "insights": [rule]}
        return json.dumps({**form, "changes": [{"op": "ADD", "insights": [n]} for n in range(1, 9)]})

    model.answers['"response_format"'] = write  # type: ignore[assignment]
    options = (*LEARNED_FROM_USERS, "--method", "ace", "--profile", "full")
    try:
        with serving(model, tmp_path / "store", *options) as service:
            client = service.client
            teach(client.as_user("anna"), 6, word)
            learn_live(client)
            assert word in json.dumps(client.entries())
            done = client.send("DELETE", "/v1/user", {"user": "anna"}).json
            assert (done["left"], done["interactions"]) == (0, 6)
            assert word not in json.dumps(client.entries())
            assert word not in client.shown("Where is the office?")
            assert files_with(tmp_path / "store", word) == []
    finally:
        del model.answers['"response_format"']


@pytest.mark.slow
def test_practicum_export_and_forget_do_the_same_on_a_store(model: Model, tmp_path: Path) -> None:
    store, word = tmp_path / "store", unique("quetzal")
    with serving(model, store, *LEARNED_FROM_USERS, "--space", "default", "--space", "other") as service:
        teach(service.client.as_user("anna"), 8, word)
        teach(service.client.as_user("ben"), 8, "albatross")
        learn_live(service.client)
        service.client.in_space("other").as_user("anna").ask(f"Which {word}?")
        until(lambda: service.client.get("/health")["unwritten"] == 0)
        service.stop()
    (store / "llama.log").write_text(f"prompt: Which team looks after the {word} number 1?\n")
    done = command("export", store, "--user", "anna", "--output", tmp_path / "anna.jsonl")
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in (tmp_path / "anna.jsonl").read_text().splitlines()]
    assert {item["space"] for item in items} == {"default", "other"}
    assert "albatross" not in json.dumps(items)
    (tmp_path / "anna.jsonl").unlink()
    assert command("space", "forget", store, "--user", "anna").returncode != 0
    done = command("space", "forget", store, "--user", "anna", "--yes")
    assert done.returncode == 0, done.stderr
    assert files_with(store, word) == []
    assert "practicum.sqlite" in files_with(store, "albatross")
    assert command("space", "forget", store, "--user", "anna", "--yes").returncode == 2
    with serving(model, store, *LEARNED_FROM_USERS) as service:
        assert "albatross" in service.client.shown("Which team handles albatross 3?")


@pytest.mark.slow
def test_practicum_forget_removes_what_was_learned_from_an_attempt_beside_the_service(
    crowd: Client, passing: Service
) -> None:
    word, bird = unique("quetzal"), unique("albatross")
    teach(crowd, 8, word)
    teach(crowd, 8, bird)
    learn_live(crowd)
    run = passing.store / "spaces" / crowd.space
    entry = next(one for one in crowd.get("/v1/playbook", limit=200)["entries"] if word in one["text"])
    done = command("space", "forget", run, "--entry", entry["id"], "--yes")
    assert done.returncode == 0, done.stderr
    until(lambda: entry["text"] not in crowd.entries())
    assert f"{bird} team" in json.dumps(crowd.entries())


@pytest.mark.parametrize("face", ["command", "program"])
def test_a_user_is_removed_beside_the_service_too(face: str, keyed: Service) -> None:
    space = new_space(keyed.client)
    folder, word = keyed.store / "spaces" / space.space, unique("quetzal")
    anna = space.as_user("anna")
    ids = [anna.ask(f"Which team handles {word} {n}?").interaction for n in range(3)]
    anna.post("/v1/notes", text=f"The {word} is fed at noon.")
    note = space.post("/v1/review", id="c1", decision="approve")["id"]
    assert word in space.shown("When is it fed?")
    kept = space.as_user("ben").ask("Which team handles the albatross?")

    async def program() -> tuple[list[dict[str, object]], dict[str, object]]:
        async with practicum.open(folder) as opened:
            return await opened.export_user("anna"), (await opened.forget_user("anna")).as_json()

    if face == "program":
        items, done = practicum.run_sync(program())
    else:
        items = told("export", folder, "--user", "anna")["items"]
        (done,) = told("space", "forget", folder, "--user", "anna", "--yes")["spaces"]
    assert [item["id"] for item in items if item["type"] == "interaction"] == ids
    assert {item["id"] for item in items if item["type"] == "correction"} == {note}
    assert (done["interactions"], done["corrections"], done["left"]) == (3, 1, 0)
    until(lambda: word not in space.shown("When is it fed?"))
    refused(space.try_report(ids[0], score=1.0), "interaction.unknown")
    refused(space.send("GET", "/v1/user?user=anna"), "user.unknown")
    assert space.report(kept, score=0.5)["status"] == "kept"
    assert files_with(keyed.store, word, *ids) == []


def test_of_a_user_whom_no_space_knows_nothing_is_written_out(keyed: Service) -> None:
    space = new_space(keyed.client)
    for words, options in ((("export",), ()), (("space", "forget"), ("--yes",))):
        done = command(*words, keyed.store / "spaces" / space.space, "--user", "nobody", *options, "--json")
        assert json.loads(done.stdout)["error"]["code"] == "user.unknown"
        done = command(*words, keyed.store, "--user", "anna", "--space", "away", *options, "--json")
        assert json.loads(done.stdout)["error"]["code"] == "user.unknown"
