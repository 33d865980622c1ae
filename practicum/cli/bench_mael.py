"""`practicum bench mael`: experience in a network of agents, measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer, save_json
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.bench.mael import MaelRow


@opt.settings(
    "scorer", "set_", "role", "instructions", "window", "max_calls", "max_tokens",
    model="local", seed=0, concurrency=16, max_output_tokens=1024, timeout=600.0, structure="native",
)  # fmt: skip
def mael(
    tasks: Path = Option(..., help="Tasks as JSON lines, with targets if the scorer needs them."),
    test: Path | None = Option(None, help="Tasks to test on (default: those of --tasks after the ones learned from)."),
    sizes: str = Option("0,10,20,30", help="Numbers of tasks whose experience is in the pools."),
    tested: int = Option(30, min=1, help="The most tasks to test on."),
    fields: opt.Fields = None,
    folder: opt.BenchFolder = None,
    json_: opt.Json = False,
    **given: Any,
) -> int:
    """Measure a network's quality, tokens and rounds by experience: how much of it, and how it is retrieved.

    Budgets hold for all measurements together.
    """
    from practicum.bench.mael import MaelPlan
    from practicum.bench.mael import mael as measure
    from practicum.bench.plots import cells_plot, pools_plot
    from practicum.bench.shared_budget import SharedBudget
    from practicum.cli.inputs import bench_window, config_values, numbers, read_tasks
    from practicum.cli.running import run_work
    from practicum.models.budget import BudgetLimits
    from practicum.session.records import new_folder
    from practicum.session.result import INTERRUPTED

    rule = "whole numbers from 0, one of them above it, as 0,10,20,30"
    pools = numbers(sizes, int, lambda size: size >= 0, "--sizes", rule)
    if not pools[-1]:
        raise UsageError(f"--sizes {sizes!r} must be {rule}")
    listed = read_tasks(tasks, fields)
    learning, rest = listed[: pools[-1]], listed[pools[-1] :]
    testing = (read_tasks(test, fields) if test is not None else rest)[:tested]
    # The plan's digest is in the folder, so these keys stay as they are.
    config = {"scorer": None, "instructions": "", **config_values(given)}
    settings, model = config.pop("settings"), config["model"]
    budget = SharedBudget(BudgetLimits(config.pop("max_calls", None), config.pop("max_tokens", None)))
    config["window"] = bench_window(given["window"], model, *config["roles"].values())
    plan = MaelPlan(learning=learning, testing=testing, sizes=pools, settings=settings, config=config)
    folder, out = folder or new_folder("mael"), Printer(json_)
    out.print(f"kept in {folder}")

    def report(row: MaelRow) -> None:
        out.print(f"{row.name}: {row.score:.1%}, {row.tokens:,.0f} tokens and {row.rounds:.2f} rounds a task")

    found = run_work(lambda stop: measure(plan, folder, budget=stop.stops(budget), report=report), out)
    value = {"bench": "mael", "model": model, "seed": config["seed"], "rows": [row.as_json() for row in found.rows]}
    value |= {"calls": budget.spent.calls, "tokens": budget.spent.tokens, "stopped": found.stopped}
    save_json(folder / "mael.json", value)
    if found.rows:
        out.print()
        _print_rows(out, found.rows)
    out.print(f"{budget.spent.calls:,} calls, {budget.spent.tokens:,} tokens in all")
    if found.stopped:
        out.print(f"Stopped early, with {len(found.rows)} variants measured: {found.stopped}.")
        out.print(f"The same command with --out {folder} continues.")
    else:
        pools_plot(found.rows, folder / "pools.png")
        cells_plot(found.rows, folder / "cells.png")
        out.print(f"{folder}/mael.json, {folder}/pools.png, {folder}/cells.png")
    out.result(value)
    return 130 if found.stopped == INTERRUPTED else 0


def _print_rows(out: Printer, rows: Sequence[MaelRow]) -> None:
    from practicum.bench.mael import NO_EXPERIENCE

    none = next((row for row in rows if row.name == NO_EXPERIENCE), None)
    lines = []
    for row in rows:
        change, interval, more, sure = "", "", "", ""
        if none is not None and (found := row.over(none)) is not None:
            low, high = found.ci95
            change, interval = f"{100 * found.effect:+.1f}", f"{100 * low:+.1f} to {100 * high:+.1f}"
            more = f"{row.tokens / none.tokens - 1:+.0%}" if none.tokens else ""
            sure = "better" if low > 0 else "worse" if high < 0 else "no"
        cost = (f"{row.tokens:,.0f}", more, f"{row.rounds:.2f}", f"{row.calls:.1f}", f"{row.experiences:,}")
        lines.append((row.name, f"{row.score:.1%}", change, interval, *cost, sure))
    columns = ("variant", "score", "change", "95%", "tokens", "more", "rounds", "calls", "experiences", "sure")
    out.table(columns, lines, text=("variant", "sure"))
    out.print("change and more: compared with no experience; sure: whether the 95% interval leaves out 0")
    if names := list(dict.fromkeys(name for row in rows for name in row.measures)):
        out.print("\nmeans of the scorer's measures:")
        means = [[f"{row.measures[name]:,.2f}" if name in row.measures else None for name in names] for row in rows]
        measured = [(row.name, *cells) for row, cells in zip(rows, means, strict=True)]
        out.table(("variant", *names), measured, text=("variant",))
