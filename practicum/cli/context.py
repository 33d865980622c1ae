"""Looking at what a run learned, and changing it: show, diff, export, import, forget, rollback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.edits import entry_json
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.blocks.sample.delay import DelayFit
    from practicum.blocks.sample.replay import BufferedTask
    from practicum.core.edits import Applied, Entry
    from practicum.store.versions import EntryEvent

Opt = typer.Option


def show(
    run: Path = typer.Argument(..., help="The run's folder."),
    version: int | None = Opt(None, help="The context at this version (default: the last)."),
    entry: str | None = Opt(None, help="One entry: its whole history and what it came from."),
    replay: bool = Opt(False, "--replay", help="The tasks in the failure replay buffer, and those that left it."),
    gate: bool = Opt(False, "--gate", help="What the acceptance gate decided at each step, and on what evidence."),
    plot: str | None = Opt(None, help="A picture as PNG: delay (how the batch size was chosen)."),
    output: Path | None = Opt(None, help="The picture's file (default: in the run's folder)."),
    json_: opt.Json[bool] = False,
) -> int:
    """Show a run: its scores, usage and context; or one entry with its history; or its replay buffer; or a picture."""
    if gate:
        if replay or plot is not None or version is not None or entry is not None:
            raise UsageError("--gate is a table of the whole run: leave out --replay, --plot, --version and --entry")
        from practicum.cli.gate import show_gate

        return show_gate(run, json_)
    if output is not None and plot is None:
        raise UsageError("--output is the file of a picture: say which with --plot")
    if plot is not None:
        if replay:
            raise UsageError("--replay is a table and --plot a picture: leave one of them out")
        if version is not None or entry is not None:
            raise UsageError("a picture is of the whole run: leave out --version and --entry")
        return _show_plot(run, plot, output or run / f"{plot}.png", json_)
    if replay:
        if version is not None or entry is not None:
            raise UsageError("the replay buffer is shown as it is after the last step: leave out --version and --entry")
        return _show_replay(run, json_)
    if version is not None and entry is not None:
        raise UsageError("an entry is shown with its whole history: leave out --version")
    from practicum.cli.running import console_for, print_json
    from practicum.core.views import entry_line, render_full
    from practicum.session.records import RUN, read_run, run_summary
    from practicum.store.database import Store
    from practicum.store.versions import read_versions, rebuild

    with Store.read(run) as store:
        versions = read_versions(store, RUN)
        config, splits, state = read_run(store)
        summary = run_summary(store)
    console = console_for(json_)
    if entry is not None:
        return show_entry(run, versions, entry, splits, json_)
    context = rebuild(versions, version)
    if json_:
        numbers = {"run": str(run), "state": state, "method": config.method, "versions": len(versions)}
        print_json({**numbers, **summary, "version": context.version, "entries": [entry_json(e) for e in context]})
        return 0
    console.print(f"{config.method} with {config.model}, {state}; {len(versions)} versions, {summary['steps']} steps")
    for name, score in summary["scores"].items():
        console.print(f"{name}: {score:.1%}")
    console.print(f"version {context.version}: {len(context)} entries, {render_full(context).tokens:,} tokens")
    for e in context:
        answer = f" → {e.data['answer']}" if "answer" in e.data else ""
        console.print(f"{entry_line(e)}{answer}  (+{e.helpful} -{e.harmful}, used {e.uses}{_standing(e)})")
    return 0


def _standing(entry: Entry) -> str:
    """Of a candidate: its score, and its place in the Pareto front."""
    if "front" not in entry.data:
        return ""
    return f"; score {entry.data['score']:.1%}, nothing better on {entry.data['front']} tasks"


def show_entry(run: Path, versions: Any, id: str, splits: Any, json_: bool) -> int:
    """One entry with its whole history and what it came from."""
    from practicum.cli.running import console_for, print_json
    from practicum.store.versions import entry_history, rebuild

    events = entry_history(versions, id)
    if not events:
        raise UsageError(f"there never was an entry {id!r} in {run}")
    now = rebuild(versions).get(id)
    inputs = {task.id: task.input for split in (splits.train, splits.val, splits.test) for task in split}
    if json_:
        print_json({"id": id, "now": entry_json(now) if now else None, "events": [_event_json(e) for e in events]})
        return 0
    console = console_for(json_)
    console.print(f"{id}: {now.text if now else '(gone)'}")
    if now is not None:
        console.print(f"section {now.section}; helpful {now.helpful}, harmful {now.harmful}, used {now.uses}")
    for event in events:
        console.print(f"version {event.version} (step {event.step}): {edit_words(event.done)}")
    for source in now.sources if now else ():
        said = inputs.get(source.removeprefix("task:"), "") if source.startswith("task:") else ""
        console.print(f"from {source}" + (f": {said}" if said else ""))
    return 0


def _show_plot(run: Path, plot: str, output: Path, json_: bool) -> int:
    from practicum.analysis.delay_plot import delay_plot
    from practicum.analysis.png import check_png
    from practicum.blocks.sample.delay import DelayFit
    from practicum.cli.running import console_for, print_json
    from practicum.session.records import step_data
    from practicum.store.database import Store

    if plot != "delay":
        raise UsageError(f"unknown plot {plot!r}: known is delay")
    check_png(output, "--output")
    with Store.read(run) as store:
        fits = [step["sampled"]["fit"] for step in step_data(store) if step.get("sampled", {}).get("fit")]
    if not fits:
        raise UsageError(
            f"{run} holds no measured delays: only a run with a batch size controller has them, once it has tried its "
            "sizes (practicum learn --method combee --batch-size auto)"
        )
    fit = DelayFit.from_json(fits[-1])
    delay_plot(fit, output)
    if json_:
        print_json({"plot": str(output), "fit": fit.as_json()})
    console = console_for(json_)
    for words in (*_fit_words(fit), f"drawn in {output}"):
        console.print(words)
    return 0


def _fit_words(fit: DelayFit) -> list[str]:
    of = f"{len(fit.points)} iterations measured"
    of += f", {len(fit.outliers)} more too far off to count" if fit.outliers else ""
    of += f", {fit.left_out} without a usable time" if fit.left_out else ""
    chosen = f"batch size {fit.chosen} chosen: {fit.why}"
    if fit.A is None or fit.alpha is None:
        return [of, chosen]
    sure = "" if fit.alpha_ci95 is None else " (95% interval {:z.2f} to {:z.2f})".format(*fit.alpha_ci95)
    good = "" if fit.r2 is None else f"; R² {fit.r2:.3f}"
    law = f"an epoch takes A · b^-alpha seconds at batch size b: A = {fit.A:,.4g}, alpha = {fit.alpha:z.3f}{sure}{good}"
    return [law, of, chosen]


def _show_replay(run: Path, json_: bool) -> int:
    from dataclasses import asdict

    from practicum.cli.running import console_for, print_json

    rows = _replay_buffer(run)
    if json_:
        print_json({"replay": [asdict(row) for row in rows]})
        return 0
    from practicum.cli.tables import print_table, table

    console = console_for(json_)
    if not rows:
        console.print("no task has failed yet, so the replay buffer is empty")
        return 0
    columns = ("entered", "passes", "failures", "graduated", "evicted")
    made = table("task", *columns, numbers=columns)
    for row in rows:
        numbers = (row.entered, row.passes, row.failures, row.graduated, row.evicted)
        made.add_row(row.task, *("-" if number is None else str(number) for number in numbers))
    print_table(console, made)
    inside, graduated = sum(row.inside for row in rows), sum(row.graduated is not None for row in rows)
    console.print(f"{inside} in the buffer; {graduated} graduated, {len(rows) - inside - graduated} evicted")
    console.print("entered, graduated, evicted: steps; passes, failures (reflected on): in a row")
    return 0


def _replay_buffer(run: Path) -> list[BufferedTask]:
    """The buffer after the last step: what is in it first, each part in the order of entry."""
    from practicum.blocks.sample.replay import replay_buffer, task_results
    from practicum.methods import settings_of
    from practicum.session.records import read_run, step_records
    from practicum.store.database import Store

    with Store.read(run) as store:
        config, _, _ = read_run(store)
        settings = settings_of(config.method).model_validate(config.settings).model_dump()
        if not settings.get("replay"):
            other = "" if "replay" in settings else " --method rcl, or --method ace with"
            raise UsageError(f"{run} replays no failures (method {config.method}): learn with{other} --set replay=0.5")
        results = [result for step in step_records(store) for result in task_results(*step)]
    rows = replay_buffer(results, settings["graduate"], settings["evict"]).values()
    return sorted(rows, key=lambda row: (not row.inside, row.entered, row.task))


def _event_json(event: EntryEvent) -> dict[str, Any]:
    from dataclasses import asdict

    return {"version": event.version, "step": event.step, "id": event.done.id, **asdict(event.done.edit)}


def edit_words(done: Applied) -> str:
    """An edit that took effect, in words."""
    edit = done.edit
    match edit.op:
        case "add":
            what = f"added in {edit.section!r}: {edit.text}"
        case "update":
            what = f"changed to: {edit.text}" if edit.text is not None else "changed"
        case "merge":
            what = f"{', '.join(edit.ids)} merged into {done.id}"
        case "delete":
            what = "deleted"
        case "vote":
            what = f"votes: +{edit.helpful} -{edit.harmful}, used {edit.uses}"
    return what + (f" ({edit.reason})" if edit.reason else "")


def diff(
    run: Path = typer.Argument(..., help="The run's folder."),
    old: int = typer.Argument(..., help="A version."),
    new: int = typer.Argument(..., help="Another version."),
    json_: opt.Json[bool] = False,
) -> int:
    """What changed between two versions of a run."""
    from practicum.cli.running import console_for, print_json
    from practicum.core.views import entry_line
    from practicum.session.records import RUN
    from practicum.store.database import Store
    from practicum.store.versions import context_changes, read_versions, rebuild

    with Store.read(run) as store:
        versions = read_versions(store, RUN)
    added, removed, changed = context_changes(rebuild(versions, old), rebuild(versions, new))
    if json_:
        both = [{"before": entry_json(b), "after": entry_json(a)} for b, a in changed]
        print_json(
            {"added": [entry_json(e) for e in added], "removed": [entry_json(e) for e in removed], "changed": both}
        )
        return 0
    console = console_for(json_)
    for e in removed:
        console.print(f"- {entry_line(e)}", style="red")
    for before, after in changed:
        console.print(f"- {entry_line(before)}", style="red")
        console.print(f"+ {entry_line(after)}", style="green")
    for e in added:
        console.print(f"+ {entry_line(e)}", style="green")
    console.print(f"{len(added)} added, {len(removed)} removed, {len(changed)} changed")
    return 0


def export(
    run: Path = typer.Argument(..., help="A run, or a playbook file."),
    format: str = Opt("markdown", help="markdown, json or agents-md."),
    version: int | None = Opt(None, help="The context at this version (default: the last)."),
    output: Path | None = Opt(None, help="A file to write (default: standard output)."),
    json_: bool = Opt(False, "--json", help="Print one JSON object: {format, text, output}."),
) -> int:
    """Write a context as markdown, JSON, or AGENTS.md."""
    import sys

    from practicum.cli.running import print_json
    from practicum.core import playbook
    from practicum.core.files import write_atomic
    from practicum.session.records import load_context

    if format not in ("markdown", "json", "agents-md"):
        raise UsageError(f"unknown format {format!r}: known are markdown, json, agents-md")
    text = playbook.export(load_context(run, version), format)  # type: ignore[arg-type]
    if output is not None:
        write_atomic(output, text)
    if json_:
        print_json({"format": format, "text": text, "output": str(output) if output else None})
    elif output is None:
        sys.stdout.write(text)
    return 0


def import_(
    file: Path = typer.Argument(..., help="A playbook: markdown list items under '## section' headings, or JSON."),
    out: Path = Opt(..., help="Folder of the new run that holds it."),
    json_: opt.Json[bool] = False,
) -> int:
    """Make a run of a hand-written playbook, to evaluate, or to learn on from with --seed-playbook."""
    from practicum.cli.running import console_for, print_json
    from practicum.core import playbook
    from practicum.session.records import create_seed

    context = playbook.load(file)
    create_seed(out, context)
    if json_:
        print_json({"run": str(out), "entries": len(context)})
    console_for(json_).print(f"{len(context)} entries in {out}: practicum learn TASKS.jsonl --seed-playbook {out}")
    return 0


def forget(
    run: Path = typer.Argument(..., help="The run's folder."),
    task: list[str] = Opt([], help="Forget what was learned from this task."),
    source: list[str] = Opt([], help="Forget what was learned from this source, as `show --entry` names it."),
    tag: list[str] = Opt([], help="Forget what was learned from tasks with this tag (meta.tags)."),
    entry: list[str] = Opt([], help="Forget this entry."),
    keep_mixed: bool = Opt(False, "--keep-mixed", help="Keep entries that other tasks had a part in."),
    json_: opt.Json[bool] = False,
) -> int:
    """Take what was learned from some tasks, sources, tags or entries out of a run for good, and prove it."""
    from practicum.cli.running import console_for, print_json
    from practicum.core.edits import entry_json
    from practicum.core.errors import StoreError
    from practicum.core.views import entry_line
    from practicum.session.forget import forget as unlearn
    from practicum.session.records import RUN
    from practicum.store.database import Store

    if not (task or source or tag or entry):
        raise UsageError("forget what? Give --task, --source, --tag or --entry")
    with Store.open(run) as store:
        found = unlearn(store, RUN, tasks=task, sources=source, tags=tag, entries=entry, keep_mixed=keep_mixed)
    console = console_for(json_)
    if json_:
        lists = {"removed": found.removed, "restored": found.restored, "kept_mixed": found.kept_mixed}
        numbers = {"edits": found.edits, "rows": found.rows, "left": found.left}
        print_json({**{k: [entry_json(e) for e in v] for k, v in lists.items()}, **numbers})
    for e in found.removed:
        console.print(f"- {entry_line(e)}", style="red")
    for e in found.restored:
        console.print(f"back as it was without it: {entry_line(e)}")
    for e in found.kept_mixed:
        console.print(f"kept, of mixed origin: {entry_line(e)}")
    console.print(f"{len(found.removed)} entries, {found.edits} edits and {found.rows} records are gone")
    if found.left:
        raise StoreError(f"{found.left} traces of it are still in {run}: they are also part of what stays")
    console.print("proof: the file was searched for the forgotten texts and sources, and holds none of them")
    return 0


def rollback(
    run: Path = typer.Argument(..., help="The run's folder."),
    version: int = typer.Argument(..., help="The version to go back to."),
    json_: opt.Json[bool] = False,
) -> int:
    """Make an earlier version the last one again. Nothing is lost: it becomes a new version."""
    from practicum.cli.running import console_for, print_json
    from practicum.session.records import RUN, update_run
    from practicum.store import schema
    from practicum.store.database import Store
    from practicum.store.versions import Version, read_versions, rebuild, version_row

    with Store.open(run) as store:
        versions = read_versions(store, RUN)
        rebuild(versions, version)
        last = versions[-1]
        made = Version(last.version + 1, version, last.step, last.next_number, ())
        store.put(schema.versions, [version_row(RUN, made)])
        update_run(store, state="rolled back")
    if json_:
        print_json({"run": str(run), "version": made.version, "as": version})
    console_for(json_).print(f"version {made.version} of {run} is version {version} again")
    return 0
