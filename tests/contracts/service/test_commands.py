"""docs/service.md, "Spaces": commands change a space that is served as the service does, beside it and without it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from service_kit import Client, Service, command, new_space, serving, told, until
from service_model import Model


def edited(folder: Path, tmp_path: Path, text: str) -> int:
    """Edit the playbook as a file; returns the version."""
    (tmp_path / "playbook.md").write_text(f"# Playbook\n\n## rules\n\n- {text}\n")
    version: int = told("edit", folder, "--file", tmp_path / "playbook.md", "--yes")["version"]
    return version


def test_an_edit_is_live_at_once(space: Client, folder: Path, tmp_path: Path) -> None:
    version = edited(folder, tmp_path, "Quetzals are cards.")
    until(lambda: "Quetzals" in space.shown())
    assert space.health()["version"] == version
    assert space.entries() == ["Quetzals are cards."]


def test_a_rollback_is_live_at_once_and_is_not_tried(space: Client, folder: Path, tmp_path: Path) -> None:
    edited(folder, tmp_path, "Quetzals are cards.")
    version = told("rollback", folder, 0, "--yes")["version"]
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
    told("name", folder, "live", 0)
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


READING: dict[str, tuple[object, ...]] = {
    "show": (), "diff": (0, 1), "export": (), "view": ("--output", "page.html"), "review": (),
}  # fmt: skip


@pytest.mark.parametrize("name", READING)
def test_what_reads_works_beside_the_service(
    name: str, space: Client, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(folder, tmp_path, "Quetzals are cards.")
    monkeypatch.chdir(tmp_path)
    done = command(name, folder, *READING[name])
    assert done.returncode == 0, done.stderr


def test_its_versions_are_scored_beside_the_service(keyed: Service, tmp_path: Path) -> None:
    """With the model that the space learns with."""
    folder = keyed.store / "spaces" / new_space(keyed.client).space
    edited(folder, tmp_path, "Quetzals are cards.")
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"input": "say one", "target": "one"}) + "\n")
    (start,) = told("dynamics", folder, "--tasks", tmp_path / "tasks.jsonl")["checkpoints"]
    assert start["current"] == 0.0
