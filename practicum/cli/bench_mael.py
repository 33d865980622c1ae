"""`practicum bench mael`: experience in a network of agents, measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from practicum.bench.mael import MaelResult, MaelRow

Opt = typer.Option


def mael(
    tasks: Path = Opt(..., help="Tasks as JSON lines, with targets where the scorer needs them."),
    test: Path | None = Opt(None, help="Tasks to test on (default: those of --tasks after the ones learned from)."),
    sizes: str = Opt("0,10,20,30", help="Tasks whose experience is in the pools."),
    tested: int = Opt(30, min=1, help="Most tasks to test on."),
    model: str = Opt("local", help="Model of every role, as for learn."),
    role: opt.Role[list[str]] = [],
    scorer: opt.Scorer[str | None] = None,
    set_: list[str] = Opt([], "--set", help="A setting of mael, as name=value, for all that is measured."),
    instructions: str | None = Opt(None, help="What the agents are told beside the task: a text, or @FILE."),
    fields: opt.Fields[str] = "",
    out: Path | None = Opt(None, help="Folder to keep it in; the same again goes on where it was cut off."),
    seed: opt.Seed[int] = 0,
    concurrency: opt.Concurrency[int] = 16,
    max_output_tokens: opt.MaxOutputTokens[int] = 1024,
    timeout: opt.Timeout[float] = 600.0,
    structure: opt.Structure[str] = "native",
    window: opt.Window[int | None] = None,
    max_calls: int | None = Opt(None, min=1, help="Stop before more model calls than this, over all that is measured."),
    max_tokens: int | None = Opt(None, min=1, help="Stop before more tokens than this, over all that is measured."),
    json_: opt.Json[bool] = False,
) -> int:
    """Quality, tokens and rounds of a network by experience: none, by task, by step, how much of it and which."""
    import json

    from practicum.bench.mael import MaelPlan, SharedBudget
    from practicum.bench.mael import mael as measure
    from practicum.cli.inputs import bench_window, method_settings, read_instructions, read_tasks, roles_of
    from practicum.cli.running import console_for, print_json, run_work
    from practicum.core.files import write_atomic
    from practicum.models.budget import BudgetLimits
    from practicum.session.learn import INTERRUPTED
    from practicum.session.records import new_folder

    numbers, listed = _sizes(sizes), read_tasks(tasks, fields)
    learning, rest = listed[: numbers[-1]], listed[numbers[-1] :]
    roles = roles_of(role)
    config: dict[str, Any] = {
        "model": model, "roles": roles, "scorer": scorer, "seed": seed, "concurrency": concurrency,
        "instructions": read_instructions(instructions) if instructions else "", "timeout": timeout,
        "max_output_tokens": max_output_tokens, "structure": structure,
        "window": bench_window(window, model, *roles.values()),
    }  # fmt: skip
    testing = (read_tasks(test, fields) if test is not None else rest)[:tested]
    plan = MaelPlan(learning=learning, testing=testing, sizes=numbers, settings=method_settings(set_), config=config)
    folder, console = out or new_folder("mael"), console_for(json_)
    console.print(f"kept in {folder}")
    budget = SharedBudget(BudgetLimits(max_calls, max_tokens))

    async def work(stop: Any) -> MaelResult:
        stop.stoppable = budget
        return await measure(plan, folder, budget=budget, report=lambda row: console.print(_said(row)))

    found = run_work(work, console)
    value = {"bench": "mael", "model": model, "seed": seed, "rows": [row.as_json() for row in found.rows]}
    value |= {"calls": budget.calls, "tokens": budget.tokens, "stopped": found.stopped}
    write_atomic(folder / "mael.json", json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    _report(console, found, folder, f"{budget.calls:,} calls, {budget.tokens:,} tokens in all")
    if json_:
        print_json(value)
    return 130 if found.stopped == INTERRUPTED else 0


def _report(console: Console, found: MaelResult, folder: Path, spent: str) -> None:
    """What was measured; pictures where that is all of it."""
    from practicum.bench.plots import cells_plot, pools_plot
    from practicum.cli.tables import print_table

    console.print()
    if found.rows:
        print_table(console, _table(found.rows))
        console.print("change and more are against no experience; sure where the 95% interval leaves out 0")
    if any(row.measures for row in found.rows):
        console.print("\nmeasured of the answers, on average:")
        print_table(console, _measured(found.rows))
    console.print(spent)
    if found.stopped:
        far = f"Stopped early, with {len(found.rows)} of the ways measured: {found.stopped}."
        console.print(f"{far} The same command with --out {folder} goes on.")
        return
    pools_plot(found.rows, folder / "pools.png")
    cells_plot(found.rows, folder / "cells.png")
    console.print(f"{folder}/mael.json, {folder}/pools.png, {folder}/cells.png")


def _sizes(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 0 or not found[-1]:
        raise UsageError(f"--sizes {text!r} must be whole numbers from 0, one of them above it, as 0,10,20,30")
    return found


def _said(row: MaelRow) -> str:
    return f"{row.name}: {row.score:.1%}, {row.tokens:,.0f} tokens and {row.rounds:.2f} rounds a task"


def _table(rows: Sequence[MaelRow]) -> Table:
    from practicum.bench.mael import NO_EXPERIENCE
    from practicum.cli.tables import table

    numbers = ("score", "change", "95%", "tokens", "more", "rounds", "calls", "experiences")
    made = table("way", *numbers, "sure", numbers=numbers)
    none = next((row for row in rows if row.name == NO_EXPERIENCE), None)
    for row in rows:
        cells = [f"{row.score:.1%}", "", "", f"{row.tokens:,.0f}", "", f"{row.rounds:.2f}", f"{row.calls:.1f}"]
        sure = ""
        found = row.over(none) if none is not None and row is not none else None
        if none is not None and found is not None:
            low, high = found.ci95
            cells[1], cells[2] = f"{100 * found.effect:+.1f}", f"{100 * low:+.1f} to {100 * high:+.1f}"
            cells[4] = f"{row.tokens / none.tokens - 1:+.0%}" if none.tokens else ""
            sure = "better" if low > 0 else "worse" if high < 0 else "no"
        made.add_row(row.name, *cells, f"{row.experiences:,}", sure)
    return made


def _measured(rows: Sequence[MaelRow]) -> Table:
    """What the scorer measured of each way's answers; a way with none of it has empty cells."""
    from practicum.cli.tables import table

    names = list(dict.fromkeys(name for row in rows for name in row.measures))
    made = table("way", *names, numbers=names)
    for row in rows:
        made.add_row(row.name, *(f"{row.measures[name]:,.2f}" if name in row.measures else "" for name in names))
    return made
