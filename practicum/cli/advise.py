"""`practicum bench advise`: recommends a method for tasks and a model, with the reason, the price and the command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.analysis.compare.check import Check
    from practicum.core.types import Task
    from practicum.session.advise import Advice

KINDS = {
    "choices": "choices (few different targets)",
    "answers": "short answers",
    "text": "free text (long targets, or no targets that learning may see)",
    "tools": "tools",
    "tiny": "tiny (135M)",
    "small": "small (profile small)",
    "capable": "capable (profile full)",
}


@opt.settings(
    where=lambda setting: setting.use not in ("cluster", "batches"), but=("method", "settings", "before"), begins=True
)
def advise(
    tasks: Path = Argument(..., help="Tasks as JSON lines: {'id'?, 'input', 'target'?, 'meta'?}."),
    test: Path | None = opt.task(None),
    check: bool = opt.method(
        False, help="Compare the recommended method with no learning and with cheap methods on a part of your tasks."
    ),
    fields: opt.Fields = None,
    folder: opt.Out = None,
    json_: opt.Json = False,
    **options: Any,
) -> None:
    """Recommend a method for your tasks, model and budget.

    Prints the recommended method, the reason, the estimated price and the command to copy. Calls no model and writes no
    file. With --check, the method is tried on held-out tasks first, within the limits of the budget; if no method
    scores higher than no learning, nothing pays."""
    import asyncio

    from practicum.cli.inputs import config_values, read_tasks
    from practicum.session.advise import advise as find
    from practicum.session.advise import price_text

    if folder is not None and not check:
        raise UsageError("settings.unused", "--out is the folder of the check: add --check")

    scorer = options["scorer"]
    train, tests = read_tasks(tasks, fields, scorer=scorer), read_tasks(test, fields, scorer=scorer, held_out=True)
    values, out = config_values(options, train), Printer(json_)
    advice = asyncio.run(find(train, tests, values))
    checked = _check(advice, train, values, folder, out) if check else None
    if checked is not None:
        advice = checked.applied(advice, train, tests, values)
    command = shlex.join([*_command({"tasks": tasks, "test": test, "fields": fields, **options}, advice)])
    row, alike = advice.row, advice.alike
    notes = [opt.as_options(note) for note in advice.notes]
    tried = {"check": checked.as_json()} if checked is not None else {}
    out.result({**advice.as_json(), "notes": notes, "command": command, **tried})
    held_out = f", {len(tests):,} held out" if tests else ""
    out.item(f"tasks: {KINDS[advice.tasks]}; {quantity(len(train), 'task')}{held_out}")
    out.item(f"model: {KINDS[advice.model]}")
    out.item(f"method: {' '.join([row.method, *_settings(advice)])}", style="bold")
    out.item(f"why: {row.reason} ({row.measured or 'a judgement, not measured'})")
    if alike is not None:
        out.item(
            f"measured on {quantity(alike.tasks, 'task')}: predicting the target of a task from the four most similar "
            f"tasks is right for {alike.nearest:.0%} of the tasks; always predicting the most frequent target is right "
            f"for {alike.frequent:.0%} of the tasks"
        )
    out.item(f"learning: {price_text(advice.learning)}")
    if tests:
        out.item(f"evaluation: {price_text(advice.evaluation)}")
    for note in notes:
        out.item(f"note: {note}")
    out.print(f"learn with: {command}", soft_wrap=True)


def _check(
    advice: Advice, tasks: Sequence[Task], values: Mapping[str, Any], folder: Path | None, out: Printer
) -> Check:
    """Compare the recommended method on held-out tasks, and print the comparison."""
    from practicum.analysis.compare.check import check
    from practicum.analysis.compare.harness import ComparisonLines, Halt
    from practicum.analysis.compare.report import brief_tables
    from practicum.cli.running import Interrupted, parts_for, run_work
    from practicum.session.advise import NAME
    from practicum.session.records import new_folder

    if advice.options.get("model") == NAME:
        raise UsageError("settings.missing", "--check calls the model: name it with --model", setting="model")
    place, watch = folder or new_folder("advise"), ComparisonLines(lambda line: out.print(opt.as_options(line)))
    checked = run_work(
        lambda stop: check(
            advice, tasks, values, out=place, parts=parts_for(out), watch=watch, halt=stop.stops(Halt()),
        ),
        out,
    )  # fmt: skip
    if checked.comparison.interrupted:
        raise Interrupted("run.interrupted", f"interrupted: run the same command with --out {place} to continue")
    for title, columns, rows, note in brief_tables(checked.comparison.report):
        out.print(title)
        out.table(columns, rows, text=columns)
        out.print(note)
    return checked


def _settings(advice: Advice) -> Iterator[str]:
    for name, value in advice.row.settings.items():
        yield from ("--batch-size", str(value)) if name == "batch" else ("--set", f"{name}={value}")


def _command(typed: Mapping[str, Any], advice: Advice) -> Iterator[str]:
    """Yield the words of the command to copy. The command has the options that the user passed and the recommended
    options, except the models of roles that the recommended method does not call."""
    from practicum.models.registry import ROLES

    yield from ("practicum", "learn", str(typed["tasks"]))
    for name, value in typed.items():
        for each in value if isinstance(value, list) else [value]:
            role = ROLES.get(str(each).partition("=")[0].strip()) if name == "roles" else None
            if each is None or name == "tasks" or (role and role not in (*advice.roles, "agent")):
                continue
            if isinstance(each, bool):
                yield opt.as_options(f"`{name}={each}`")
            else:
                yield from (opt.as_options(f"`{name}`"), str(each))
    yield from ("--method", advice.row.method, *_settings(advice))
    for name, value in advice.options.items():
        yield from ("--judge",) if value is True else (f"--{name}", "auto" if name == "choices" else value)
