"""The live view of a run on a terminal and elsewhere."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from helpers import client, make_tasks
from rich.console import Console

from practicum import Parts, learn, run_sync
from practicum.cli.live import Download, Live
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.types import Usage
from practicum.engine.loop import Batch, StepReport
from practicum.session.result import Progress


def on_terminal() -> Console:
    return Console(file=StringIO(), force_terminal=True, width=80, color_system=None)


def last_line(console: Console) -> str:
    """The bar as it was drawn last."""
    assert isinstance(console.file, StringIO)
    lines = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", console.file.getvalue())
    return [line.rstrip() for line in lines if line.strip()][-1]


@pytest.mark.parametrize(
    ("usd", "cost"), [(None, "15.2M tokens"), (12.5, "$12.50")], ids=["unknown price", "known price"]
)
def test_the_bar_fits_into_eighty_columns(usd: float | None, cost: str) -> None:
    console = on_terminal()
    context = Context().apply(Delta(tuple(Add("rules", f"Rule {n}.") for n in range(150)))).context
    step = StepReport(412, Batch(tuple(make_tasks(2)), steps=999), (), (), context, (), (), (), 1.0)
    usage = Usage(12_400, 15_000_000, 0, 240_000, usd)
    with Live(console) as live:
        live.evaluated("before", 0.5, 2)
        live.stepped(step, Progress(context, context, attempts=1_600, points=1_000, usage=usage))
    assert re.match(rf"\S* +412/999 score 62% · 150 entries · 12,400 calls · {re.escape(cost)}", last_line(console)[9:])


def test_the_bar_has_room_for_the_best_of_k() -> None:
    console = on_terminal()
    context = Context().apply(Delta(tuple(Add("rules", f"Rule {n}.") for n in range(150)))).context
    step = StepReport(412, Batch(tuple(make_tasks(2)), steps=999), (), (), context, (), (), (), 1.0)
    usage = Usage(12_400, 15_000_000, 0, 240_000, None)
    with Live(console) as live:
        live.evaluated("before", 0.5, 2)
        how = {"attempts": 1_600, "points": 1_000, "chosen": 1_600, "chosen_points": 1_150}
        live.stepped(step, Progress(context, context, usage=usage, **how))
    assert "412/999 62%, best 72% · 150 entries · 12,400 calls · 15.2M tokens" in last_line(console)


def test_a_download_is_drawn_on_a_terminal() -> None:
    console = on_terminal()
    with Live(console) as live:
        live.download(5_000_000, 98_000_000)
    assert re.match(r"download +5/98 MB", last_line(console))


def test_steps_are_lines_outside_a_terminal(tmp_path: Path) -> None:
    console = Console(file=StringIO(), width=200)
    tasks = make_tasks(6)
    with Live(console) as live:
        parts = Parts(clients={"agent": client()})
        how = {"method": "episodes", "settings": {"batch": 1}, "before": True}
        run_sync(learn(tasks[:4], test=tasks[4:], out=tmp_path / "run", parts=parts, watch=live, **how))
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    assert "episodes on 4 tasks, 2 held out" in printed
    assert re.search(r"^before: \d+\.\d% of 2 tasks$", printed, re.MULTILINE)
    assert re.search(r"^step 4 of 4: score \d+% · 4 entries · 6 calls, [\d,]+ tokens", printed, re.MULTILINE)


def test_a_download_is_reported_at_every_tenth() -> None:
    console = Console(file=StringIO())
    report = Download(console)
    for done in range(0, 101, 5):
        report(done * 10**6, 100 * 10**6)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().count("downloading") == 11
