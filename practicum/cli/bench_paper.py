"""`practicum bench paper`: reproduces the tables of the papers with the user's data and models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer, save_json
from practicum.core.errors import PracticumError, UsageError
from practicum.core.types import Task
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.bench.papers.table import PaperTable


@opt.settings(
    "epochs", "steps", where=lambda setting: setting.use != "budget", but=("method", "seed", "before"), begins=True
)
def paper(
    name: str | None = Argument(None, help="The table, such as ace2 or streambench (default: list all tables)."),
    tasks: Path | None = opt.task(None),
    test: Path | None = opt.task(None),
    train: int = opt.task(20, min=1, help="Maximum number of tasks to learn from."),
    test_n: int = opt.task(30, min=1, help="Maximum number of tasks to score."),
    fields: opt.Fields = None,
    rows: str | None = opt.method(None, help="Only these rows, as a,b,c, and the rows that these are compared with."),
    seeds: int = opt.method(3, min=1),
    seed_playbook: opt.SeedPlaybook = None,
    budget_calls: int | None = opt.budget(None, min=1, help="Maximum model calls of each run, evaluation included."),
    budget_tokens: int | None = opt.budget(None, min=1, help="Maximum tokens (input + output) of each run."),
    runs_at_once: int | None = opt.budget(None, min=1, first=False),
    folder: opt.Out = None,
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """Make a table of a paper or a benchmark with your tasks and models.

    Runs the rows of the table with the settings of the paper, and shows the paper's numbers next to yours. Works like
    `practicum compare`: run the same command again to continue after a stop. The whole report is in the folder (--out).
    """
    from practicum.analysis.compare.harness import ComparisonLines, Halt, compare
    from practicum.bench.papers import load_table
    from practicum.bench.papers.table import DATA, SCORED
    from practicum.cli.inputs import config_values, names
    from practicum.cli.running import parts_for, run_work
    from practicum.session.records import load_context, new_folder

    out = Printer(json_)
    if name is None:
        if tasks is not None or rows is not None:
            raise UsageError(
                "settings.missing", "no table is named: pass the name of a table (practicum bench paper lists them)"
            )
        _list(out, config_values(options)["settings"], train, test_n, seeds)
        return 0
    table = load_table(name)
    table, missing = (table if rows is None else table.only(names(rows, "--rows"))).installed()
    if tasks is None:
        out.print(
            f"{table.source}: {table.about}\nmodels and data of the paper: {table.setup}\n"
            "use one of these data sets, or your own tasks:"
        )
        for needed in table.data:
            out.print(f"  {DATA[needed]}")
        out.print(
            "pass --tasks FILE, and --test FILE unless the file of --tasks has enough tasks to learn from and to score"
        )
        _introduce(out, table, missing, config_values(options)["settings"])
        for data, settings in table.on_data.items():
            out.print(f"on {data}: {_listed(settings)}")
        out.result({"table": name, "source": table.source, "paper_setup": table.setup, "data": list(table.data)})
        return 0
    data, learning, suited = _read(tasks, fields, name)
    if test is None:
        learning, testing = _divided(learning, train)
    else:
        _, testing, suited_to_test = _read(test, fields, name)
        suited = suited or suited_to_test
    learning, testing = learning[:train], testing[:test_n]
    if not testing:
        raise UsageError(
            "tasks.missing",
            f"{tasks} has {quantity(len(learning), 'task')}, so no task is left to score: lower --train, or "
            "pass --test",
        )
    config = {**suited, **config_values(options, learning)}
    # For the user's own tasks, use the settings of the public data set that has the same scorer.
    table = table.on(data or SCORED.get(str(config.get("scorer")), ""))
    settings = config.pop("settings")
    study, folder = table.study(settings), folder or new_folder(name)
    config |= {"max_calls": budget_calls, "max_tokens": budget_tokens}
    seed = load_context(seed_playbook) if seed_playbook is not None else None

    progress = ComparisonLines(lambda line: out.print(opt.as_options(line)))
    _introduce(out, table, missing, settings)
    comparison = run_work(
        lambda stop: compare(
            learning, test=testing, methods=study, seeds=seeds, seed_context=seed, out=folder, parts=parts_for(out),
            runs_at_once=runs_at_once, watch=progress, halt=stop.stops(Halt()), **config,
        ),
        out,
    )  # fmt: skip
    used = f"{tasks.name}{f' and {test.name}' if test else ''}: {len(learning)} to learn from, {len(testing)} scored"
    used = f"{comparison.report['model'] or 'models by role'}; {used}; {quantity(seeds, 'seed')}"
    titles, lines = table.shown(comparison.report)
    value: dict[str, Any] = {
        "table": name,
        "source": table.source,
        "paper_setup": table.setup,
        "setup": used,
        "note": table.note,
    }
    value |= {"columns": titles, "rows": lines, "folder": str(folder)}
    complete = not comparison.interrupted and not comparison.failed
    fit = table.delay(folder, seeds, len(learning)) if table.delays and complete else None
    if fit is not None and fit.alpha is not None:
        value["delay"] = fit.as_json()
        out.print(f"\nT(b) = {fit.A:.3g} s · b^-{fit.alpha:.2f}; chosen batch size: {fit.chosen}, because {fit.why}")
    save_json(folder / "paper.json", value)
    out.print(f"\n{table.source}: {table.about}\npaper: {table.setup}\nyours: {used}")
    out.table(titles, lines, text=titles)
    for outcome in comparison.failed:
        out.print(opt.as_options(f"{outcome.variant}, seed {outcome.seed}, failed: {outcome.failed}"))
    out.print(f"costs, curves and more: {folder / 'report.html'}")
    out.result(value)
    return 130 if comparison.interrupted else 1 if comparison.failed else 0


def _introduce(out: Printer, table: PaperTable, missing: list[str], overrides: dict[str, Any]) -> None:
    """Print the omitted rows, the table's note and the paper's settings, before the first call of a model."""
    settings = table.paper_settings(overrides)
    for line in (*missing, table.note, f"the paper's settings: {_listed(settings)}" if settings else ""):
        if line:
            out.print(line)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _list(out: Printer, settings: dict[str, Any], train: int, test: int, seeds: int) -> None:
    from practicum.bench.papers import all_tables

    lines = []
    for table in all_tables():
        accepted = {key: value for key, value in settings.items() if table.takes(key)}
        calls = seeds * table.calls(train, test, accepted)
        lines.append((table.name, table.source, table.about, ", ".join(table.data), len(table.rows), f"{calls:,}"))
    titles = ("name", "source", "about", "data", "rows", "calls")
    out.table(titles, lines, text=titles[:4])
    out.print(
        f"calls: an estimate for {train} tasks to learn from, {test} to score and {quantity(seeds, 'seed')} (--train, "
        "--test-n, --seeds, --rows, --epochs), without retries, repeated attempts and judges"
    )
    out.result({"tables": [dict(zip(titles, line, strict=True)) for line in lines]})


def _divided(tasks: list[Task], train: int) -> tuple[list[Task], list[Task]]:
    """Return the tasks to learn from and to score of one file: by the split that the file names, or else the first
    `train` tasks and the rest."""
    scored = [task for task in tasks if task.meta.get("split") == "test"]
    if scored:
        return [task for task in tasks if task.meta.get("split") != "test"], scored
    return tasks[:train], tasks[train:]


def _read(path: Path, fields: str | None, table: str) -> tuple[str, list[Task], dict[str, Any]]:
    """Return the name of the data set in a file, the tasks of the data set, and the settings that suit these tasks. The
    name and the settings are empty if the file is not from a public data set. The error for a file that cannot be read
    says where the data sets of the table are.
    """
    from practicum.cli.inputs import read_tasks
    from practicum.tasks.formats import convert, matching_formats

    try:
        if fields is not None or not matching_formats(path):
            return "", read_tasks(path, fields), {}
        data = convert(path)
    except PracticumError as error:
        error.args = (f"{error}; practicum bench paper {table} says where its data sets are",)
        raise
    suited = {"scorer": data.scorer, "choices": data.choices, "instructions": data.instructions}
    return data.format, list(data.tasks), suited
