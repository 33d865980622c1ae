"""docs/service.md, "Spaces": commands change a space that is served as the service does, beside it and without it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from service_kit import (
    BODIES,
    CHAT,
    LEARNING,
    Client,
    Service,
    command,
    learn,
    new_space,
    refused,
    serving,
    teach_to_try,
    run_json,
    unique,
    until,
)
from service_model import Model

import practicum


def edited(folder: Path, tmp_path: Path, text: str) -> int:
    """Edit the playbook as a file; returns the version."""
    (tmp_path / "playbook.md").write_text(f"# Playbook\n\n## rules\n\n- {text}\n")
    version: int = run_json("space", "edit", folder, "--file", tmp_path / "playbook.md", "--yes")["version"]
    return version


def code_of(*words: object) -> str:
    """The code of the error with which a command fails."""
    done = command(*words, "--json")
    assert done.returncode == 2, done.stdout
    return str(json.loads(done.stdout)["error"]["code"])


def test_an_edit_is_live_at_once(space: Client, folder: Path, tmp_path: Path) -> None:
    version = edited(folder, tmp_path, "Quetzals are cards.")
    until(lambda: "Quetzals" in space.shown())
    assert space.health()["version"] == version
    assert space.entries() == ["Quetzals are cards."]


def test_a_rollback_is_live_at_once_and_is_not_tried(space: Client, folder: Path, tmp_path: Path) -> None:
    edited(folder, tmp_path, "Quetzals are cards.")
    version = run_json("space", "rollback", folder, 0, "--yes")["version"]
    until(lambda: space.health()["version"] == version)
    assert space.entries() == []
    assert [one["state"] for one in space.get("/v1/history")["rollouts"]] == ["promoted", "promoted"]


def test_what_follows_from_the_live_version_again_is_no_rollout(space: Client, folder: Path, tmp_path: Path) -> None:
    edited(folder, tmp_path, "Quetzals are cards.")
    space.post("/v1/rollback", version=0)
    edited(folder, tmp_path, "Quetzals are birds.")
    until(lambda: "birds" in space.shown())
    assert [one["reason"] for one in space.get("/v1/history")["rollouts"]] == ["edited by hand"] * 2


def test_a_name_moves_what_is_live(space: Client, folder: Path, tmp_path: Path) -> None:
    edited(folder, tmp_path, "Quetzals are cards.")
    run_json("space", "name", folder, "live", 0)
    until(lambda: space.health()["version"] == 0)
    assert "Quetzals" not in space.shown()


@pytest.mark.slow
def test_without_the_service_a_change_waits_for_its_next_start(model: Model, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(model, store) as service:
        service.client.ask()
        assert service.stop(signal.SIGTERM) == 0
    version = edited(store, tmp_path, "Quetzals are cards.")
    with serving(model, store) as service:
        assert service.client.health()["version"] == version
        assert "Quetzals" in service.client.shown()


def test_a_review_is_decided_at_an_address(locked: Client) -> None:
    user = locked.as_user("anna")
    user.report(user.ask("What are quetzals?"), target="Birds.")
    user.report(user.ask("What are ibises?"), target="Birds, too.")
    there = (locked.url, "--space", locked.space, "--key", locked.key)
    first, second = run_json("review", *there)["corrections"]
    decided = run_json("review", *there, "--approve", first["id"], "--reject", second["id"], "--reason", "no")["decided"]
    assert [(one["id"], one["state"]) for one in decided] == [(first["id"], "live"), (second["id"], "rejected")]
    assert run_json("review", *there)["corrections"] == []
    assert code_of("review", *there, "--approve", second["id"]) == "review.decided"
    for local in (("--undo", "c1"), ("--try", "all"), ("--approve", "all"), ("--limit", 1)):
        assert code_of("review", *there, *local) == "settings.unused"


def test_a_users_data_is_exported_and_forgotten_at_an_address(locked: Client) -> None:
    locked.as_user("anna").ask("My secret is the heron.")
    there = (locked.url, "--space", locked.space, "--key", locked.key, "--user", "anna")
    assert "the heron" in json.dumps(run_json("export", *there)["items"])
    (done,) = run_json("space", "forget", *there, "--yes")["spaces"]
    assert (done["user"], done["interactions"], done["left"]) == ("anna", 1, 0)
    assert code_of("export", *there) == "user.unknown"
    assert code_of("export", locked.url) == code_of("space", "forget", locked.url) == "settings.missing"


def test_keys_are_made_listed_and_removed_at_an_address(locked: Client) -> None:
    name, there = unique("key"), ("--store", locked.url, "--key", locked.key)
    made = run_json("key", "add", name, "--grant", "ask", "--space", locked.space, *there)
    assert (made["name"], made["space"], made["roles"]) == (name, locked.space, ["ask"])
    assert locked.with_key(made["key"]).ask()
    assert name in [one["name"] for one in run_json("key", "list", *there)["keys"]]
    assert run_json("key", "remove", name, "--space", locked.space, *there)["name"] == name
    refused(locked.with_key(made["key"]).send("POST", CHAT, BODIES[CHAT]), "key.wrong")


def test_an_operation_that_reads_leaves_a_run_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "playbook.md").write_text("# Playbook\n\n## rules\n\n- Quetzals are birds.\n")
    run = tmp_path / "run"
    run_json("space", "import", tmp_path / "playbook.md", "--out", run)
    before = run_json("show", run)
    assert run_json("space", "playbook", run)["total"] == 1
    assert run_json("show", run) == before
    assert before["names"] == {}


READING: dict[str, tuple[object, ...]] = {
    "show": (), "space diff": (0, 1), "export": (), "view": ("--output", "page.html"), "review": (),
}  # fmt: skip


@pytest.mark.parametrize("name", READING)
def test_what_reads_works_beside_the_service(
    name: str, space: Client, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(folder, tmp_path, "Quetzals are cards.")
    monkeypatch.chdir(tmp_path)
    done = command(*name.split(), folder, *READING[name])
    assert done.returncode == 0, done.stderr


def test_its_versions_are_scored_beside_the_service(keyed: Service, tmp_path: Path) -> None:
    """With the model that the space learns with."""
    folder = keyed.store / "spaces" / new_space(keyed.client).space
    edited(folder, tmp_path, "Quetzals are cards.")
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"input": "say one", "target": "one"}) + "\n")
    (start,) = run_json("space", "dynamics", folder, "--tasks", tmp_path / "tasks.jsonl")["checkpoints"]
    assert start["current"] == 0.0


def config_of(folder: Path) -> practicum.Config:
    async def shown() -> practicum.Shown:
        async with practicum.open(folder) as space:
            return await space.show("Which team?")

    return practicum.run_sync(shown()).config


def test_what_readers_see_is_the_live_version_while_another_one_is_tried(keyed: Service, tmp_path: Path) -> None:
    space = new_space(keyed.client)
    folder = keyed.store / "spaces" / space.space
    teach_to_try(space)
    candidate = learn(space)
    live = space.health()["version"]
    assert candidate > live
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


@pytest.mark.slow
def test_serving_leaves_the_settings_of_a_run_alone(model: Model, tmp_path: Path) -> None:
    (tmp_path / "playbook.md").write_text("# Playbook\n\n## rules\n\n- Quetzals are cards.\n")
    run = tmp_path / "run"
    run_json("space", "import", tmp_path / "playbook.md", "--out", run)
    before = config_of(run)
    with serving(model, run) as service:
        assert "Quetzals" in service.client.shown()
        assert service.stop(signal.SIGTERM) == 0
    assert config_of(run) == before


@pytest.mark.slow
def test_what_a_program_learns_in_a_space_that_nobody_serves_any_more_is_live(model: Model, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(model, store, *LEARNING) as service:
        service.client.ask()
        assert service.stop(signal.SIGTERM) == 0

    async def learn_one() -> tuple[int, int, int]:
        parts = practicum.Parts(agent=lambda query, context: "the first team", scorer=lambda task, answer: 1.0)
        async with practicum.open(store, parts=parts) as opened:
            await opened.ask("Which team?", learn=True)
            return opened.names["live"], opened.context.version, len(opened.context)

    live, shown, entries = practicum.run_sync(learn_one())
    assert (live, entries) == (shown, 1)
