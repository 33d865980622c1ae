"""`practicum compare`: methods side by side on the same tasks, under the same budget, with a report that says what may
be claimed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from practicum.analysis.compare.harness import Comparison
    from practicum.analysis.compare.outcome import RunOutcome
    from practicum.analysis.compare.plan import ComparisonPlan
    from practicum.analysis.compare.variants import Study

Opt = typer.Option


def compare(
    tasks: Path = typer.Argument(..., help="Tasks to learn from, as JSON lines."),
    test: Path | None = Opt(None, help="Held-out tasks, which give the scores."),
    val: Path | None = Opt(None, help="Tasks to choose each method's best context by; paid from its budget."),
    methods: str = Opt("", help="Methods, as a,b,c; NAME=METHOD calls one by another name."),
    ablate: str = Opt("", help="A paper's ablation in place of --methods: ace, combee or rcl."),
    sweep: str = Opt("", help="Values of one setting of the one method, as groups=2,4,6,10."),
    baseline: str | None = Opt(None, help="What the others are compared with (default: none, else the first)."),
    seeds: int = Opt(3, min=1, help="Runs of each method, each with another seed."),
    budget_calls: int | None = Opt(None, min=1, help="Model calls of each run, its evaluation included."),
    budget_tokens: int | None = Opt(None, min=1, help="Tokens of each run instead, input and output together."),
    set_: list[str] = Opt([], "--set", help="NAME=VALUE for every method that has it, or METHOD.NAME=VALUE."),
    model: str = Opt("local", help="As for learn; a local one is opened once for all runs."),
    role: opt.Role[list[str]] = [],
    online: bool = Opt(False, "--online", help="TASKS is a stream: the predictions made before learning are scored."),
    no_labels: opt.NoLabels[bool] = False,
    judge: opt.Judge[bool] = False,
    scorer: opt.Scorer[str | None] = None,
    instructions: opt.Instructions[str] = "",
    choices: opt.Choices[str] = "",
    reasoning: opt.Reasoning[bool] = False,
    agent: opt.Agent[str] = "chat",
    max_turns: opt.MaxTurns[int | None] = None,
    tool_timeout: opt.ToolTimeout[float | None] = None,
    fields: opt.Fields[str] = "",
    validate_every: opt.ValidateEvery[int] = 1,
    concurrency: int = Opt(16, min=1, help="Calls in flight at one endpoint, over all runs together."),
    runs_at_once: int | None = Opt(None, min=1, help="Runs open at a time (default: as many as calls may be)."),
    temperature: opt.Temperature[float] = 0.0,
    max_output_tokens: opt.MaxOutputTokens[int] = 1024,
    timeout: opt.Timeout[float] = 120.0,
    retries: opt.Retries[int] = 5,
    structure: opt.Structure[str] = "native",
    window: opt.Window[int | None] = None,
    embedder: opt.Embedder[str] = "wordllama",
    out: Path | None = Opt(None, help="Folder of the comparison; the same command goes on there."),
    json_: opt.Json[bool] = False,
) -> int:
    """Run methods side by side and report what may be claimed. The same command goes on, and pays nothing twice."""
    from practicum.analysis.compare.harness import Halt
    from practicum.analysis.compare.harness import compare as start
    from practicum.cli.inputs import choices_of, pairs, read_instructions, read_tasks, roles_of
    from practicum.cli.running import console_for, print_json, run_work, telling

    study = _study(methods, ablate, sweep, baseline)
    train, vals, tests = (read_tasks(path, fields) for path in (tasks, val, test))
    optional = {"max_turns": max_turns, "tool_timeout": tool_timeout}
    config: dict[str, Any] = {
        "model": model,
        "roles": roles_of(role),
        "agent": agent,
        "scorer": scorer,
        "instructions": read_instructions(instructions),
        "choices": choices_of(choices, [*train, *vals, *tests]),
        "reasoning": reasoning,
        "labels": not no_labels,
        "judged": judge,
        "concurrency": concurrency,
        "structure": structure,
        "temperature": temperature,
        "max_output_tokens": max_output_tokens,
        "timeout": timeout,
        "attempts": retries + 1,
        "window": window,
        "embedder": embedder,
        "validate_every": validate_every,
        "max_calls": budget_calls,
        "max_tokens": budget_tokens,
        **{name: value for name, value in optional.items() if value is not None},
    }
    console = console_for(json_)
    halt = Halt()

    async def work(stop: Any) -> Comparison:
        stop.stoppable = halt
        return await start(
            train, test=tests, val=vals, methods=study, settings=pairs(set_, "--set"), seeds=seeds, online=online,
            out=out, runs_at_once=runs_at_once, watch=_Lines(console), halt=halt, parts=telling(console), **config,
        )  # fmt: skip

    found = run_work(work, console)
    if json_:
        print_json({"folder": str(found.folder), **found.report})
    _report(console, found)
    return 130 if found.interrupted else 1 if found.failed else 0


def _study(methods: str, ablate: str, sweep: str, baseline: str | None) -> Study:
    """What was asked to be compared."""
    from practicum.analysis.compare.ablations import of_ablation
    from practicum.analysis.compare.variants import of_methods, of_sweep

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if ablate:
        if names or sweep or baseline is not None:
            raise UsageError(
                "--ablate has methods and baselines of its own: leave out --methods, --sweep and --baseline"
            )
        return of_ablation(ablate)
    if not sweep:
        return of_methods(names, baseline)
    setting, equals, values = sweep.partition("=")
    if not equals or len(names) != 1:
        raise UsageError(f"--sweep {sweep!r} must read setting=a,b,c, beside one method in --methods")
    return of_sweep(names[0], setting.strip(), [v.strip() for v in values.split(",") if v.strip()], baseline)


class _Lines:
    """Tells how far it is, a line for each run."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def planned(self, plan: ComparisonPlan, folder: Path, done: int) -> None:
        for warning in plan.warnings:
            self.console.print(f"warning: {warning}")
        runs = f"{len(plan.study.variants)} variants x {plan.seeds} seeds = {len(plan.runs)} runs"
        self.console.print(f"{runs}, {done} of them done; kept in {folder}")

    def began(self, runs: int) -> None:
        self.console.print(f"{runs} runs to go")

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        score = "failed" if outcome.score is None else f"{outcome.score:.1%}"
        calls = outcome.learning.calls + outcome.testing.calls
        why = f"; {outcome.failed}" if outcome.failed else f"; {outcome.stopped}" if outcome.stopped else ""
        self.console.print(f"{done} of {of}: {outcome.variant}, seed {outcome.seed}: {score}, {calls:,} calls{why}")


def _report(console: Console, found: Comparison) -> None:
    """What a person wants to know at the end."""
    from practicum.analysis.formats import interval, percent, points, verdict_label
    from practicum.cli.tables import print_table
    from practicum.cli.tables import table as drawn_table

    by_name = {row["name"]: row for row in found.report["variants"]}
    for table in found.report["tables"]:
        console.print(table["title"])
        drawn = drawn_table("", "score", "95%", f"minus {table['baseline']}", "95%", "")
        for row in table["rows"]:
            variant, known = by_name[row["name"]], "effect" in row
            drawn.add_row(
                row["name"], percent(variant["score"]), interval(variant["ci95"]),
                points(row["effect"]) if known else "", interval(row["ci95"], signed=True) if known else "",
                verdict_label(row["verdict"]),
            )  # fmt: skip
        print_table(console, drawn)
    for outcome in found.failed:
        console.print(f"{outcome.variant}, seed {outcome.seed}, failed: {outcome.failed}")
    if found.interrupted or found.failed:
        console.print("The same command goes on from here; what was paid for is kept.")
    console.print(f"costs, curves and more: {found.folder / 'report.html'} (and .md, .json)")
