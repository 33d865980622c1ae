"""`practicum monitor`: everything there is to watch about a run, at work or done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from practicum.analysis.monitor import MonitorReport
    from practicum.analysis.monitor.series import MetricGroup

Opt = typer.Option


def monitor(
    run: Path = typer.Argument(..., help="The run's folder; the run may be at work."),
    plot: Path | None = Opt(None, help="A folder for pictures, one PNG for each thing there is to see."),
    judge_again: int | None = Opt(None, min=1, help="Show so many attempts to the run's judge again (costs calls)."),
    seed: int | None = Opt(None, help="With --judge-again: of which attempts are drawn (default 0)."),
    max_calls: int | None = Opt(None, min=1, help="With --judge-again: stop before more calls than this."),
    max_tokens: int | None = Opt(None, min=1, help="With --judge-again: stop before more tokens than this."),
    json_: opt.Json[bool] = False,
) -> int:
    """Success, memory, retrieval, drift, agreement, judge, latency, tokens and learning curves of a run.

    With OTEL_EXPORTER_OTLP_ENDPOINT set, the same series go out as OpenTelemetry metrics.
    """
    from practicum.analysis.monitor import monitor as watch
    from practicum.analysis.monitor.plots import check_folder, monitor_plots
    from practicum.cli.running import console_for, print_json, run_work, telling

    asked = {"seed": seed, "max_calls": max_calls, "max_tokens": max_tokens}
    if judge_again is None and (unused := [name for name, value in asked.items() if value is not None]):
        raise UsageError(f"--{unused[0].replace('_', '-')} is for --judge-again: give that too, or leave it out")
    if plot is not None:
        check_folder(plot)
    console = console_for(json_)
    limits = {name: asked[name] for name in ("max_calls", "max_tokens")}
    parts = telling(console)
    found = run_work(lambda _: watch(run, judge_again=judge_again, seed=seed or 0, limits=limits, parts=parts), console)
    drawn = monitor_plots(found.groups, found.steps, plot, run.absolute().name) if plot is not None else []
    if json_:
        print_json({**found.as_json(), **({"plots": [str(file) for file in drawn]} if drawn else {})})
    _report(console, found)
    if drawn:
        console.print(f"{len(drawn)} pictures in {plot}")
    _send(console, found)
    return 0


def _send(console: Console, found: MonitorReport) -> None:
    """Send the metrics where an endpoint is configured; it may be there for other programs, so what is missing to do
    so is said and is no failure."""
    from practicum.analysis.monitor.export import endpoint, obstacle, send

    where = endpoint()
    if where is None:
        return
    if (why := obstacle()) is not None:
        console.print(f"not sent to {where}: {why}")
        return
    console.print(f"{send(found):,} points sent to {where}")


def _report(console: Console, found: MonitorReport) -> None:
    """What a person wants to know, a line for each part there is."""
    from practicum.cli.tables import print_table

    console.print(f"{found.method} with {found.model}, {found.state}; {len(found.steps):,} steps")
    for name, words in WORDS.items():
        if name in found.groups:
            for line in words(found.groups[name]):
                console.print(line)
    print_table(console, _latency_table(found.groups["latency"]))
    for note in found.notes:
        console.print(f"to know: {note}")


def _rate(numbers: Any, name: str = "rate") -> str:
    low, high = numbers["ci95"]
    return f"{numbers[name]:.1%} (95% interval {low:.1%} to {high:.1%})"


def _success(part: MetricGroup) -> list[str]:
    n = part.numbers
    tries = f" in {n['tries']:,} tries" if n["tries"] > n["attempts"] else ""
    wrong = [f"{n[name]:,} {words}" for name, words in COUNTED.items() if n[name]]
    rate = f"{_rate(n)} by {n['by']}" if "rate" in n else "of unknown outcome"
    lines = [f"success: {rate}, {n['attempts']:,} attempts{tries}" + (f"; {', '.join(wrong)}" if wrong else "")]
    if "rate" in n and n["attempts"] > n["window"]:
        lines.append(
            f"  first {n['window']:,}: {n['first']['rate']:.1%}; last {n['window']:,}: {n['last']['rate']:.1%}"
        )
    return lines


COUNTED = {
    "errors": "failed", "lost": "lost", "unknown": "of unknown outcome", "reused": "reused",
    "stopped": "whose code was stopped",
}  # fmt: skip


def _learning(part: MetricGroup) -> list[str]:
    domains = part.numbers["domains"]
    if len(domains) < 2:
        return []
    return ["by domain:", *(f"  {name}: {_rate(one)}, {one['attempts']:,} attempts" for name, one in domains.items())]


def _memory(part: MetricGroup) -> list[str]:
    n = part.numbers
    others = f", {n['others']:,} others" if n.get("others") else ""
    return [f"memories: {n['entries']:,}, {n['successes']:,} of successes, {n['failures']:,} of failures{others}"]


def _retrieval(part: MetricGroup) -> list[str]:
    n = part.numbers
    used = f"; {n['relied_on']:.1%} of them relied on" if "relied_on" in n else ""
    return [f"retrieved: similarity {n['similarity']:.2f} on average, {n['best']:.2f} at best{used}"]


def _context(part: MetricGroup) -> list[str]:
    n = part.numbers
    drift = n.get("from_first")
    words = "" if drift is None else f"; drift from the first {drift:.3f}, coherence {n['coherence']:.2f}"
    return [f"context: version {n['version']}, {n['entries']:,} entries, {n['tokens']:,} tokens{words}"]


def _contrast(part: MetricGroup) -> list[str]:
    n = part.numbers
    by = ", ".join(f"{who} {times:,}" for who, times in n["by"].items())
    same = f"{n['agreement']:.1%} came to what was chosen, all of them {n['unanimous']:.1%} of the time"
    return [f"agreement of {n['tries']:.1f} attempts at a task: {same}; chosen by {by}"]


def _judge(part: MetricGroup) -> list[str]:
    lines = []
    if (n := part.numbers.get("against_scorer")) is not None:
        wrong = f"{n['lenient']:,} wrong ones called right, {n['strict']:,} right ones called wrong"
        lines.append(f"judge against the scorer: the same in {_rate(n, 'same')} of {n['n']:,} attempts; {wrong}")
    if (n := part.numbers.get("again")) is not None:
        same = f"the same in {_rate(n, 'same')} of {n['n']:,} attempts" if "same" in n else "no verdict"
        none = f", {n['no_verdict']:,} without a verdict" if n["no_verdict"] else ""
        lines.append(f"judge again, at temperature {n['temperature']:g}: {same}{none}; {n['usage']['calls']:,} calls")
        if "stopped" in n:
            lines.append(f"  not all that were asked for: {n['stopped']}")
    return lines


def _agent(part: MetricGroup) -> list[str]:
    n = part.numbers
    return [f"actions of an attempt: {n['mean']:.1f} on average, median {n['median']:g}, 95th percentile {n['p95']:g}"]


def _tokens(part: MetricGroup) -> list[str]:
    lines = []
    for stage, n in part.numbers.items():
        if "tokens_per_task" not in n:
            continue
        money = f", ${n['usd_per_task']:.4f}" if n.get("usd_per_task") else ""
        roles = ", ".join(f"{role} {usage['tokens_per_task']:,.0f}" for role, usage in n["by_role"].items())
        each = f"{n['tokens_per_task']:,.0f} tokens{money} ({n['cached_share']:.0%} of the input cached)"
        lines.append(f"a task in {stage}: {each}: {roles}")
    return lines


WORDS = {
    "success": _success, "learning": _learning, "memory": _memory, "retrieval": _retrieval, "context": _context,
    "contrast": _contrast, "judge": _judge, "agent": _agent, "tokens": _tokens,
}  # fmt: skip
"""Each part in words."""


def _latency_table(part: MetricGroup) -> Table:
    from practicum.cli.tables import table

    numbers = ("stage", "calls", "failed", "median s", "p95 s", "share of seconds")
    made = table("component", *numbers, numbers=numbers)
    for row in part.numbers["components"]:
        lies = (f"{row['median']:,.3f}", f"{row['p95']:,.3f}") if "median" in row else ("", "")
        share = "" if row["share"] is None else f"{row['share']:.1%}"
        made.add_row(row["component"], row["stage"], f"{row['calls']:,}", f"{row['failures']:,}", *lies, share)
    return made
