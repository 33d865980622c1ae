"""The data of one user (docs/serve/outcomes.md): exported as a whole, and deleted with all that was learned from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from service_kit import (
    LEARNING,
    Browser,
    Client,
    Service,
    code_of,
    command,
    files_with,
    run_json,
    serving_here,
    slow,
    unique,
    until,
)
from service_model import Model

import practicum


@pytest.fixture
def crowd(passing: Service) -> Client:
    """A new space of the service that learns from users."""
    return passing.client.new_space()


def every_answer(space: Client, interaction: str) -> str:
    """The answers of all operations and pages of a space."""
    texts = [json.dumps(space.get(path, **query)) for path, query in (
        ("/v1/interactions", {"limit": 200}), ("/v1/corrections", {"state": "live"}),
        ("/v1/corrections", {"state": "waiting"}), ("/v1/corrections", {"state": "replaced"}), ("/v1/review", {}),
        ("/v1/history", {}), ("/v1/playbook", {"limit": 200}),
    )]  # fmt: skip
    browser, at = Browser(space), f"/s/{space.space}"
    assert browser.sign_in(space.headers["x-practicum-key"]).status == 303
    pages = ("", "/entries", "/versions", "/review", "/episodes", "/lessons", "/corrections", "/costs", "/alarms")
    for path in (*pages, f"/episodes/{interaction}"):
        page = browser.get(at + path)
        assert page.status == 200
        texts.append(page.text)
    return "\n".join(texts)


def playbook(space: Client) -> str:
    return json.dumps(space.get("/v1/playbook", limit=200))


def test_a_users_data_is_exported_and_deleted_from_answers_learned_text_and_files(
    crowd: Client, passing: Service
) -> None:
    word, bird = unique("quetzal"), unique("albatross")
    anna, ben = crowd.as_user("anna"), crowd.as_user("ben")
    ids, others = anna.teach(6, word), ben.teach(6, bird)
    crowd.learn_live()
    anna.post("/v1/notes", text=f"The {word} is fed at noon.")
    # Data that waits for review or for the next round.
    anna.report(anna.ask(f"And the other {word}?"), target=f"It is not a {word}.")
    ids += anna.teach(2, word, 100)
    assert f"{word} team" in playbook(crowd)
    assert f"{word} team 3" in anna.shown(f"Which team handles {word} 3?")
    items = crowd.get("/v1/user", user="anna")["items"]
    kinds = {item["type"] for item in items}
    assert {"interaction", "outcome", "correction", "task", "attempt", "edit", "entry"} <= kinds
    assert {*ids} <= {item["id"] for item in items if item["type"] == "interaction"}
    assert word in json.dumps([item for item in items if item["type"] == "entry"])
    assert bird not in json.dumps(items)
    done = crowd.send("DELETE", "/v1/user", {"user": "anna"}).json
    assert (done["left"], done["state"], done["interactions"]) == (0, "done", len(ids) + 2)
    assert done["entries"] > 0
    text = every_answer(crowd, others[0])
    assert [part for part in (word, ids[0], "anna") if part in text] == []
    assert word not in crowd.shown("Which team handles case 3?")
    assert files_with(passing.store, word, *ids) == []
    # Other users' data stays.
    assert f"{bird} team 3" in crowd.shown(f"Which team handles {bird} 3?")
    assert f"{bird} team" in playbook(crowd)
    assert crowd.report(others[0], score=0.5)["status"] == "changed"
    # The deletion is recorded without a name.
    crowd.try_report(ids[0], score=1.0).refused("interaction.unknown")
    crowd.send("DELETE", "/v1/user", {"user": "anna"}).refused("user.unknown")
    crowd.send("GET", "/v1/user?user=anna").refused("user.unknown")
    assert [one["state"] for one in crowd.get("/v1/history")["erasures"]] == ["done"]
    # The space continues to learn.
    ben.teach(6, "pelican")
    crowd.learn_live()
    assert "pelican team" in playbook(crowd)


def test_scores_of_a_deleted_user_are_not_counted(crowd: Client) -> None:
    crowd.add_entry("The albatross has an office.")
    crowd.report(crowd.ask("The albatross number 0?"), score=1.0)

    def credits() -> dict[str, tuple[int, float]]:
        return {one["item"]: (one["scored"], one["mean"]) for one in crowd.get("/v1/history")["credits"]}

    before = credits()
    anna = crowd.as_user("anna").in_session("hers")
    crowd.report(anna.ask("The albatross number 1?"), score=1.0)
    crowd.report(session="hers", score=0.5)
    assert credits() != before
    assert crowd.send("DELETE", "/v1/user", {"user": "anna"}).status == 200
    assert credits() == before


def test_a_session_with_other_users_is_learned_from_again_without_the_user(crowd: Client) -> None:
    word, both = unique("quetzal"), crowd.in_session("table 4")
    crowd.as_user("ben").teach(6, "albatross")
    both.as_user("anna").ask(f"May I pay for the {word}?")
    last = both.as_user("ben").ask("How much do I owe for the soup?")
    crowd.report(session="table 4", comment="He paid.", score=0.0)
    crowd.learn_live()
    done = crowd.send("DELETE", "/v1/user", {"user": "anna"}).json
    assert (done["left"], done["again"], done["interactions"], done["outcomes"]) == (0, 1, 1, 0)
    assert word not in playbook(crowd)
    assert crowd.report(last, score=0.0)["status"] == "repeated"
    assert crowd.metric("practicum_outcomes_waiting", space=crowd.space) == 1


def test_the_notes_of_a_user_are_deleted_in_this_space_only(crowd: Client, passing: Service) -> None:
    other, word = passing.client.new_space(), unique("quetzal")
    crowd.as_user("anna").post("/v1/notes", text=f"The {word} is fed at noon.", about="feeding")
    crowd.post("/v1/notes", text="The albatross is fed at ten.")
    other.as_user("anna").teach(1)
    assert crowd.send("DELETE", "/v1/user", {"user": "anna"}).json["corrections"] == 1
    crowd.send("DELETE", "/v1/user", {"user": "anna"}).refused("user.unknown")
    assert "albatross" in crowd.shown("When is the albatross fed?")
    assert files_with(passing.store, word) == []
    assert len(other.get("/v1/user", user="anna")["items"]) == 3


@slow
def test_practicum_export_and_forget_do_the_same_on_a_store(model: Model, tmp_path: Path) -> None:
    store, word = tmp_path / "store", unique("quetzal")
    options = (*LEARNING, "--trust-users", "--space", "default", "--space", "other")
    with serving_here(model, store, *options) as service:
        service.client.as_user("anna").teach(6, word)
        service.client.as_user("ben").teach(6, "albatross")
        service.client.learn_live()
        service.client.in_space("other").as_user("anna").ask(f"Which {word}?")
        until(lambda: service.client.get("/health")["unwritten"] == 0)
    (store / "llama.log").write_text(f"prompt: Which team looks after the {word} number 1?\n")
    assert command("export", store, "--user", "anna", "--output", tmp_path / "anna.jsonl").code == 0
    items = [json.loads(line) for line in (tmp_path / "anna.jsonl").read_text().splitlines()]
    assert {item["space"] for item in items} == {"default", "other"}
    assert "albatross" not in json.dumps(items)
    (tmp_path / "anna.jsonl").unlink()
    assert command("space", "forget", store, "--user", "anna").code != 0
    run_json("space", "forget", store, "--user", "anna", "--yes")
    assert files_with(store, word) == []
    assert "practicum.sqlite" in files_with(store, "albatross")
    assert code_of("space", "forget", store, "--user", "anna", "--yes") == "user.unknown"
    with serving_here(model, store, *LEARNING, "--trust-users") as service:
        assert "albatross" in service.client.shown("Which team handles albatross 3?")


def test_a_user_is_deleted_by_commands_and_programs_while_the_service_runs(keyed: Service) -> None:
    space = keyed.client.new_space()
    folder, words = keyed.store / "spaces" / space.space, (unique("quetzal"), unique("marzipan"))
    ids, notes = dict[str, list[str]](), dict[str, str]()
    for user, word in zip(("anna", "cora"), words, strict=True):
        asking = space.as_user(user)
        ids[user] = [asking.ask(f"Which team handles {word} {n}?").interaction for n in range(2)]
        notes[user] = asking.post("/v1/notes", text=f"The {word} is fed at noon.")["id"]
        space.post("/v1/review", id=notes[user], decision="approve")
    assert all(word in space.shown("When is it fed?") for word in words)
    other = space.as_user("ben").ask("Which team handles the albatross?")

    async def program() -> tuple[list[dict[str, object]], dict[str, object]]:
        async with practicum.open(folder) as opened:
            return await opened.export_user("anna"), (await opened.forget_user("anna")).as_json()

    exports = {"anna": practicum.run_sync(program())}
    until(lambda: words[0] not in (shown := space.shown("When is it fed?")) and words[1] in shown)
    items = run_json("export", folder, "--user", "cora")["items"]
    exports["cora"] = items, *run_json("space", "forget", folder, "--user", "cora", "--yes")["spaces"]
    for user, (items, done) in exports.items():
        assert [item["id"] for item in items if item["type"] == "interaction"] == ids[user]
        assert {item["id"] for item in items if item["type"] == "correction"} == {notes[user]}
        assert (done["interactions"], done["corrections"], done["left"]) == (2, 1, 0)
        space.try_report(ids[user][0], score=1.0).refused("interaction.unknown")
        space.send("GET", f"/v1/user?user={user}").refused("user.unknown")
    until(lambda: words[1] not in space.shown("When is it fed?"))
    assert space.report(other, score=0.5)["status"] == "kept"
    assert files_with(keyed.store, *words, *ids["anna"], *ids["cora"]) == []
