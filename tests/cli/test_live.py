"""The live view of a run on a terminal and elsewhere."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from helpers import client, make_tasks
from rich.console import Console

from practicum import Parts, Task, Trace, evaluate, learn, run_sync
from practicum.cli import live as lives
from practicum.cli.live import Download, Plain, Terminal, live_view
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.types import Prompt, Score, Usage
from practicum.engine.loop import Batch, StepReport
from practicum.engine.state import ModelCall
from practicum.models.budget import Budget
from practicum.models.client import CallOptions, Wait
from practicum.session.config import Config, Splits
from practicum.session.result import Progress, RunInfo

CALL = ModelCall("step 1", "agent", "m", Prompt("", ""), CallOptions(), "a", Usage(1), 60.0)
RULES = Context().apply(Delta(tuple(Add("rules", f"Rule {n}.") for n in range(150)))).context


def console(width: int = 80, terminal: bool = True) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=width, color_system=None)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def last_line(console: Console) -> str:
    """The bar as it was drawn last."""
    lines = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", printed(console))
    return [line.rstrip() for line in lines if line.strip()][-1]


def begin(live: Terminal | Plain, train: int = 8, usage: Usage | None = None) -> None:
    """A run of 8 training and 2 validation tasks begins."""
    splits = Splits(tuple(make_tasks(train)), tuple(make_tasks(2)))
    config = Config(method="ace", model="scripted:model", profile="full", scorer="exact")
    live.began(RunInfo(Path("run"), config, splits, Budget(spent=usage or Usage())))


def drawn(usage: Usage, width: int = 80, **how: int) -> str:
    """The bar after step 412 of 999."""
    screen = console(width)
    step = StepReport(412, Batch(tuple(make_tasks(2)), steps=999), (), (), RULES, (), (), (), 1.0)
    with Terminal(screen) as live:
        begin(live, usage=usage)
        live.called(CALL)
        live.stepped(step, Progress(RULES, RULES, usage=usage, **{"attempts": 1_600, "points": 1_000, **how}))
        live.called(CALL)
    return last_line(screen)


@pytest.mark.parametrize(
    ("usd", "cost"), [(None, "15.2M tokens"), (12.5, "$12.50")], ids=["unknown price", "known price"]
)
def test_all_that_matters_fits_into_eighty_columns(usd: float | None, cost: str) -> None:
    usage = Usage(12_400, 15_000_000, 0, 240_000, usd)
    assert re.match(rf"learning [━╸]+ +412/999 · \d+:\d\d left · score 62% · {re.escape(cost)}", drawn(usage))
    best = drawn(usage, chosen=1_600, chosen_points=1_150)
    assert re.search(rf" 412/999 · \d+:\d\d left · (score )?62%, best of k 72% · {re.escape(cost)}", best)


def test_what_matters_least_is_left_out_of_a_narrow_line() -> None:
    usage = Usage(12_400, 15_000_000, 0, 240_000, 12.5)
    assert drawn(usage, 200).endswith("left · score 62% · $12.50 · 12,400 calls · 150 entries")
    narrow = drawn(usage, 50, chosen=1_600, chosen_points=1_150)
    assert len(narrow) < 50
    assert re.search(r"412/999 · 62%.* · \$12\.50$", narrow)


def test_the_bar_tells_of_the_first_step_before_it_ends() -> None:
    screen, tasks = console(100), make_tasks(8)
    with Terminal(screen) as live:
        begin(live)
        live.stepping(1, 4, 2)
        for n, task in enumerate(tasks[:3]):
            live.called(CALL)
            live.attempted(task, Trace("a"))
            live.scored(task, Score(float(n == 0), n == 0))
    assert re.search(r"0/2 · 3/4 tasks · \d+:\d\d left · score 33%", last_line(screen))


def test_the_tasks_of_the_run_are_counted_where_steps_are_unknown() -> None:
    screen = console()
    with Terminal(screen) as live:
        begin(live)
        live.attempted(make_tasks(1)[0], Trace("a"))
    assert "1/8 tasks" in last_line(screen)


def test_a_wait_is_told_in_the_bar_with_its_time() -> None:
    screen = console()
    with Terminal(screen) as live:
        begin(live)
        live.waiting(Wait("m", 20.0, 1, 6, "status 429", limited=True))
    assert "rate limited: waiting 20 s (try 2 of 6)" in last_line(screen)


def test_waits_are_lines_outside_a_terminal_not_more_than_one_in_a_while() -> None:
    screen = console(200, terminal=False)
    with Plain(screen) as live:
        for _ in range(3):
            live.waiting(Wait("m", 20.0, 2, 6, "status 503: down", limited=False))
    assert printed(screen) == "m: no answer: waiting 20 s (try 3 of 6): status 503: down\n"


def test_the_first_failed_attempt_is_told_when_it_happens() -> None:
    screen = console(200, terminal=False)
    with Plain(screen) as live:
        for error in ("KeyError: 'x'", "another"):
            live.attempted(Task("t1", "?"), Trace("", error=error))
    assert printed(screen) == "the agent failed on task t1: KeyError: 'x'\n"


def test_a_download_is_drawn_on_a_terminal() -> None:
    screen = console()
    with Terminal(screen) as live:
        live.download(5_000_000, 98_000_000)
    assert re.match(r"downloading the model \S+ +5/98 MB", last_line(screen))


def test_steps_are_lines_outside_a_terminal(tmp_path: Path) -> None:
    screen = console(200, terminal=False)
    tasks = make_tasks(6)
    with Plain(screen) as live:
        parts = Parts(clients={"agent": client()})
        how = {"method": "episodes", "settings": {"online": True}, "before": True}
        run_sync(learn(tasks[:4], test=tasks[4:], out=tmp_path / "run", parts=parts, watch=live, **how))
    text = printed(screen)
    assert "episodes on 4 tasks, 2 held out; model scripted, agent chat, profile full\n" in text
    assert re.search(r"^before learning: score \d+\.\d% on 2 tasks$", text, re.MULTILINE)
    assert re.search(r"^learning 4/4: .*score \d+% · [\d.]+k? tokens · 6 calls · 4 entries$", text, re.MULTILINE)


def test_lines_come_before_the_first_step_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "PLAIN_EVERY", 0.0)
    screen, tasks = console(200, terminal=False), make_tasks(4)
    with Plain(screen) as live:
        parts = Parts(clients={"agent": client()})
        settings = {"batch": 4, "online": True}
        run_sync(learn(tasks, out=tmp_path / "run", parts=parts, watch=live, method="episodes", settings=settings))
    assert re.search(r"^learning 0/1: 2/4 tasks · .* calls$", printed(screen), re.MULTILINE)


def test_an_evaluation_names_what_it_evaluates() -> None:
    screen, tasks = console(200), make_tasks(3)
    with Terminal(screen) as live:
        run_sync(evaluate(tasks, RULES, repeat=2, parts=Parts(clients={"agent": client()}), watch=live))
    assert "on 3 tasks; model scripted, agent chat, profile full; context: version 1, 150 entries" in printed(screen)
    assert re.search(r"evaluation \S+ +6/6 · .*score \d+%", last_line(screen))


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(live_view(console()), Terminal)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(live_view(Console(force_terminal=True)), Plain)


def test_a_download_is_reported_at_every_tenth() -> None:
    screen = console(terminal=False)
    report = Download(screen)
    for done in range(0, 101, 5):
        report(done * 10**6, 100 * 10**6)
    assert printed(screen).count("downloading") == 11


@pytest.mark.parametrize("kind", [Plain, Terminal])
def test_what_hides_in_a_task_or_an_error_is_shown_and_makes_no_line(kind: type[Plain | Terminal]) -> None:
    screen = console(300, terminal=kind is Terminal)
    with kind(screen) as live:
        live.attempted(Task("t\n\x1b[2Jdone\u202e", "x"), Trace("", error="a\u2028b\x9b31m\u200b"))
    text = "".join(re.split(r"\x1b\[[0-9;?]*[A-Za-z]", printed(screen)))
    assert r"the agent failed on task t\n\x1b[2Jdone\u{202e}: a b\x9b31m\u{200b}" in text
    assert not re.search("[\u202e\u200b\x9b]", text)


def test_the_bar_shows_on_which_nodes_attempts_are_in_flight() -> None:
    screen = console()
    with Terminal(screen) as live:
        begin(live)
        live.spread({"a": 16, "b": 0})
        live.stepping(1, 8, 4)
    assert "2 nodes: 16+0" in last_line(screen)
    assert len(last_line(screen)) <= 80
    live.spread({f"node {n}": n for n in range(12)})
    assert live.status().nodes == "12 nodes: 0 to 11 each"
