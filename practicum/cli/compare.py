"""`practicum compare`: methods side by side on the same tasks and budget, and what may be claimed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.analysis.compare.harness import Comparison
    from practicum.analysis.compare.outcome import RunOutcome
    from practicum.analysis.compare.plan import ComparisonPlan, PlannedRun
    from practicum.analysis.compare.variants import Study
    from practicum.cli.running import Stopper
    from practicum.session.result import Watch


@opt.settings(*opt.MODELS, "sections", "no_labels", "judged", "validate_every", "retries", "window", "concurrency")
def compare(
    tasks: Path = Argument(..., help="Tasks to learn from, as JSON lines."),
    test: Path | None = opt.what(None, help="Held-out tasks, which give the scores."),
    val: Path | None = opt.what(None, help="Tasks that choose each method's best context, within its budget."),
    online: bool = opt.what(False, "--online", help="Score the predictions made before learning."),
    fields: opt.Fields = None,
    methods: str = opt.method("", help="Methods, as a,b,c; NAME=METHOD gives one another name."),
    ablate: Literal["ace", "combee", "rcl", "reasoning_bank"] | None = opt.method(
        None, help="A paper's ablation instead of --methods."
    ),
    sweep: str = opt.method("", help="Values of one setting of the one method, as groups=2,4,6,10."),
    baseline: str | None = opt.method(None, help="What the others are compared with (default: none, else the first)."),
    set_: list[str] = opt.method(
        [], "--set", metavar="NAME=VALUE", help="For each method that has NAME, or METHOD.NAME for one."
    ),
    seeds: int = opt.method(3, min=1, help="Runs of each method, each with another seed; a claim needs three."),
    seed_playbook: Path | None = opt.method(None, help="Every method starts from this playbook file or run."),
    budget_calls: int | None = opt.budget(None, min=1, help="Model calls of each run, its evaluation included."),
    budget_tokens: int | None = opt.budget(None, min=1, help="Instead, tokens of each run, input and output together."),
    runs_at_once: int | None = opt.budget(None, min=1, help="Runs open at a time (default: as many as calls)."),
    folder: Path | None = opt.output(None, "--out", help="Folder of the comparison; the same command continues there."),
    log: opt.Log = [],
    json_: opt.Json = False,
    **given: Any,
) -> int:
    """Run methods side by side and report what may be claimed.

    The same command continues where it was stopped, and pays for nothing twice.
    """
    from practicum.analysis.compare.harness import Halt
    from practicum.analysis.compare.harness import compare as start
    from practicum.cli.inputs import config_values, pairs, read_tasks
    from practicum.cli.running import parts_for, run_work
    from practicum.session.records import load_context

    study = _study(methods, ablate, sweep, baseline)
    train, vals, tests = (read_tasks(path, fields) for path in (tasks, val, test))
    config = config_values(given, [*train, *vals])
    config = {**config, "settings": pairs(set_, "--set"), "max_calls": budget_calls, "max_tokens": budget_tokens}
    seed = load_context(seed_playbook) if seed_playbook is not None else None
    out, halt = Printer(json_), Halt()
    progress = _Progress(out, log)
    progress.trackers()  # what one lacks is refused before anything is paid for

    async def work(stop: Stopper) -> Comparison:
        return await start(
            train, test=tests, val=vals, methods=study, seeds=seeds, online=online, seed_context=seed,
            out=folder, runs_at_once=runs_at_once, watch=progress, halt=stop.stops(halt), parts=parts_for(out),
            **config,
        )  # fmt: skip

    comparison = run_work(work, out)
    out.result({"folder": str(comparison.folder), **comparison.report})
    _print(out, comparison)
    return 130 if comparison.interrupted else 1 if comparison.failed else 0


def _study(methods: str, ablate: str | None, sweep: str, baseline: str | None) -> Study:
    """The variants to compare."""
    from practicum.analysis.compare.ablations import of_ablation
    from practicum.analysis.compare.variants import of_methods, of_sweep
    from practicum.cli.inputs import names

    listed = names(methods)
    if ablate:
        if listed or sweep or baseline is not None:
            raise UsageError("--ablate has its own methods and baselines: leave out --methods, --sweep and --baseline")
        return of_ablation(ablate)
    if not sweep:
        return of_methods(listed, baseline)
    setting, equals, values = sweep.partition("=")
    if not equals or len(listed) != 1:
        raise UsageError(f"--sweep {sweep!r} must read setting=a,b,c, beside one method in --methods")
    return of_sweep(listed[0], setting.strip(), names(values), baseline)


class _Progress:
    """Prints a line about each run."""

    def __init__(self, out: Printer, log: Sequence[str]) -> None:
        self.out, self.log = out, log

    def trackers(self, **how: Any) -> list[Watch]:
        from practicum.cli.running import trackers

        return trackers(self.log, self.out, **how)

    def watching(self, run: PlannedRun) -> list[Watch]:
        return self.trackers(name=run.folder.removeprefix("runs/"), group=self.group)

    def planned(self, plan: ComparisonPlan, folder: Path, done: int) -> None:
        self.group = folder.absolute().name
        for warning in plan.warnings:
            self.out.print(f"warning: {warning}")
        variants, seeds = quantity(len(plan.study.variants), "variant"), quantity(plan.seeds, "seed")
        ready = f", {done:,} of them done" if done else ""
        self.out.print(f"{variants} x {seeds} = {quantity(len(plan.runs), 'run')}{ready}; kept in {folder}")

    def began(self, runs: int) -> None:
        self.out.print(f"{quantity(runs, 'run')} to go")

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        score = "failed" if outcome.score is None else f"{outcome.score:.1%}"
        calls = quantity(outcome.learning.calls + outcome.testing.calls, "call")
        why = f"; {reason}" if (reason := outcome.failed or outcome.stopped) else ""
        self.out.print(f"{done} of {of}: {outcome.variant}, seed {outcome.seed}: {score}, {calls}{why}")


def _print(out: Printer, comparison: Comparison) -> None:
    from practicum.analysis.compare.summary import THESE_RUNS
    from practicum.analysis.formats import interval, percent, points, verdict_label
    from practicum.core.intervals import MIN_SEEDS

    variants = {row["name"]: row for row in comparison.report["variants"]}
    for table in comparison.report["tables"]:
        out.print(table["title"])
        about = {row["about"] for row in table["rows"] if "about" in row}
        # One heading where no row is about a method, so that the table is narrow.
        few, rows = THESE_RUNS if about == {THESE_RUNS} else "", []
        for row in table["rows"]:
            variant = variants[row["name"]]
            score = f"{percent(variant['score'])} ({interval(variant['ci95'])})" if variant["ci95"] else ""
            effect = f"{points(row['effect'])} ({interval(row['ci95'], signed=True)})" if "effect" in row else ""
            rows.append((row["name"], score, effect, verdict_label(row["verdict"]).removeprefix(f"{few}: ")))
        columns = ("", "score (95%)", f"difference from {table['baseline']} (95%)", few)
        out.table(columns, rows, text=columns)
        if THESE_RUNS in about:
            out.print(f"{THESE_RUNS}: others may differ; a claim about a method needs {MIN_SEEDS} seeds of it")
    for outcome in comparison.failed:
        out.print(f"{outcome.variant}, seed {outcome.seed}, failed: {outcome.failed}")
    if comparison.interrupted or comparison.failed:
        out.print("The same command continues from here; what was paid for is kept.")
    out.print(f"costs, curves and more: {comparison.folder / 'report.html'} (and .md, .json)")
