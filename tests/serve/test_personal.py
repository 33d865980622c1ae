"""The removal of a user's data also removes the test tasks of the replay gate; wrong options are refused in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import run_command
from serving import asynchronous, served, until
from users import ANNA, EPISODES, files_with, rows, teach

from practicum.serve.erasing import forget_user
from practicum.session.outcomes import HELD
from practicum.store import schema as tables


@pytest.mark.slow
@asynchronous
async def test_a_removal_also_removes_the_test_tasks_of_the_replay_gate(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "canary": 0.0}) as at:
        count = 0
        while sum(row.state == HELD for row in rows(at, tables.outcomes)) < 8:
            count += len(await teach(at, ANNA, "quetzal", 10, count))
        at.service.learner.want("default")
        await until(lambda: rows(at, tables.rollouts))
        assert json.loads(rows(at, tables.rollouts)[0].data)["gate"]["tasks"] >= 8
        assert [*files_with(tmp_path, "quetzal")]
        assert (await forget_user(at.service, "default", "anna")).left == 0
        assert [*files_with(tmp_path, "quetzal")] == []


def test_options_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    forget = ["space", "forget", "away"]
    for arguments, reason in (
        ([*forget, "--user", "u", "--yes"], "away is not a run folder"),
        (["export", "away", "--user", "u"], "away is not a run folder"),
        ([*forget, "--user", "u", "--task", "t1", "--yes"], "--user"),
        ([*forget, "--space", "default", "--yes"], "--space"),
    ):
        done = run_command(arguments, tmp_path)
        assert (done.code != 0, reason in done.err, len(done.err.splitlines())) == (True, True, 1), arguments
    assert not (tmp_path / "away").exists()
