"""`practicum space pools`: what the agents of a network have learned, pool by pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import one_line

if TYPE_CHECKING:
    from practicum.analysis.network.pools import ExperiencePool

SHOWN = 5
"""How many of the most used experiences are listed."""


def pools(
    run: opt.RunFolder,
    agent: str | None = Option(None, "--pool", metavar="AGENT", help="Only this agent's pool, by kind of step."),
    plot: Path | None = opt.option(None),
    json_: opt.Json = False,
) -> None:
    """Show the experience pools of a network (method mael).

    Shows their sizes, their rewards and the most used experiences.
    """
    from practicum.analysis.network.pools import plot_pools, pools_of
    from practicum.analysis.png import require_package
    from practicum.session.records import load_context

    if plot is not None:
        require_package()
    context = load_context(run)
    found = pools_of(context)
    if not found:
        raise UsageError("run.no_data", f"{run} has no pools of experience: practicum learn --method mael makes some")
    if agent is not None:
        known = ", ".join(pool.agent for pool in found)
        found = [pool for pool in found if pool.agent == agent]
        if not found:
            raise UsageError("pool.unknown", f"{run} has no pool of {agent!r}: choose one of {known}")
    out = Printer(json_)
    out.result({"run": str(run), "version": context.version, "pools": [pool.as_json(SHOWN) for pool in found]})
    if agent is None:
        name, rows = "agent", [_row(pool.agent, pool) for pool in found]
    else:
        kinds = [_row(kind, part) for kind, part in found[0].by_kind().items()]
        name, rows = "step", [*kinds, _row("all", found[0])]
    out.table((name, "size", "mean reward", "lowest", "median", "highest", "shown"), rows, text=(name,))
    for pool in found:
        if used := pool.most_used(SHOWN):
            out.print(f"\nthe experiences of {pool.agent} that were shown most:")
            entries = [
                (e.id, e.data["kind"], f"{e.data['reward']:.2f}", e.uses, one_line(e.key, 60), one_line(e.text, 60))
                for e in used
            ]
            columns = ("entry", "step", "reward", "shown", "given", "done")
            out.table(columns, entries, text=("entry", "step", "given", "done"))
    if plot is not None:
        plot_pools(found, plot)
        out.print(f"picture written to {plot}")


def _row(name: str, pool: ExperiencePool) -> tuple[object, ...]:
    rewards = pool.rewards
    spread = (pool.mean, rewards[0], pool.median, rewards[-1])
    return name, len(rewards), *(f"{reward:.2f}" for reward in spread), pool.shown
