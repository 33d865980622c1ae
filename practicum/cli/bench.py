"""`practicum bench`: measurements anyone can repeat, each with its targets beside what was reached."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from practicum.cli import bench_robustness
from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from practicum.bench.measure import Target
    from practicum.bench.overload import OverloadRow
    from practicum.bench.speed import SpeedResult

Opt = typer.Option

app = typer.Typer(
    help="Measure speed and quality; compare numbers of one run only.", no_args_is_help=True, rich_markup_mode=None
)

app.command("robustness")(bench_robustness.robustness)


@app.command("speed")
def speed(
    tasks: int = Opt(90, min=1, help="Tasks to learn from."),
    only: str = Opt("", help="Parts of it, as a,b,c (default: all); an unknown name lists them."),
    tail_tasks: int = Opt(240, min=1, help="Tasks where latencies have a heavy tail."),
    at_once: int = Opt(1000, min=1, help="Attempts in flight at zero latency."),
    output_tokens: int | None = Opt(None, min=1, help="Tokens every answer counts for (default: those it has)."),
    json_: opt.Json[bool] = False,
) -> int:
    """Wall time of learning one at a time, in batches and without a barrier, on a simulated server."""
    from practicum.bench.speed import PARTS, SpeedPlan
    from practicum.bench.speed import speed as measure
    from practicum.cli.running import console_for, print_json
    from practicum.testing.server import ServerOptions

    parts, latencies = _listed(only, "--only") or PARTS, ServerOptions(output_tokens=output_tokens)
    plan = SpeedPlan(parts=parts, tasks=tasks, latencies=latencies, tail_tasks=tail_tasks, at_once=at_once)
    console = console_for(json_)
    before = _load()
    found = measure(plan, lambda said: console.print(said))
    _print_speed(console, found)
    _print_end(console, found.targets(), before)
    if json_:
        print_json({"bench": "speed", "tasks": tasks, **found.as_json(), "load": [before, _load()]})
    return 0


@app.command("overload")
def overload(
    model: str = Opt("simulated", help="Model of the curator, as for learn; simulated: one that is overloaded."),
    n: str = Opt("10,20,40,80", help="Numbers of lessons."),
    methods: str = Opt("", help="Methods, as a,b,c (default: all); an unknown name lists them."),
    seed: int = Opt(0, help="Of the facts and of every random choice."),
    out: Path | None = Opt(None, help="Folder to keep the runs in; the same again goes on, and pays nothing twice."),
    concurrency: opt.Concurrency[int] = 16,
    max_output_tokens: opt.MaxOutputTokens[int] = 4096,
    timeout: opt.Timeout[float] = 600.0,
    structure: opt.Structure[str] = "native",
    window: opt.Window[int | None] = None,
    max_calls: opt.MaxCalls[int | None] = None,
    max_tokens: opt.MaxTokens[int | None] = None,
    max_usd: opt.MaxUsd[float | None] = None,
    json_: opt.Json[bool] = False,
) -> int:
    """How many of n facts are left in a context after one update, by method: context overload."""
    import json

    from practicum.bench.overload import ARMS, OverloadPlan, targets
    from practicum.bench.overload import overload as measure
    from practicum.bench.plots import overload_plot
    from practicum.cli.inputs import bench_window
    from practicum.cli.running import console_for, print_json, run_work
    from practicum.core.files import write_atomic
    from practicum.session.learn import INTERRUPTED
    from practicum.session.records import new_folder

    config = {
        "concurrency": concurrency,
        "max_output_tokens": max_output_tokens,
        "timeout": timeout,
        "structure": structure,
        "window": bench_window(window, model),
    }
    limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_usd": max_usd}
    arms = _listed(methods, "--methods") or list(ARMS)
    plan = OverloadPlan(sizes=_numbers(n, "--n"), arms=arms, model=model, seed=seed, config=config, limits=limits)
    folder = out or new_folder("overload")
    console = console_for(json_)
    before = _load()
    console.print(f"kept in {folder}")
    rows = run_work(
        lambda stop: measure(plan, folder, report=lambda row: console.print(_said(row)), on_session=stop.session),
        console,
    )
    reached = targets(rows, model)
    value = {"bench": "overload", "model": model, "seed": seed, "rows": [row.as_json() for row in rows]}
    value |= {"targets": [target.as_json() for target in reached], "load": [before, _load()]}
    write_atomic(folder / "overload.json", json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    if any(not row.stopped for row in rows):
        overload_plot(rows, folder / "overload.png", model)
    _print_rows(console, rows)
    _print_end(console, reached, before)
    console.print(f"{folder}/overload.json, {folder}/overload.png")
    stopped = rows[-1].stopped
    if stopped:
        console.print(f"Stopped early: {stopped}. The same command with --out {folder} goes on.")
    if json_:
        print_json(value)
    return 130 if stopped == INTERRUPTED else 0


@app.command("store")
def store(
    memories: int = Opt(1_000_000, min=1_000, help="Memories; the targets are for a million."),
    json_: opt.Json[bool] = False,
) -> int:
    """Retrieval among many memories: exact, by an index, and from the disk, with the memory it takes."""
    from practicum.bench.store import store as measure
    from practicum.cli.running import console_for, print_json
    from practicum.retrieval.index import index_installed

    if not index_installed():
        raise UsageError("there is no index to measure: pip install 'practicum[index]'")
    console = console_for(json_)
    before = _load()
    found = measure(memories, lambda said: console.print(said))
    _print_end(console, found.targets(), before)
    if json_:
        print_json({"bench": "store", **found.as_json(), "load": [before, _load()]})
    return 0


def _listed(text: str, option: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if text.strip() and not names:
        raise UsageError(f"{option} {text!r} names nothing")
    return names


def _numbers(text: str, option: str) -> list[int]:
    """Whole numbers from 1, smallest first."""
    try:
        found = sorted({int(part) for part in _listed(text, option)})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise UsageError(f"{option} {text!r} must be whole numbers from 1, as 10,20,40")
    return found


def _load() -> float:
    return round(os.getloadavg()[0], 2)


def _print_end(console: Console, targets: Sequence[Target], before: float) -> None:
    for target in targets:
        console.print(target.summary(), style="" if target.met else "red")
    console.print(f"load average {before} before, {_load()} after, {os.cpu_count()} cores")


def _table(*columns: str) -> Table:
    from practicum.cli.tables import table

    return table(*columns, numbers=[name for name in columns if name not in ("method", "way")])


def _print_speed(console: Console, found: SpeedResult) -> None:
    from practicum.cli.tables import print_table

    one = found.row("sequential")
    table = _table(
        "way", "steps", "wall s", "critical s", "ratio", "speed-up", "ceiling", "calls", "tokens", "cached", "at once"
    )
    for row in found.rows:
        times, ceiling = row.speed_up(one) if one else (None, None)
        ratios = [_or_dash(value, form) for value, form in ((row.critical_s, ".2f"), (row.ratio, ".3f"))]
        ratios += [_or_dash(times, ".1f"), _or_dash(ceiling, ".1f")]
        counts = [f"{row.calls}", f"{row.tokens:,}", f"{row.cached_share:.0%}", f"{row.most}"]
        table.add_row(row.name, str(row.iterations), f"{row.wall_s:.2f}", *ratios, *counts)
    if found.rows:
        print_table(console, table)
    for name, seconds in found.tail.items():
        console.print(f"heavy tail, {name}: {' + '.join(f'{s:.1f}' for s in seconds)} = {sum(seconds):.1f} s")
    table = _table("method", "attempts", "at once", "calls", "CPU ms a call", "peak MB", "wall s")
    for each in found.in_flight:
        numbers = (each.at_once, each.most, each.calls, each.cpu_ms, each.peak_mb, each.wall_s)
        table.add_row(each.method, *map(str, numbers))
    if found.in_flight:
        print_table(console, table)


def _print_rows(console: Console, rows: Sequence[OverloadRow]) -> None:
    from practicum.cli.tables import print_table

    table = _table("n", "method", "readable", "wrong", "kept", "entries", "context", "calls", "tokens", "USD", "wall s")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        if row.stopped:
            continue
        counts = [str(row.by_code), str(row.entries), f"{row.context_tokens:,}", str(row.calls), f"{row.tokens:,}"]
        paid = [_or_dash(row.usd, ".4f"), _or_dash(row.wall_s, ".2f")]
        last = following is None or following.n != row.n
        shares = [f"{row.readable:.0%}", f"{row.wrong:.0%}"]
        table.add_row(str(row.n), row.method, *shares, *counts, *paid, end_section=last)
    print_table(console, table)
    console.print(
        "readable: facts that an entry still tells; wrong: told with another fact's number; kept: lessons that the "
        "curator left out and code kept as they were; context: its tokens"
    )


def _said(row: OverloadRow) -> str:
    if row.stopped:
        return f"{row.n} lessons, {row.method}: {row.stopped}"
    wall = "" if row.wall_s is None else f" in {row.wall_s:.1f} s"
    return f"{row.n} lessons, {row.method}: {row.readable:.0%} readable, {row.calls} calls{wall}"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
