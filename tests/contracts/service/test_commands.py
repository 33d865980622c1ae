"""Commands at a served space (docs/serve/programs.md): they change a space with a running service and without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from service_kit import BODIES, CHAT, Client, Service, code_of, files_with, run_json, serving_here, slow, unique, until
from service_model import Model

import practicum


def edited(folder: Path, tmp_path: Path, text: str) -> int:
    """Edit the playbook as a file; returns the version."""
    (tmp_path / "playbook.md").write_text(f"# Playbook\n\n## rules\n\n- {text}\n")
    version: int = run_json("space", "edit", folder, "--file", tmp_path / "playbook.md", "--yes")["version"]
    return version


def test_an_edit_a_rollback_and_a_name_are_live_at_once_and_are_not_tried(
    space: Client, folder: Path, tmp_path: Path
) -> None:
    version = edited(folder, tmp_path, "Quetzals are cards.")
    until(lambda: "Quetzals" in space.shown())
    assert (space.health()["version"], space.entries()) == (version, ["Quetzals are cards."])
    space.post("/v1/rollback", version=0)
    birds = edited(folder, tmp_path, "Quetzals are birds.")
    until(lambda: "birds" in space.shown())
    # A version that follows from the live one is not a rollout.
    assert [one["reason"] for one in space.rollouts()] == ["edited by hand"] * 2
    run_json("space", "name", folder, "live", 0)
    until(lambda: space.health()["version"] == 0)
    assert "Quetzals" not in space.shown()
    run_json("space", "name", folder, "live", birds)
    version = run_json("space", "rollback", folder, 0, "--yes")["version"]
    until(lambda: space.health()["version"] == version)
    assert space.entries() == []
    assert [one["state"] for one in space.rollouts()] == ["promoted"] * 3
    # A rollback to a later version moves the sessions of an earlier one too.
    one, two, _ = (edited(folder, tmp_path, f"Ibises are {word}.") for word in ("cards", "birds", "far"))
    run_json("space", "name", folder, "live", one)
    until(lambda: space.in_session("s").ask().version == one)
    version = run_json("space", "rollback", folder, two, "--yes")["version"]
    until(lambda: space.health()["version"] == version)
    assert space.in_session("s").ask("And now?").version == version


def test_reviews_user_data_and_keys_are_changed_at_an_address(locked: Client) -> None:
    user, name = locked.as_user("anna"), unique("key")
    user.report(user.ask("Name a quetzal."), target="Birds.")
    user.report(user.ask("Name an ibis, then."), target="Birds, too.")
    there = (locked.url, "--space", locked.space, "--key", locked.key)
    first, second = run_json("review", *there)["corrections"]
    options = ("--approve", first["id"], "--reject", second["id"], "--reason", "no")
    decided = run_json("review", *there, *options)["decided"]
    assert [(one["id"], one["state"]) for one in decided] == [(first["id"], "live"), (second["id"], "rejected")]
    assert run_json("review", *there)["corrections"] == []
    assert code_of("review", *there, "--approve", second["id"]) == "review.decided"
    for local in (("--undo", "c1"), ("--try", "all"), ("--approve", "all"), ("--limit", 1)):
        assert code_of("review", *there, *local) == "settings.unused"
    anna = (*there, "--user", "anna")
    assert "Name a quetzal." in json.dumps(run_json("export", *anna)["items"])
    (done,) = run_json("space", "forget", *anna, "--yes")["spaces"]
    assert (done["user"], done["interactions"], done["left"]) == ("anna", 2, 0)
    assert code_of("export", *anna) == "user.unknown"
    assert code_of("export", locked.url) == code_of("space", "forget", locked.url) == "settings.missing"
    store = ("--store", locked.url, "--key", locked.key)
    added = run_json("key", "add", name, "--grant", "ask", "--space", locked.space, *store)
    assert (added["name"], added["space"], added["roles"]) == (name, locked.space, ["ask"])
    assert locked.with_key(added["key"]).ask()
    assert name in [one["name"] for one in run_json("key", "list", *store)["keys"]]
    assert run_json("key", "remove", name, "--space", locked.space, *store)["name"] == name
    locked.with_key(added["key"]).send("POST", CHAT, BODIES[CHAT]).refused("key.wrong")


def test_commands_and_programs_read_the_live_version_while_the_service_runs(keyed: Service, tmp_path: Path) -> None:
    space = keyed.client.new_space()
    folder = keyed.store / "spaces" / space.space
    edited(folder, tmp_path, "Quetzals are cards.")
    assert [entry["text"] for entry in run_json("show", folder)["entries"]] == ["Quetzals are cards."]
    assert "Quetzals are cards." in json.dumps(run_json("space", "diff", folder, 0, 1))
    assert "Quetzals are cards." in run_json("export", folder)["text"]
    run_json("view", folder, "--output", tmp_path / "pages")
    assert files_with(tmp_path / "pages", "Quetzals are cards.")
    # During a rollout, too.
    space.teach(6)
    candidate, live = space.learn(), 1
    assert space.health()["version"] == live
    assert run_json("show", folder)["version"] == live
    assert run_json("show", folder, "--version", candidate)["version"] == candidate
    assert json.loads(run_json("export", folder, "--format", "json")["text"])["version"] == live
    tasks = [practicum.Task("t", "Which team?", "the first team")]

    async def program() -> int:
        async with practicum.open(folder, parts=practicum.Parts(agent=lambda query, context: "none")) as opened:
            with pytest.raises(practicum.UsageError) as caught:
                await opened.learn(tasks)
            assert caught.value.code == "rollout.pending"
            return opened.context.version

    assert practicum.run_sync(program()) == live


@slow
def test_a_run_is_served_with_its_settings_and_changed_without_the_service(model: Model, tmp_path: Path) -> None:
    (tmp_path / "playbook.md").write_text("# Playbook\n\n## rules\n\n- Quetzals are birds.\n")
    run = tmp_path / "run"
    run_json("space", "import", tmp_path / "playbook.md", "--out", run)

    async def config() -> practicum.Config:
        async with practicum.open(run) as space:
            return (await space.show("Which team?")).config

    before = practicum.run_sync(config())
    with serving_here(model, run) as service:
        assert "Quetzals are birds." in service.client.shown()
    assert practicum.run_sync(config()) == before
    version = edited(run, tmp_path, "Quetzals are cards.")
    with serving_here(model, run) as service:
        assert service.client.health()["version"] == version
        assert "Quetzals are cards." in service.client.shown()
        service.client.teach(5)
        asked = [one["id"] for one in service.client.get("/v1/interactions")["interactions"]]
    # A copy has its interactions in the same order.
    run_json("store", "copy", run, tmp_path / "copy")
    with serving_here(model, tmp_path / "copy") as service:
        copied = service.client.get("/v1/interactions")["interactions"]
        assert [one["id"] for one in copied] == asked
