"""`practicum eval`: scores a context on tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import quantity


@opt.settings("scaling", "k", "preset", where=lambda setting: setting.use not in ("learning", "training", "traces"))
def eval_(
    tasks: Path = Argument(..., help="Tasks as JSON lines, with targets if the scorer needs them; or a space."),
    context: Path | None = opt.task(None),
    repeat: int = opt.task(1, min=1, help="Number of attempts at each task."),
    folder: opt.Out = None,
    trust_run: opt.TrustRun = False,
    fields: opt.Fields = None,
    log: opt.Log = [],
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """Score a context on tasks, with a 95% interval.

    Settings that you do not pass are taken from the run in --context. With --out, run the same command again to
    continue after a stop.
    """
    from practicum.cli.inputs import config_values, read_tasks
    from practicum.cli.running import Interrupted, run_live
    from practicum.core.context import Context
    from practicum.session.evaluate import evaluate
    from practicum.session.records import run_config
    from practicum.session.result import INTERRUPTED

    out = Printer(json_)
    config = config_values(options)
    stored = run_config(context) if context is not None else {}
    listed = read_tasks(tasks, fields, scorer=options["scorer"] or stored.get("scorer"))
    if repeat > 1 and not config.get("temperature", stored.get("temperature")):
        out.print("note: at temperature 0, repeats differ only if the model is not deterministic")

    learned = context if context is not None else Context()
    evaluation = run_live(
        lambda **hooks: evaluate(listed, learned, repeat=repeat, out=folder, trust_run=trust_run, **config, **hooks),
        out,
        log,
    )
    out.result(evaluation.as_json())
    if evaluation.n:
        low, high = evaluation.ci95
        tasks_of = quantity(len(listed), "task")
        of = tasks_of if evaluation.n == len(listed) else f"{evaluation.n:,} of {tasks_of}"
        times = f", {repeat} times each" if repeat > 1 else ""
        out.print(f"score {evaluation.score:.1%} (95% interval {low:.1%} to {high:.1%}) on {of}{times}")
        if evaluation.best_of_k is not None:
            out.print(f"best of k {evaluation.best_of_k:.1%}")
    if evaluation.measures:
        means = ", ".join(f"{name} {mean:,.2f}" for name, mean in evaluation.measures.items())
        out.print(f"means of the scorer's measures: {means}")
    out.usage(evaluation.usage, evaluation.seconds, by_role=evaluation.by_role)
    out.counts(evaluation.counts)
    if evaluation.stopped:
        text = f"the evaluation is incomplete: {evaluation.stopped}"
        if evaluation.stopped == INTERRUPTED:
            raise Interrupted("run.interrupted", text)
        raise UsageError("budget.spent", text)
    return 0
