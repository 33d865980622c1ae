"""`practicum space pools`: shows the experience pools of a network of agents."""

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
"""Number of experiences that are listed for each agent. The listed experiences are the most used experiences."""


def pools(
    run: opt.RunFolder,
    agent: str | None = Option(None, "--pool", metavar="AGENT", help="Only the pool of this agent, by kind of step."),
    plot: Path | None = opt.option(None),
    json_: opt.Json = False,
) -> None:
    """Show the experience pools of a network (method mael).

    Shows the size, the rewards and the most used experiences of each pool.
    """
    from practicum.analysis.network.pools import plot_pools, pools_of
    from practicum.analysis.png import require_package
    from practicum.session.records import load_context

    if plot is not None:
        require_package()
    context = load_context(run)
    listed = pools_of(context)
    if not listed:
        raise UsageError("run.no_data", f"{run} has no experience pools: learn with practicum learn --method mael")
    if agent is not None:
        agents = ", ".join(pool.agent for pool in listed)
        listed = [pool for pool in listed if pool.agent == agent]
        if not listed:
            raise UsageError("pool.unknown", f"{run} has no pool of agent {agent!r}: choose one of {agents}")
    out = Printer(json_)
    out.result({"run": str(run), "version": context.version, "pools": [pool.as_json(SHOWN) for pool in listed]})
    if agent is None:
        name, rows = "agent", [_row(pool.agent, pool) for pool in listed]
    else:
        kinds = [_row(kind, part) for kind, part in listed[0].by_kind().items()]
        name, rows = "step", [*kinds, _row("all", listed[0])]
    out.table((name, "size", "mean reward", "lowest", "median", "highest", "shown"), rows, text=(name,))
    for pool in listed:
        if used := pool.most_used(SHOWN):
            out.print(f"\nmost shown experiences of {pool.agent}:")
            entries = [
                (e.id, e.data["kind"], f"{e.data['reward']:.2f}", e.uses, one_line(e.key, 60), one_line(e.text, 60))
                for e in used
            ]
            columns = ("entry", "step", "reward", "shown", "given", "done")
            out.table(columns, entries, text=("entry", "step", "given", "done"))
    if plot is not None:
        plot_pools(listed, plot)
        out.print(f"plot written to {plot}")


def _row(name: str, pool: ExperiencePool) -> tuple[object, ...]:
    rewards = pool.rewards
    spread = (pool.mean, rewards[0], pool.median, rewards[-1])
    return name, len(rewards), *(f"{reward:.2f}" for reward in spread), pool.shown
