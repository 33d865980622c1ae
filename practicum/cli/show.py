"""`practicum show`: shows the context of a run, the history of an entry, or the events of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from practicum.cli import options as opt
from practicum.cli import story
from practicum.cli.output import Printer
from practicum.core.edits import Applied, entry_json
from practicum.core.errors import UsageError
from practicum.core.views import behind, entry_line, render_full
from practicum.core.visible import visible_line
from practicum.core.words import in_number, one_line, quantity

if TYPE_CHECKING:
    from practicum.store.versions import EntryEvent

SHOWN = 8
"""Number of attempts that are listed with an entry."""

LISTS: dict[str, Any] = {"rich_help_panel": "Lists"}
ONE: dict[str, Any] = {"rich_help_panel": "Single items", "metavar": "ID"}
ONLY: dict[str, Any] = {"rich_help_panel": opt.ONLY}

NARROWS = {
    "version": ("context",), "failed": ("attempts",), "step": ("attempts", "lessons", "merges", "calls"),
    "split": ("attempts",), "task": ("attempts",), "role": ("calls",), "output": ("delay",),
}  # fmt: skip
"""Option → the views to which the option applies."""


def show(
    run: opt.RunFolder,
    version: str | None = opt.option(None),
    entry: str | None = opt.option(None, panel="Single items", metavar="ID"),
    attempts: bool = Option(False, "--attempts", help="All attempts, in learning and in evaluations.", **LISTS),
    attempt: str | None = Option(None, help="One attempt: prompt, steps, score and lessons (such as 3.t17).", **ONE),
    lessons: bool = Option(False, "--lessons", help="The lessons, and the edits made from them.", **LISTS),
    merges: bool = Option(False, "--merges", help="The merges of entries, with the texts that were removed.", **LISTS),
    calls: bool = Option(False, "--calls", help="The model calls, with tokens and seconds.", **LISTS),
    call: str | None = Option(None, help="One model call: the full prompt and answer.", **ONE),
    gate: bool = Option(False, "--gate", help="The decisions of the gate, with their evidence.", **LISTS),
    replay: bool = Option(False, "--replay", help="The replay buffer after the last step.", **LISTS),
    delay: bool = Option(False, "--delay", help="The measured delays of batch sizes, also as a plot.", **LISTS),
    failed: bool = Option(False, "--failed", help="--attempts: only wrong or failed attempts.", **ONLY),
    step: int | None = Option(None, min=1, help="--attempts, --lessons, --merges, --calls: only this step.", **ONLY),
    split: str | None = Option(None, help="--attempts: only train, before, val or test.", **ONLY),
    task: str | None = opt.option(None, panel=opt.ONLY),
    role: str | None = Option(None, "--by-role", help="--calls: only this role.", **ONLY),
    output: Path | None = opt.option(None, panel=opt.ONLY),
    json_: opt.Json = False,
) -> None:
    """Show the scores and the context of a space.

    Options select another view, one at a time. --failed, --step, --split, --task and --by-role filter a view. --output
    is the file for the plot of --delay.
    """
    from practicum.session.records import split_version

    run, at = split_version(run)
    version = version or at
    views = {
        "entry": entry is not None, "attempts": attempts, "attempt": attempt is not None, "lessons": lessons,
        "merges": merges, "calls": calls, "call": call is not None, "gate": gate, "replay": replay, "delay": delay,
    }  # fmt: skip
    named = [name for name, requested in views.items() if requested]
    if len(named) > 1:
        raise UsageError("settings.conflict", f"--{named[0]} and --{named[1]} cannot be combined: choose one")
    view = named[0] if named else "context"
    filters = {"version": version, "failed": failed or None, "step": step, "split": split, "task": task, "role": role}
    for name, value in {**filters, "output": output}.items():
        if value is not None and view not in NARROWS[name]:
            where = " or ".join(f"--{one}" for one in NARROWS[name])
            # The view "context" has no option: it is shown if no other view is requested.
            advice = f"does not apply to --{view}" if view != "context" else f"needs {where}: pass that option too, or"
            raise UsageError("settings.unused", f"--{name} {advice} omit --{name}")
    out = Printer(json_)
    match view:
        case "gate":
            _show_gate(run, out)
        case "replay":
            _show_replay(run, out)
        case "delay":
            _show_delay(run, output or run / "delay.png", out)
        case "attempts":
            story.show_attempts(run, out, failed=failed, split=split, step=step, task=task)
        case "merges":
            _show_merges(run, out, step)
        case "lessons":
            story.show_lessons(run, out, step)
        case "calls":
            story.show_calls(run, out, step, role)
        case _ if attempt is not None:
            story.show_attempt(run, attempt, out)
        case _ if call is not None:
            story.show_call(run, call, out)
        case _ if entry is not None:
            show_entry(run, entry, out)
        case _:
            _show_context(run, version, out)


def _show_context(run: Path, named: str | None, out: Printer) -> None:
    from practicum.core.context import Context
    from practicum.session.corrections import read_corrections
    from practicum.session.records import read_config, run_summary
    from practicum.session.result import waiting_line
    from practicum.session.review import count_pending
    from practicum.session.rollout import is_decided, under_way
    from practicum.store.database import Store
    from practicum.store.names import LIVE, newest_version, read_names, shown_version
    from practicum.store.snapshot import read_context

    with Store.read(run) as store:
        names, version = read_names(store), shown_version(store, named)
        context = read_context(store, version)
        summary = run_summary(store, version)
        config, state = read_config(store)
        held = count_pending(store)
        about = {
            "run": str(run), "state": state, "method": config.method, "names": names, "held": held,
            **{name: summary[name] for name in ("scores", "usage", "steps", "versions")},
        }  # fmt: skip
        size = {"tokens": render_full(context).tokens, "helpful": context.helpful}
        entries = [*map(entry_json, context)]
        # Corrections are not part of a version: they apply to the current view of agents.
        corrections = read_corrections(store) if version in (None, names.get(LIVE)) else Context()
        out.result({
            **about, "sections": config.sections, "version": context.version, **size, "entries": entries,
            "corrections": [*map(entry_json, corrections)],
        })  # fmt: skip
        counted = f"{quantity(summary['versions'], 'version')}, {quantity(summary['steps'], 'step')}"
        out.print(f"{config.method} with {config.models}, {state}; {counted}")
        if names:
            out.print("named: " + ", ".join(f"{name} is version {number}" for name, number in names.items()))
        out.scores(summary["scores"])
        if live := names.get(LIVE):
            last = newest_version(store)
            if (rollout := under_way(store)) is not None:
                version_shown = f"practicum show {run} --version {rollout.version}"
                out.print(f"version {rollout.version} is in a rollout: {version_shown}")
            elif last != live and not is_decided(store, last):
                out.print(f"version {last} waits for its rollout: practicum show {run} --version {last}")
        hits = f", {context.helpful:,} helpful hits" if context.helpful else ""
        out.print(f"version {context.version}: {len(context)} entries, {size['tokens']:,} tokens{hits}")
        if {e.section for e in context} & config.sections.keys() and len(config.sections) > 1:
            out.print(f"sections: {', '.join(config.sections)}")
        for e in context:
            answer = f" → {e.data['answer']}" if "answer" in e.data else ""
            votes = f"(+{e.helpful}/-{e.harmful}, used {e.uses}"
            if "front" in e.data:  # a candidate on the Pareto front
                votes += f"; score {e.data['score']:.1%}, best on {quantity(e.data['front'], 'task')}"
            votes += f"; {e.trust}" if e.trust != "own" else ""
            heading, below, lines = entry_line(e).partition("\n")
            out.item(f"{heading}{answer}  {votes}){below}{lines}")
        if corrections:
            out.print(in_number(len(corrections), f"{len(corrections):,} active correction[|s] or note[|s]"))
        for e in corrections:
            out.item(behind(f"{e.id} ({e.section}{'' if e.trust == 'own' else f'; {e.trust}'}):", e.solved))
        if held:
            out.print(waiting_line(held, run))


def show_entry(run: Path, id: str, out: Printer) -> None:
    """Show an entry with its history, its sources, and the attempts that used it."""
    from itertools import islice

    from practicum.view.read import Story

    with Story.open(run) as history:
        one = history.entry(id)
        now, origins = one.now, [history.attempt_line(name) for name in one.attempts]
        used = list(islice(history.attempts_with(id), None if out.as_json else SHOWN + 1))
        edits = [event_json(event) for event in one.events]
        attempts = {"attempts": [*one.attempts], "used_by": [line.id for line in used]}
        out.result({"id": id, "now": entry_json(now) if now else None, "events": edits, **attempts})
        out.item(behind(f"{id}:", now.solved if now else "(removed)"))
        if now is not None:
            trust = f"; trust: {now.trust}" if now.trust != "own" else ""
            out.print(f"section {now.section}; helpful {now.helpful}, harmful {now.harmful}, used {now.uses}{trust}")
        for event in one.events:
            out.item(event_text(event))
        for line in origins[:SHOWN]:
            out.item(visible_line(f"from {line.id}, {line.outcome}: {one_line(line.input, 200)}"))
        tasks = [source.removeprefix("task:") for source in one.sources if source.startswith("task:")]
        for id in tasks[:SHOWN] if not origins else ():
            task = history.task(id)
            out.item(visible_line(f"from task {id}" + (f": {one_line(task.text, 200)}" if task else "")))
        if (more := len(origins or tasks) - SHOWN) > 0:
            out.print(f"… and {more:,} more (--json shows all)")
        for name, named in (("sources", one.sources), ("retrieved or cited in", [line.id for line in used])):
            if named:
                out.item(visible_line(f"{name}: {', '.join(named[:SHOWN])}{', …' if len(named) > SHOWN else ''}"))
        if example := next(iter([*one.attempts, *(line.id for line in used)]), None):
            out.print(f"to look at an attempt: practicum show {run} --attempt {example}")


def event_json(event: EntryEvent) -> dict[str, Any]:
    """Return an edit as JSON values, with the texts that a merge removed."""
    from dataclasses import asdict

    lost = {"lost": dict(event.lost)} if event.lost else {}
    return {"version": event.version, "step": event.step, "id": event.done.id, **asdict(event.done.edit), **lost}


def event_text(event: EntryEvent) -> str:
    """Describe an edit for the user. Texts that a merge removed follow on separate lines."""
    lost = [behind(f"  {id} was:", text or "(forgotten)") for id, text in event.lost.items()]
    # Corrections and notes have separate version numbers.
    when = (
        f"version {event.version} (step {event.step})" if event.done.id.startswith("e") else f"change {event.version}"
    )
    return "\n".join([f"{when}: {edit_text(event.done)}", *lost])


def _show_merges(run: Path, out: Printer, step: int | None) -> None:
    """Show the merges of entries, with the removed texts."""
    from practicum.view.read import Story

    with Story.open(run) as history:
        events = list(history.merges(step))
        out.result({"merges": [event_json(event) for event in events]})
        for event in events:
            out.item(event_text(event))
        out.print(quantity(len(events), "merge"))


def edit_text(done: Applied) -> str:
    """Describe an applied edit for the user."""
    edit = done.edit
    match edit.op:
        case "add":
            answer = f" → {edit.data['answer']}" if "answer" in edit.data else ""
            text = behind(f"added in {edit.section!r}:", f"{edit.text}{answer}")
        case "update":
            text = behind("changed to:", edit.text) if edit.text is not None else "changed"
        case "merge":
            text = f"{', '.join(id for id in edit.ids if id != done.id)} merged into {done.id}"
        case "delete":
            text = "deleted"
        case "vote":
            counted = {"helpful": edit.helpful, "harmful": edit.harmful, "used": edit.uses}
            text = ", ".join(f"{name} {quantity(n, 'time')}" for name, n in counted.items() if n) or "no vote"
    return text + (f"{chr(10) if chr(10) in text else ' '}({edit.reason})" if edit.reason else "")


def _show_gate(run: Path, out: Printer) -> None:
    """Show the decision of the acceptance gate at each step, with the evidence for the decision."""
    from practicum.view.read import Story

    with Story.open(run) as history:
        if not history.config.settings.get("gate"):
            raise UsageError("run.no_data", f"{run} has no gate: learn with --val FILE --set gate=true")
        steps = history.steps()
    trials: list[dict[str, Any]] = [{"step": s.step, **s.evidence} for s in steps if "gate" in s.evidence]
    out.result({"gate": trials})
    lines = []
    for trial in trials:
        differences = trial["differences"].values()
        better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        evidence = (f"{trial['mean']:+.3f}", f"{trial['e_worse']:.3g}", f"{trial['e_better']:.3g}")
        lines.append((trial["step"], trial["gate"], trial["by"], trial["tasks"], better, worse, *evidence))
    columns = ("step", "gate", "by", "tasks", "better", "worse", "mean", "e worse", "e better")
    out.table(columns, lines, text=("gate", "by"))
    dropped = sum(trial["gate"] == "dropped" for trial in trials)
    out.print(
        f"{quantity(len(trials), 'delta')} tried, {dropped} dropped; deltas that do not change the view are not tried. "
        "better, worse: validation tasks with a higher or lower score with the delta; e worse, e better: e-values, the "
        "evidence that the delta is worse or better"
    )


def _show_replay(run: Path, out: Printer) -> None:
    """Show the replay buffer after the last step: first the tasks in the buffer, then the tasks that left the buffer.
    Each list is in the order in which the tasks entered the buffer."""
    from dataclasses import asdict

    from practicum.methods import settings_of
    from practicum.methods.blocks.sample import replay_buffer, task_results
    from practicum.session.components import Parts
    from practicum.session.foreign import Origin
    from practicum.session.records import read_config, step_records
    from practicum.store.database import Store

    with Store.read(run) as store:
        config, method = read_config(store)[0], Origin.of(store, {}, Parts(), trust_run=False).method
        overrides = config.settings if method == config.method else {}
        settings = settings_of(method, config.profile or "full").model_validate(overrides).model_dump()
        if not settings.get("replay"):
            other = "" if "replay" in settings else " --method rcl, or --method ace with"
            raise UsageError(
                "run.no_data", f"{run} replays no failures (method {config.method}): learn with{other} --set replay=0.5"
            )
        results = [result for step in step_records(store) for result in task_results(*step)]
    buffer = replay_buffer(results, settings["graduate"], settings["evict"]).values()
    tasks = sorted(buffer, key=lambda task: (not task.inside, task.entered, task.task))
    out.result({"replay": [asdict(task) for task in tasks]})
    if not tasks:
        out.print("no task has failed yet, so the replay buffer is empty")
        return
    rows = [(task.task, task.entered, task.passes, task.failures, task.graduated, task.evicted) for task in tasks]
    out.table(("task", "entered", "passes", "failures", "graduated", "evicted"), rows, text=("task",))
    inside, graduated = sum(task.inside for task in tasks), sum(task.graduated is not None for task in tasks)
    out.print(f"{inside} in the buffer; {graduated} graduated, {len(tasks) - inside - graduated} evicted")
    out.print(
        "entered, graduated, evicted: step numbers; passes: consecutive passes; failures: consecutive failures that a "
        "reflection was about"
    )


def _show_delay(run: Path, output: Path, out: Printer) -> None:
    """Show the measured delays and the batch size chosen from them, as text and as a plot."""
    from practicum.analysis.delay_plot import delay_plot
    from practicum.analysis.png import check_png
    from practicum.methods.blocks.sample import DelayFit
    from practicum.view.read import Story

    check_png(output, "--output")
    with Story.open(run) as story:
        fits = [step.sampled["fit"] for step in story.steps() if step.sampled.get("fit")]
    if not fits:
        raise UsageError(
            "run.no_data",
            f"{run} has no measured delays: only a run that chooses the batch size itself measures delays, and only "
            "after all sizes were tried (practicum learn --method combee --batch-size auto)",
        )
    fit = DelayFit.from_json(fits[-1])
    delay_plot(fit, output)
    out.result({"plot": str(output), "fit": fit.as_json()})
    if fit.A is not None and fit.alpha is not None:
        sure = "" if fit.alpha_ci95 is None else " (95% interval {:z.2f} to {:z.2f})".format(*fit.alpha_ci95)
        good = "" if fit.r2 is None else f"; R² {fit.r2:.3f}"
        law = f"A = {fit.A:,.4g}, alpha = {fit.alpha:z.3f}{sure}{good}"
        out.print(f"an epoch takes A · b^-alpha seconds at batch size b: {law}")
    outliers = f", {quantity(len(fit.outliers), 'outlier')} ignored" if fit.outliers else ""
    untimed = f", {fit.left_out} without a usable time" if fit.left_out else ""
    out.print(f"{quantity(len(fit.points), 'iteration')} measured{outliers}{untimed}")
    out.print(f"batch size {fit.chosen} chosen: {fit.why}")
    out.print(f"plot written to {output}")
