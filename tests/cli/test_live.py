"""The live view of a run: waits and downloads."""

from __future__ import annotations

import re
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


def console(terminal: bool = True) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=80, color_system=None)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def last_line(console: Console) -> str:
    """The last drawn bar."""
    lines = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", printed(console))
    return [line.rstrip() for line in lines if line.strip()][-1]


def test_the_bar_shows_a_wait_with_its_time() -> None:
    screen = console()
    splits = Splits(tuple(make_tasks(8)), tuple(make_tasks(2)))
    config = Config(method="ace", model="scripted:model", profile="full", scorer="exact")
    with Terminal(screen) as live:
        live.began(RunInfo(Path("run"), config, splits, Budget(spent=Usage())))
        live.waiting(Wait("m", 20.0, 1, 6, "status 429", limited=True))
    assert "rate limited: waiting 20 s (try 2 of 6)" in last_line(screen)
