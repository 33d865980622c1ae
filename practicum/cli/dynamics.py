"""`practicum dynamics`: how a run's learning went, checkpoint by checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from practicum.analysis.dynamics.checkpoints import Dynamics
    from practicum.analysis.dynamics.curves import Window
    from practicum.cli.running import Stopper
    from practicum.core.types import Task

Opt = typer.Option


def dynamics(
    run: Path = typer.Argument(..., help="The run's folder."),
    tasks: Path | None = Opt(None, help="Tasks to score on (default: the run's validation tasks, else test tasks)."),
    window: str = Opt("5", help="Checkpoints that count as recent, in the table and the plot: 5, 10 or all."),
    every: int = Opt(1, min=1, help="Score every so many steps; the start and the last step always."),
    plot: Path | None = Opt(None, help="A PNG file to draw it into."),
    fields: opt.Fields[str] = "",
    concurrency: int | None = Opt(None, min=1, help="Calls in flight at one endpoint (default: as the run's)."),
    json_: opt.Json[bool] = False,
) -> int:
    """Score every checkpoint of a run on the same tasks: what it learned, kept, lost and learned again.

    What training or an earlier call scored is not paid for again. What is paid for here counts as part of the run,
    also in its limits should it go on.
    """
    from practicum.analysis.dynamics.plot import dynamics_plot
    from practicum.analysis.png import check_png
    from practicum.cli.inputs import read_tasks
    from practicum.cli.running import console_for, print_json

    chosen = _window(window)
    if plot is not None:
        check_png(plot, "--plot")
    if fields and tasks is None:
        raise UsageError("--fields names the fields of --tasks: give both, or neither")
    listed = read_tasks(tasks, fields) or None
    console = console_for(json_)
    found = _found(run, listed, every, concurrency, console)
    if json_:
        print_json(found.as_json())
    _report(console, found, chosen)
    if plot is not None:
        title = f"Training dynamics of {run.absolute().name} on {_on(found)}"
        dynamics_plot(found.curves, plot, chosen, steps=[c.step for c in found.checkpoints], title=title)
        console.print(f"drawn in {plot}")
    return 0


def _window(text: str) -> Window:
    from practicum.analysis.dynamics.checkpoints import window_name
    from practicum.analysis.dynamics.curves import WINDOWS

    named = {window_name(window): window for window in WINDOWS}
    if text not in named:
        raise UsageError(f"--window {text}: windows are {', '.join(named)}")
    return named[text]


def _found(run: Path, tasks: list[Task] | None, every: int, concurrency: int | None, console: Console) -> Dynamics:
    """The dynamics, with a bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from practicum.analysis.dynamics.checkpoints import dynamics as score
    from practicum.cli.running import Interrupted, run_work, telling
    from practicum.core.errors import Stopped

    columns = (TextColumn("checkpoints"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        drawn = bar.add_task("", total=None)

        def watch(done: int, total: int) -> None:
            bar.update(drawn, completed=done, total=total)

        async def work(stop: Stopper) -> Dynamics:
            parts = telling(console)
            return await score(
                run, tasks, every=every, concurrency=concurrency, parts=parts, watch=watch, on_state=stop.state
            )

        try:
            return run_work(work, console)
        except Stopped as error:
            raise Interrupted(
                f"not all checkpoints are scored: {error}; the same command goes on, and pays nothing twice"
            ) from error


def _on(found: Dynamics) -> str:
    """The tasks in words."""
    kind = {"val": "validation ", "test": "test "}.get(found.split, "")
    return f"{len(found.tasks):,} {kind}tasks"


def _report(console: Console, found: Dynamics, window: Window) -> None:
    """What a person wants to know."""
    from practicum.cli.live import report_roles, usage_words
    from practicum.cli.tables import print_table

    curves, steps = found.curves, [c.step for c in found.checkpoints]
    console.print(f"{len(steps):,} checkpoints on {_on(found)}")
    print_table(console, _table(found, window))
    best, last = curves.current[curves.peak], curves.current[-1]
    console.print(f"peak {best:.1%} at step {steps[curves.peak]}; {last:.1%} at the last, step {steps[-1]}")
    never = round((1 - curves.best[-1]) * len(found.tasks))
    covered = f"all but {never:,}" if curves.covered is None else f"all, by step {steps[curves.covered]}"
    console.print(f"solved at least once: {covered}")
    words = "at any earlier checkpoint" if window is None else f"within {window} checkpoints"
    console.print(
        f"mean instability (solved {words}, not now): {100 * curves.by_window[window].mean_instability:.1f} pp"
    )
    again = "" if curves.relearned is None else f", {curves.relearned:.0%} of them solved again later"
    console.print(f"solved and then lost: {curves.unlearned:,} times{again}")
    console.print(f"usage: {usage_words(found.usage)}; {found.hits:,} results were in the journal")
    if len(found.by_role) > 1:
        report_roles(console, found.by_role)
    if found.errors:
        console.print(f"to know: {found.errors:,} attempts failed, or left their task out since nothing could score it")


def _table(found: Dynamics, window: Window) -> Table:
    from practicum.cli.tables import table

    curves = found.curves
    recency = curves.by_window[window]
    shown = (curves.current, recency.recent, recency.active, recency.stale, curves.best)
    names = ("step", "version", "current", "recently", "unstable", "stale", "best so far")
    made = table(*names, numbers=names)
    for i, checkpoint in enumerate(found.checkpoints):
        made.add_row(str(checkpoint.step), str(checkpoint.version), *(f"{rates[i]:.1%}" for rates in shown))
    return made
