"""`practicum space dynamics`: scores every checkpoint of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import Stopped, UsageError
from practicum.core.metrics import METRICS
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.analysis.dynamics.checkpoints import Dynamics


@opt.settings("concurrency")
def dynamics(
    run: opt.RunFolder,
    tasks: Path | None = opt.option(None),
    fields: opt.Fields = None,
    window: Literal["5", "10", "all"] = Option(
        "5", "--recent", help="A task is recently solved if it was solved in one of the last N checkpoints."
    ),
    every: int = Option(1, min=1, help="Score every N-th step, and always the start and the last step."),
    trust_run: opt.TrustRun = False,
    plot: Path | None = opt.option(None),
    json_: opt.Json = False,
    **options: Any,
) -> None:
    """Score every checkpoint of a run on the same tasks.

    Shows which tasks the run learned, kept, lost and learned again. Without --tasks, uses the validation tasks of the
    run, or the test tasks if the run has no validation tasks. Scores from training, or from earlier uses of this
    command, are reused at no cost. New costs are added to the run, and count towards the limits of the run if you
    resume the run.
    """
    from practicum.analysis.dynamics.plot import dynamics_plot
    from practicum.analysis.png import check_png
    from practicum.cli.inputs import read_tasks

    recent = None if window == "all" else int(window)
    if plot is not None:
        check_png(plot, "--plot")
    if fields and tasks is None:
        raise UsageError("settings.conflict", "--fields applies to --tasks only: pass both, or neither")
    listed, out = read_tasks(tasks, fields) or None, Printer(json_)
    scores = _score(run, out, tasks=listed, every=every, trust_run=trust_run, **options)
    kind = {"val": "validation ", "test": "test "}.get(scores.split, "")
    scored = quantity(len(scores.tasks), f"{kind}task")
    out.result(scores.as_json())
    out.print(f"{quantity(len(scores.checkpoints), 'checkpoint')} on {scored}")
    curves, steps = scores.curves, [checkpoint.step for checkpoint in scores.checkpoints]
    recency = curves.by_window[recent]
    shown = (curves.current, recency.recent, recency.active, recency.stale, curves.best)
    rows = [
        (checkpoint.step, checkpoint.version, *(f"{rates[i]:.1%}" for rates in shown))
        for i, checkpoint in enumerate(scores.checkpoints)
    ]
    out.table(("step", "version", *(metric.title for metric in METRICS.values() if metric.group == "dynamics")), rows)
    best, last = curves.current[curves.peak], curves.current[-1]
    out.print(f"peak {best:.1%} at step {steps[curves.peak]}; {last:.1%} at the last step, {steps[-1]}")
    never = round((1 - curves.best[-1]) * len(scores.tasks))
    covered = f"all except {never:,}" if curves.covered is None else f"all, by step {steps[curves.covered]}"
    out.print(f"tasks solved at least once: {covered}")
    when = "at any earlier checkpoint" if recent is None else f"at one of the last {recent} checkpoints"
    out.print(f"mean instability (tasks solved {when}, but not now): {100 * recency.mean_instability:.1f} pp")
    again = (
        ""
        if curves.relearned is None
        else f"; after {curves.relearned:.0%} of these failures, the task was solved again"
    )
    out.print(f"tasks solved and later failed: {quantity(curves.unlearned, 'time')}{again}")
    out.usage(scores.usage, hits=scores.hits, by_role=scores.by_role)
    if scores.errors:
        out.print(f"! {quantity(scores.errors, 'attempt')} failed or could not be scored")
    if plot is not None:
        title = f"Training dynamics of {run.absolute().name} on {scored}"
        dynamics_plot(scores.curves, plot, recent, steps=[c.step for c in scores.checkpoints], title=title)
        out.print(f"plot written to {plot}")


def _score(run: Path, out: Printer, **options: Any) -> Dynamics:
    """Score the checkpoints, and show the progress in the live view."""
    from practicum.analysis.dynamics.checkpoints import dynamics as score
    from practicum.cli.running import Interrupted, run_live

    try:
        return run_live(lambda **hooks: score(run, **options, **hooks), out)
    except Stopped as error:
        raise Interrupted(
            "run.interrupted",
            f"not all checkpoints are scored: {error}; run the same command again to continue at no extra cost",
        ) from error
