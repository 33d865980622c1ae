"""`practicum bench mael`: experience in a network of agents, measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer, save_json
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.bench.mael import MaelResult, MaelRow


@opt.settings(
    "scorer", "set_", "role", "profile", "instructions", "window", "embedder", "max_output_tokens",
    "max_calls", "max_tokens",
    model="local", seed=0, concurrency=16, timeout=600.0, structure="native",
)  # fmt: skip
def mael(
    tasks: Path = Option(..., help="Tasks as JSON lines, with targets if the scorer needs them."),
    test: Path | None = Option(None, help="Tasks to test on (default: those of --tasks after the ones learned from)."),
    sizes: str = Option("0,10,20,30", help="Numbers of tasks whose experience is in the pools."),
    tested: int = Option(30, min=1, help="The most tasks to test on."),
    seeds: int = Option(3, min=1, help="Seeds, from --seed on; each learns anew, and is tested on the same tasks."),
    cases: int = Option(5, min=0, help="Test tasks whose solutions are followed round by round."),
    fields: opt.Fields = None,
    folder: opt.BenchFolder = None,
    json_: opt.Json = False,
    **given: Any,
) -> int:
    """Measure a network's quality, tokens and rounds by experience: how much of it, and how it is retrieved.

    One command makes the tables 1 to 4 and the figures 2 to 4 of the paper for one set of tasks. Budgets hold for all
    measurements together.
    """
    from practicum.bench.mael import MaelPlan
    from practicum.bench.mael import mael as measure
    from practicum.bench.plots import cases_plot, cells_plot, pools_plot
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
    plan = MaelPlan(
        learning=learning, testing=testing, sizes=pools, seeds=seeds, cases=cases, settings=settings, config=config
    )
    folder, out = folder or new_folder("mael"), Printer(json_)
    out.print(f"kept in {folder}")

    def report(row: MaelRow) -> None:
        out.print(f"{row.name}: {row.score:.1%}, {row.tokens:,.0f} tokens and {row.rounds:.2f} rounds a task")

    found = run_work(lambda stop: measure(plan, folder, budget=stop.stops(budget), report=report), out)
    value = {
        "bench": "mael", "model": model, "seed": config["seed"], "seeds": seeds,
        "rows": [row.as_json() for row in found.rows], "claims": {n: asdict(c) for n, c in found.claims.items()},
        "cases": [row.as_json() for row in found.cases], "calls": budget.spent.calls, "tokens": budget.spent.tokens,
        "stopped": found.stopped,
    }  # fmt: skip
    save_json(folder / "mael.json", value)
    if found.rows:
        out.print()
        _print_rows(out, found)
    out.print(f"{budget.spent.calls:,} calls, {budget.spent.tokens:,} tokens in all")
    if found.stopped:
        measured = len(found.rows) + len(found.cases)
        out.print(f"Stopped early, with {measured} variants measured: {found.stopped}.")
        out.print(f"The same command with --out {folder} continues.")
    else:
        plots = {"pools": pools_plot, "cells": cells_plot, **({"cases": cases_plot} if found.cases else {})}
        for name, plot in plots.items():
            plot(found, folder / f"{name}.png")
        out.print(", ".join(f"{folder}/{name}" for name in ("mael.json", *(f"{name}.png" for name in plots))))
    out.result(value)
    return 130 if found.stopped == INTERRUPTED else 0


def _print_rows(out: Printer, found: MaelResult) -> None:
    """The rows of the paper's tables, as far as they were measured."""
    from practicum.analysis.formats import verdict_label
    from practicum.bench.mael import NO_EXPERIENCE

    none = next((row for row in found.rows if row.name == NO_EXPERIENCE), None)
    claims, lines = found.claims, []
    for row in found.rows:
        change, interval, p, more, claimed = "", "", "", "", ""
        if claim := claims.get(row.name):
            low, high = claim.difference.ci95
            change, interval = f"{100 * claim.difference.effect:+.1f}", f"{100 * low:+.1f} to {100 * high:+.1f}"
            p, claimed = f"{claim.corrected:.3f}", verdict_label(claim.verdict)
        if none is not None and none.tokens:
            more = f"{row.tokens / none.tokens - 1:+.0%}"
        cost = (f"{row.tokens:,.0f}", more, f"{row.output_tokens:,.0f}", f"{row.rounds:.2f}", f"{row.calls:.1f}")
        lines.append((row.name, f"{row.score:.1%}", change, interval, p, *cost, f"{row.experiences:,.0f}", claimed))
    columns = ("variant", "score", "change", "95%", "p", "tokens", "more", "output", "rounds", "calls", "experiences")
    out.table((*columns, "claim"), lines, text=("variant", "claim"))
    out.print("change, more and claim: against no experience; p: corrected for all comparisons (Holm)")
    if names := list(dict.fromkeys(name for row in found.rows for name in row.measures)):
        out.print("\nmeans of the scorer's measures:")
        means = [
            [f"{row.measures[name]:,.2f}" if name in row.measures else None for name in names] for row in found.rows
        ]
        measured = [(row.name, *cells) for row, cells in zip(found.rows, means, strict=True)]
        out.table(("variant", *names), measured, text=("variant",))
    if cells := found.cells:
        out.print("\nscore by the similarity and the reward of the experience shown, task-wise:")
        scores = [[f"{row.score:.1%}" for row in reversed(line)] for line in reversed(cells)]
        named = [(f"{level} similarity", *line) for level, line in zip(("low", "high"), scores, strict=True)]
        out.table(("", "low reward", "high reward"), named, text=("",))
    if found.cases:
        out.print("\nscore of each case by the rounds of critique allowed:")
        progress = [
            (how, f"{n}", *("-" if score is None else f"{score:.2f}" for score in case))
            for how, cases in found.progress.items()
            for n, case in enumerate(cases, 1)
        ]
        out.table(("retrieval", "case", *map(str, range(len(progress[0]) - 2))), progress, text=("retrieval",))
