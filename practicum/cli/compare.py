"""`practicum compare`: compares methods on the same tasks and budget, and reports which differences are significant."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.analysis.compare.harness import Comparison
    from practicum.analysis.compare.variants import Study


@opt.settings("online", where=lambda setting: setting.use != "budget", but=("method", "seed", "before"), begins=True)
def compare(
    tasks: Path = Argument(..., help="Tasks to learn from: JSON lines, or a space (its outcomes)."),
    test: Path | None = opt.task(None),
    val: Path | None = opt.task(None),
    online: bool = False,
    fields: opt.Fields = None,
    methods: str = opt.method("", help="Methods, as a,b,c (default: none, icl, episodes and ace)."),
    sweep: str = opt.method("", help="Values of one setting of a single method, as groups=2,4,6,10."),
    baseline: str | None = opt.method(
        None, help="Method that the other methods are compared with (default: `none` if listed, else the first)."
    ),
    seeds: int = opt.method(3, min=1),
    seed_playbook: opt.SeedPlaybook = None,
    budget_calls: int | None = opt.budget(None, min=1, help="Maximum model calls of each run, evaluation included."),
    budget_tokens: int | None = opt.budget(None, min=1, help="Maximum tokens (input + output) of each run."),
    runs_at_once: int | None = opt.budget(None, min=1, first=False),
    folder: opt.Out = None,
    store: opt.StoreUrl = None,
    log: opt.Log = [],
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """Compare methods on the same tasks and budget.

    Reports which differences are significant. In --methods, NAME=METHOD renames a method. --set NAME=VALUE applies to
    each method that has the setting NAME; --set METHOD.NAME=VALUE applies to one method. Run the same command again to
    continue after a stop; no call is paid for twice.
    """
    from practicum.analysis.compare.harness import ComparisonLines, Halt
    from practicum.analysis.compare.harness import compare as start
    from practicum.cli.inputs import config_values, read_tasks
    from practicum.cli.running import parts_for, run_work, trackers
    from practicum.session.records import load_context

    study = _study(methods, sweep, baseline, options["labels"] is not False)
    needs = {"scorer": options["scorer"], "trust_tools": options["trust_tools"]}
    train = read_tasks(tasks, fields, **needs)
    vals, tests = (read_tasks(path, fields, held_out=True, **needs) for path in (val, test))
    config = config_values(options, [*train, *vals])
    config = {**config, "max_calls": budget_calls, "max_tokens": budget_tokens}
    seed = load_context(seed_playbook) if seed_playbook is not None else None
    out = Printer(json_)
    trackers(log, out)  # if a tracker is not installed, raise the error before any cost
    progress = ComparisonLines(lambda line: out.print(opt.as_options(line)), partial(trackers, log, out))

    comparison = run_work(
        lambda stop: start(
            train, test=tests, val=vals, methods=study, seeds=seeds, online=bool(online), seed_context=seed, out=folder,
            runs_at_once=runs_at_once, watch=progress, halt=stop.stops(Halt()), parts=parts_for(out),
            store=store or None, **config,
        ),
        out,
    )  # fmt: skip
    out.result({"folder": str(comparison.folder), **comparison.report})
    _print(out, comparison)
    return 130 if comparison.interrupted else 1 if comparison.failed else 0


def _study(methods: str, sweep: str, baseline: str | None, labels: bool) -> Study:
    from practicum.analysis.compare.variants import default_methods, of_methods, of_sweep
    from practicum.cli.inputs import names

    listed = names(methods)
    if not sweep:
        return of_methods(listed or default_methods(labels), baseline)
    setting, equals, values = sweep.partition("=")
    if not equals or len(listed) != 1:
        raise UsageError(
            "settings.invalid",
            f"--sweep {sweep!r} must have the form setting=a,b,c, with exactly one method in --methods",
        )
    return of_sweep(listed[0], setting.strip(), names(values), baseline)


def _print(out: Printer, comparison: Comparison) -> None:
    from practicum.analysis.compare.report import brief_tables

    for title, columns, rows, note in brief_tables(comparison.report):
        out.print(title)
        out.table(columns, rows, text=columns)
        if note:
            out.print(note)
    for outcome in comparison.failed:
        out.print(opt.as_options(f"{outcome.variant}, seed {outcome.seed}, failed: {outcome.failed}"))
    if comparison.interrupted or comparison.failed:
        out.print("Run the same command again to continue; finished calls are not paid for twice.")
    out.print(f"costs, curves and more: {comparison.folder / 'report.html'} (and .md, .json)")
