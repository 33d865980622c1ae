"""The live view of a run at a terminal."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from helpers import make_tasks
from rich.console import Console

from practicum.cli.live import Terminal
from practicum.core.types import Usage
from practicum.models.budget import Budget
from practicum.models.client import Wait
from practicum.session.config import Config, Splits
from practicum.session.result import RunInfo


def test_the_bar_shows_a_wait_with_its_time() -> None:
    drawn = StringIO()
    splits = Splits(tuple(make_tasks(8)), tuple(make_tasks(2)))
    config = Config(method="ace", model="scripted:model", profile="full", scorer="exact")
    with Terminal(Console(file=drawn, force_terminal=True, width=80, color_system=None)) as live:
        live.began(RunInfo(Path("run"), config, splits, Budget(spent=Usage())))
        live.waiting(Wait("m", 20.0, 1, 6, "status 429", limited=True))
    assert "rate limited: waiting 20 s (try 2 of 6)" in drawn.getvalue()
