"""`practicum space monitor`: shows the metrics of a run, also while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.analysis.monitor import MonitorReport

Numbers = Mapping[str, Any]


@opt.settings("seed", "max_calls", "max_tokens")
def monitor(
    run: opt.RunFolder,
    plot: Path | None = opt.option(None),
    judge_again: int | None = Option(None, min=1, help="Judge N attempts again with the run's judge (costs calls)."),
    trust_run: opt.TrustRun = False,
    json_: opt.Json = False,
    **options: Any,
) -> None:
    """Show the metrics of a run.

    The metrics are success, memory, retrieval, drift, agreement, judge, latency, tokens and learning curves. The run
    may still be running. If OTEL_EXPORTER_OTLP_ENDPOINT is set, the metrics are also sent as OpenTelemetry metrics.
    """
    from practicum.analysis.monitor import monitor as measure
    from practicum.analysis.monitor.export import metrics_endpoint, obstacle, send
    from practicum.analysis.monitor.plots import check_folder, monitor_plots
    from practicum.analysis.png import require_package
    from practicum.cli.running import parts_for, run_work

    if judge_again is None and (unused := [name for name, value in options.items() if value is not None]):
        raise UsageError(
            "settings.unused", f"--{unused[0].replace('_', '-')} needs --judge-again: pass both, or neither"
        )
    if plot is not None:
        check_folder(plot)
        require_package()
    out = Printer(json_)
    settings: dict[str, Any] = {
        "seed": options.pop("seed") or 0,
        "limits": options,
        "parts": parts_for(out),
        "trust_run": trust_run,
    }
    report = run_work(lambda stop: measure(run, judge_again=judge_again, **settings), out)
    plots = monitor_plots(report.groups, report.steps, plot, run.absolute().name) if plot is not None else []
    out.result({**report.as_json(), **({"plots": [str(file) for file in plots]} if plots else {})})
    _print(out, report)
    if plots:
        out.print(f"{quantity(len(plots), 'plot')} written to {plot}")
    if (where := metrics_endpoint()) is not None:
        # The endpoint may be configured for other programs, so a missing package is not an error.
        if (why := obstacle()) is not None:
            out.print(f"the metrics were not sent to {where}: {why}")
        else:
            out.print(f"{quantity(send(report), 'data point')} sent to {where}")


def _print(out: Printer, report: MonitorReport) -> None:
    out.print(f"{report.method} with {report.model}, {report.state}; {quantity(len(report.steps), 'step')}")
    for name, lines in LINES.items():
        if name in report.groups:
            for line in lines(report.groups[name].numbers):
                out.print(line)
    rows = []
    for row in report.groups["latency"].numbers["components"]:
        seconds = [f"{row[name]:,.3f}" if name in row else None for name in ("median", "p95")]
        share = None if row["share"] is None else f"{row['share']:.1%}"
        rows.append((row["component"], row["stage"], f"{row['calls']:,}", f"{row['failures']:,}", *seconds, share))
    columns = ("component", "stage", "calls", "failed", "median s", "p95 s", "share of seconds")
    out.table(columns, rows, text=("component", "stage"))
    for note in report.notes:
        out.print(f"! {opt.as_options(note)}")


def _rate(n: Numbers, name: str = "rate") -> str:
    low, high = n["ci95"]
    return f"{n[name]:.1%} (95% interval {low:.1%} to {high:.1%})"


def _success(n: Numbers) -> Iterator[str]:
    tries = f" in {quantity(n['tries'], 'try')}" if n["tries"] > n["attempts"] else ""
    others = "".join(f"; {n[name]:,} {meaning}" for name, meaning in OUTCOMES.items() if n[name])
    best = f", best of k {n['best_of_k']:.1%}" if "best_of_k" in n else ""
    rate = f"{_rate(n)} by {n['by']}" if "rate" in n else "unknown"
    yield f"success: {rate}, {quantity(n['attempts'], 'attempt')}{tries}{best}{others}"
    if "rate" in n and n["attempts"] > n["window"]:
        yield f"  first {n['window']:,}: {n['first']['rate']:.1%}; last {n['window']:,}: {n['last']['rate']:.1%}"


OUTCOMES = {
    "errors": "failed", "lost": "lost", "unknown": "with unknown outcome", "reused": "reused",
    "stopped": "whose code was stopped",
}  # fmt: skip


def _learning(n: Numbers) -> Iterator[str]:
    if len(n["domains"]) > 1:
        yield "by domain:"
        for name, one in n["domains"].items():
            best = f", best of k {one['best_of_k']:.1%}" if "best_of_k" in one else ""
            yield f"  {name}: {_rate(one)}{best}, {quantity(one['attempts'], 'attempt')}"


def _memory(n: Numbers) -> Iterator[str]:
    others = f", {n['others']:,} others" if n.get("others") else ""
    yield f"memories: {n['entries']:,}, {n['successes']:,} from successes, {n['failures']:,} from failures{others}"


def _retrieval(n: Numbers) -> Iterator[str]:
    used = f"; the agent cites {n['relied_on']:.1%} of these memories" if "relied_on" in n else ""
    yield f"retrieved memories: similarity {n['similarity']:.2f} on average, {n['best']:.2f} at best{used}"


def _context(n: Numbers) -> Iterator[str]:
    drift = n.get("from_first")
    words = "" if drift is None else f"; distance from the first version {drift:.3f}, coherence {n['coherence']:.2f}"
    hits = f", {quantity(n['helpful'], 'helpful hit')}" if n.get("helpful") else ""
    size = f"{quantity(n['entries'], 'entry')}, {n['tokens']:,} tokens"
    yield f"context after the last step: version {n['version']}, {size}{hits}{words}"


def _contrast(n: Numbers) -> Iterator[str]:
    by = ", ".join(f"{chooser} {times:,}" for chooser, times in n["by"].items())
    same = (
        f"{n['agreement']:.1%} agree with the chosen answer; all attempts agree for {n['unanimous']:.1%} of the tasks"
    )
    yield f"agreement of {n['tries']:.1f} attempts at a task: {same}; the answer was chosen by {by}"


def _judge(n: Numbers) -> Iterator[str]:
    if (scorer := n.get("against_scorer")) is not None:
        lenient, strict = quantity(scorer["lenient"], "wrong answer"), quantity(scorer["strict"], "right answer")
        same = f"the same verdict in {_rate(scorer, 'same')} of {quantity(scorer['n'], 'attempt')}"
        yield f"judge compared with the scorer: {same}; {lenient} judged right, {strict} judged wrong"
    if (again := n.get("again")) is not None:
        shown = quantity(again["n"], "attempt")
        same = f"the same verdict in {_rate(again, 'same')} of {shown}" if "same" in again else "no verdict"
        none = f", {again['no_verdict']:,} without a verdict" if again["no_verdict"] else ""
        calls = quantity(again["usage"]["calls"], "call")
        yield f"judge called a second time, at temperature {again['temperature']:g}: {same}{none}; {calls}"
        if "stopped" in again:
            yield f"  stopped before all attempts were judged: {again['stopped']}"


def _agent(n: Numbers) -> Iterator[str]:
    yield f"actions per attempt: {n['mean']:.1f} on average, median {n['median']:g}, 95th percentile {n['p95']:g}"


def _tokens(n: Numbers) -> Iterator[str]:
    for stage, part in n.items():
        if "tokens_per_task" in part:
            money = f", ${part['usd_per_task']:.4f}" if part.get("usd_per_task") else ""
            roles = ", ".join(f"{role} {usage['tokens_per_task']:,.0f}" for role, usage in part["by_role"].items())
            cached = f"{part['cached_share']:.0%} of the input cached"
            yield f"per task in {stage}: {part['tokens_per_task']:,.0f} tokens{money} ({cached}): {roles}"


LINES: Mapping[str, Callable[[Numbers], Iterator[str]]] = {
    "success": _success, "learning": _learning, "memory": _memory, "retrieval": _retrieval, "context": _context,
    "contrast": _contrast, "judge": _judge, "agent": _agent, "tokens": _tokens,
}  # fmt: skip
"""Group of metrics → function that yields the printed lines about this group."""
