"""One user's data: written out as a whole, removed with all that was learned from it, and nothing of others with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from helpers import run_command
from serving import asynchronous, served, until
from users import ANNA, BEN, EPISODES, SECRETS, files_with, learn, rows, said, teach

from practicum.serve.erasing import forget_user
from practicum.session.outcomes import HELD
from practicum.store import schema as tables


@pytest.mark.slow
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
        assert [*files_with(tmp_path, "quetzal")]
        assert (await forget_user(at.service, "default", "anna")).left == 0
        assert [*files_with(tmp_path, "quetzal")] == []


async def kept(folder: Path) -> None:
    """Let a service learn from two users, and end."""
    async with served(folder, spaces=("default", "other"), **EPISODES) as at:
        await teach(at, ANNA, "quetzal", 8)
        await teach(at, BEN, "albatross", 8)
        await learn(at)
        await at.ask("Which quetzal?", {**ANNA, "x-practicum-space": "other"})


@pytest.mark.slow
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
    assert [json.loads(line)["type"] for line in shown.out.splitlines()] == ["interaction"]

    forget = ["space", "forget", "practicum-store", "--user", "anna"]
    assert "pass --yes" in run_command(forget, tmp_path).err
    done = run_command([*forget, "--alike", "--yes"], tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "space default: 8 interactions, 8 outcomes, 8 corrections removed" in done.out
    assert "space other: 1 interaction, 0 outcomes, 0 corrections removed" in done.out
    (tmp_path / "anna.jsonl").unlink()
    assert [*files_with(tmp_path, *SECRETS)] == []
    assert [*files_with(tmp_path, "albatross")] == ["practicum.sqlite"]
    again = run_command([*forget, "--yes"], tmp_path)
    assert (again.code, "'anna'" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["space", "forget", "away", "--user", "u", "--yes"], "away is not a run folder"),
        (["export", "away", "--user", "u"], "away is not a run folder"),
        (["space", "forget", "away", "--user", "u", "--task", "t1", "--yes"], "--user"),
        (["space", "forget", "away", "--space", "default", "--yes"], "--space"),
    ],
)
def test_what_does_not_fit_is_said(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = run_command(arguments, tmp_path)
    assert done.code != 0
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "away").exists()
