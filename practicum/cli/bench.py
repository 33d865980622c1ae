"""`practicum bench`: measurements with your models and data. Most measurements have target values, which are
printed with the results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer, save_json
from practicum.core.errors import UsageError
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.bench.measure import Target
    from practicum.bench.overload import OverloadRow
    from practicum.bench.robustness import RobustnessRow

WINDOW = 16_384
"""Context window (tokens) of a model in this process. The window is large because the prompts of `overload` are
long."""

ARMS = "sequential, naive, top_k, summarized, combee, unaccounted, exact, level-1"


@opt.settings(
    "structure", "window", "max_calls", "max_tokens", "max_usd",
    concurrency=16, max_output_tokens=4096, timeout=600.0, seed=0, model="simulated",
)  # fmt: skip
def overload(
    model: str = "simulated",
    n: str = Option("10,20,40,80", help="Numbers of lessons, as a,b,c."),
    methods: str | None = opt.option(None),
    folder: opt.Out = None,
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """Measure how many facts remain after one update.

    Compares methods at several numbers of lessons (context overload).
    """
    from practicum.analysis.png import can_draw
    from practicum.bench.measure import load_average
    from practicum.bench.overload import OverloadPlan, targets
    from practicum.bench.overload import overload as measure
    from practicum.bench.plots import overload_plot
    from practicum.bench.shared_budget import SharedBudget
    from practicum.cli.inputs import names, numbers
    from practicum.cli.running import run_work
    from practicum.models.budget import BudgetLimits
    from practicum.models.registry import is_local
    from practicum.session.records import new_folder
    from practicum.session.result import INTERRUPTED

    config = {name: value for name, value in options.items() if value is not None}
    seed, limits = config.pop("seed"), (config.pop(name, None) for name in ("max_calls", "max_tokens", "max_usd"))
    budget = SharedBudget(BudgetLimits(*limits))
    config["window"] = options["window"] or (WINDOW if is_local(model) else None)
    chosen: Any = {} if methods is None else {"arms": names(methods, "--methods")}
    sizes = numbers(n, int, lambda size: size > 0, "--n", "whole numbers of at least 1, as 10,20,40")
    plan = OverloadPlan(sizes=sizes, model=model, seed=seed, config=config, **chosen)
    folder = folder or new_folder("overload")
    out, load = Printer(json_), load_average()
    out.print(f"results are stored in {folder}")

    def report(row: OverloadRow) -> None:
        wall = "" if row.wall_s is None else f" in {row.wall_s:.1f} s"
        result = row.stopped or f"{row.readable:.0%} readable, {quantity(row.calls, 'call')}{wall}"
        out.print(f"{quantity(row.n, 'lesson')}, {row.method}: {result}")

    rows = run_work(lambda stop: measure(plan, folder, report=report, budget=stop.stops(budget)), out)
    if any(not row.stopped for row in rows) and can_draw(folder / "overload.png"):
        overload_plot(rows, folder / "overload.png", model)
    _print_overload(out, rows)
    value = {"model": model, "seed": seed, "rows": [row.as_json() for row in rows]}
    _print_end(out, "overload", value, targets(rows, model), load, folder)
    stopped = rows[-1].stopped
    if stopped:
        out.print(f"Stopped early: {stopped}. Run the same command with --out {folder} to continue.")
    return 130 if stopped == INTERRUPTED else 0


def _print_overload(out: Printer, rows: Sequence[OverloadRow]) -> None:
    lines = []
    for row in rows:
        if not row.stopped:
            shares = (f"{row.readable:.0%}", f"{row.wrong:.0%}")
            counts = (row.by_code, row.entries, f"{row.context_tokens:,}", row.calls, f"{row.tokens:,}")
            lines.append((row.n, row.method, *shares, *counts, _format(row.usd, ".4f"), _format(row.wall_s, ".2f")))
    columns = ("n", "method", "readable", "wrong", "kept", "entries", "context", "calls", "tokens", "USD", "wall s")
    out.table(columns, lines, text=("method",))
    out.print(
        "readable: facts that an entry still states; wrong: facts stated with a wrong number; kept: lessons that the "
        "curator ignored and practicum added unchanged; context: tokens of the context"
    )


@opt.settings(embedder="wordllama")
def retrieval(
    turns: Path = Argument(
        ...,
        help="A file of LoCoMo or LongMemEval, turns of conversations ({id, input, meta: {conv}}), or training tasks.",
    ),
    questions: Path | None = Argument(
        None,
        help="Questions about the conversations ({id, input, meta: {conv, evidence: (ids of turns), category}}), or "
        "test tasks.",
    ),
    label: str = Option("", help="For tasks: the field of `meta` that has the label of a task (default: the target)."),
    embedder: str = "wordllama",
    json_: opt.Json = False,
) -> None:
    """Measure retrieval by cosine, by words, and by a mix of cosine and words.

    Compares the values of the setting `retrieval`. For conversations, measures whether search finds the evidence for a
    question, with and without neighbouring turns. For tasks, measures whether search finds training tasks with the
    label of a test task. Calls no model. For conversations, pass a published file or two files of JSON lines. Questions
    that the conversation does not answer are skipped."""
    from practicum.bench.retrieval import has_conversations, read, read_labelled, similar
    from practicum.bench.retrieval import retrieval as measure
    from practicum.cli.running import run_work
    from practicum.core.formats import effect
    from practicum.retrieval.vectors import open_embedder

    out = Printer(json_)
    tasks = questions is not None and (bool(label) or not has_conversations(turns))
    if tasks and questions is not None:
        corpus, queries = read_labelled(turns, questions, label)
        rows = run_work(lambda stop: similar(corpus, queries, open_embedder(embedder)), out)
    else:
        corpus, queries = read(turns, questions)
        rows = run_work(lambda stop: measure(corpus, queries, open_embedder(embedder)), out)
    shares = [(r.way, f"{r.category} ({r.n})", *(_share(m.mean, m.ci95) for m in r.measures.values())) for r in rows]
    less = [
        (r.way, f"{r.category} ({r.n})", *(effect(m.as_json()["less_cosine"]) for m in r.measures.values()))
        for r in rows
        if r.way != "cosine"
    ]
    for title, cells in (("way", shares), ("minus cosine", less)):
        out.table((title, "category (n)", *rows[0].measures), cells, text=(title, "category (n)"))
    out.print(
        "nearest: test tasks whose nearest training task has the same label as the test task; of 4: share of the 4 "
        "nearest training tasks that have the label of the test task; majority: test tasks whose label is the most "
        "frequent label of the 4 nearest training tasks" if tasks else
        "@k: share of the evidence among the first k results"
    )  # fmt: skip
    out.print("All values are percentages with 95% intervals; differences are paired.")
    times = ", ".join(f"{r.way} {r.seconds:.2f} s" for r in rows if r.category == "all")
    kinds = ("test task", "training task") if tasks else ("question", "turn")
    out.print(f"{quantity(len(queries), kinds[0])}, {quantity(len(corpus), kinds[1])}; searches: {times}")
    out.result(
        {"bench": "retrieval", "embedder": embedder, "entries": len(corpus), "rows": [r.as_json() for r in rows]}
    )


def robustness(
    every: str = Option("1,2,5,10,20,never", "--harmful-every", help="Steps from one harmful reflection to the next."),
    noise: str = Option("0.25,0.5,0.75", help="Shares of wrong lessons of a weak reflector."),
    seeds: int = opt.option(3, min=1),
    folder: opt.Out = None,
    json_: opt.Json = False,
) -> None:
    """Measure ACE with a harmful or weak reflector.

    Runs a simulated world, with the gate and without the gate. To measure with your own tasks and models, use
    `practicum bench paper ace17`."""
    from practicum.analysis.png import can_draw
    from practicum.bench.plots import robustness_plot
    from practicum.bench.robustness import ReflectorSetting, targets
    from practicum.bench.robustness import robustness as measure
    from practicum.cli.inputs import names, numbers
    from practicum.session.records import new_folder

    steps = names(every, "--harmful-every")
    if not all(step == "never" or (step.isdecimal() and int(step) > 0) for step in steps):
        raise UsageError(
            "settings.invalid", f"--harmful-every {every!r} must be whole numbers of at least 1, or never, as 1,5,never"
        )
    rule = "shares above 0 up to 1, as 0.25,0.5"
    shares = numbers(noise, float, lambda share: 0 < share <= 1, "--noise", rule)
    settings = [ReflectorSetting(None if step == "never" else int(step)) for step in steps]
    settings += [ReflectorSetting(noise=share) for share in shares]
    out, folder = Printer(json_), folder or new_folder("robustness")

    def report(row: RobustnessRow) -> None:
        gate = "with the gate" if row.gate else "without the gate"
        out.print(f"{row.setting.name}, {gate}: {row.gain:+.1%} over the base score")

    rows = measure(settings, seeds, report)
    if can_draw(folder / "robustness.png"):
        robustness_plot(rows, folder / "robustness.png")
    _print_robustness(out, rows)
    value = {"seeds": seeds, "rows": [row.as_json() for row in rows]}
    _print_end(out, "robustness", value, targets(rows), folder=folder)


def _print_robustness(out: Printer, rows: Sequence[RobustnessRow]) -> None:
    lines = []
    for row in rows:
        gains = (f"{100 * row.gain:+.1f}", f"{100 * min(row.gains):+.1f}")
        counts = (f"{mean(row.dropped):.1f}", f"{mean(row.calls):,.0f}")
        scores = (f"{mean(row.base):.1%}", f"{mean(row.scores):.1%}")
        lines.append((row.setting.name, "yes" if row.gate else "no", *scores, *gains, *counts))
    columns = ("reflector", "gate", "base", "score", "gain", "least gain", "dropped", "calls")
    out.table(columns, lines, text=("reflector", "gate"))


def _print_end(
    out: Printer, bench: str, value: Mapping[str, Any], targets: Sequence[Target], load: float | None = None,
    folder: Path | None = None,
) -> None:  # fmt: skip
    """Print the target values of a benchmark. `load`: the load of the machine before the benchmark; if passed, print
    the load before and after the benchmark. With --json, print the result. With a `folder`, save the result."""
    from practicum.bench.measure import load_average

    value = {"bench": bench, **value, "targets": [target.as_json() for target in targets]}
    for target in targets:
        out.print(target.summary(), style="" if target.met else "red")
    if load is not None:
        value["load"] = [load, load_average()]
        out.print(f"load average {load} before, {value['load'][1]} after, {os.cpu_count()} cores")
    if folder is not None:
        save_json(folder / f"{bench}.json", value)
        picture = folder / f"{bench}.png"
        out.print(f"{folder}/{bench}.json{f', {picture}' if picture.exists() else ''}")
    out.result(value)


def _share(value: float, ci95: tuple[float, float]) -> str:
    """Format a share in percent with its interval, short enough that four shares fit in a line."""
    return f"{100 * value:.1f} ({100 * ci95[0]:.0f}–{100 * ci95[1]:.0f})"


def _format(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
