"""`practicum pools`: what the agents of a network have learned, pool by pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from practicum.analysis.network.pools import Pool
    from practicum.core.edits import Entry

Opt = typer.Option

SHOWN = 5
"""Most used experiences that are listed."""


def pools(
    run: Path = typer.Argument(..., help="The run's folder."),
    agent: str | None = Opt(None, help="Only this agent's pool, by kind of step."),
    plot: Path | None = Opt(None, help="Draw sizes and rewards as a PNG file."),
    json_: opt.Json[bool] = False,
) -> int:
    """Sizes, rewards and the most used experiences of the pools of a network (method mael)."""
    from practicum.analysis.network.plot import pools_plot
    from practicum.analysis.network.pools import pools_of
    from practicum.cli.running import console_for, print_json
    from practicum.cli.tables import print_table
    from practicum.session.records import load_context

    context = load_context(run)
    found = pools_of(context)
    if not found:
        raise UsageError(f"{run} has no pools of experience: practicum learn --method mael makes some")
    if agent is not None:
        names = ", ".join(pool.agent for pool in found)
        found = [pool for pool in found if pool.agent == agent]
        if not found:
            raise UsageError(f"{run} has no pool of {agent!r}: take one of {names}")
    if json_:
        print_json({"run": str(run), "version": context.version, "pools": [pool.as_json(SHOWN) for pool in found]})
    console = console_for(json_)
    print_table(console, _sizes(found) if agent is None else _kinds(found[0]))
    for pool in found:
        if used := pool.most_used(SHOWN):
            console.print(f"\nshown most of {pool.agent}'s:")
            print_table(console, _used(used))
    if plot is not None:
        pools_plot(found, plot)
        console.print(f"drawn: {plot}")
    return 0


NUMBERS = ("size", "mean reward", "lowest", "median", "highest", "shown", "reward")


def _row(entries: Pool) -> list[str]:
    rewards = entries.rewards
    spread = (entries.mean, rewards[0], entries.median, rewards[-1])
    return [str(len(rewards)), *(f"{value:.2f}" for value in spread), str(entries.shown)]


def _sizes(found: Sequence[Pool]) -> Table:
    from practicum.cli.tables import table

    made = table("agent", "size", "mean reward", "lowest", "median", "highest", "shown", numbers=NUMBERS)
    for pool in found:
        made.add_row(pool.agent, *_row(pool))
    return made


def _kinds(pool: Pool) -> Table:
    from practicum.cli.tables import table

    made = table("step", "size", "mean reward", "lowest", "median", "highest", "shown", numbers=NUMBERS)
    for kind, part in pool.by_kind().items():
        made.add_row(kind, *_row(part))
    made.add_row("all", *_row(pool))
    return made


def _used(entries: Sequence[Entry]) -> Table:
    from practicum.cli.tables import table

    made = table("entry", "step", "reward", "shown", "given", "done", numbers=NUMBERS)
    for e in entries:
        texts = (_short(e.key), _short(e.text))
        made.add_row(e.id, str(e.data["kind"]), f"{e.data['reward']:.2f}", str(e.uses), *texts)
    return made


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"
