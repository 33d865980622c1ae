"""`practicum bench robustness`: a reflector that harms or errs, with the acceptance gate and without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.bench.robustness import RobustnessRow

Opt = typer.Option


def robustness(
    every: str = Opt("1,2,5,10,20,never", help="The reflector is harmful at every X-th step."),
    noise: str = Opt("0.25,0.5,0.75", help="Weak reflectors: shares of lessons that blame the wrong thing."),
    seeds: int = Opt(3, min=1, help="Runs of each setting."),
    out: Path | None = Opt(None, help="Folder for the table and the picture."),
    json_: opt.Json[bool] = False,
) -> int:
    """Learning from a harmful or weak reflector on a simulated world, with the gate and without it."""
    import json

    from practicum.bench.plots import robustness_plot
    from practicum.bench.robustness import ReflectorSetting, targets
    from practicum.bench.robustness import robustness as measure
    from practicum.cli.running import console_for, print_json
    from practicum.core.files import write_atomic
    from practicum.session.records import new_folder

    settings = [*map(ReflectorSetting, _steps(every)), *(ReflectorSetting(noise=share) for share in _shares(noise))]
    console = console_for(json_)
    rows = measure(settings, seeds, lambda row: console.print(_said(row)))
    folder, reached = out or new_folder("robustness"), targets(rows)
    folder.mkdir(parents=True, exist_ok=True)
    value = {"bench": "robustness", "seeds": seeds, "rows": [row.as_json() for row in rows]}
    value |= {"targets": [target.as_json() for target in reached]}
    write_atomic(folder / "robustness.json", json.dumps(value, indent=1) + "\n")
    robustness_plot(rows, folder / "robustness.png")
    _print(rows, json_)
    for target in reached:
        console.print(target.summary(), style="" if target.met else "red")
    console.print(f"{folder}/robustness.json, {folder}/robustness.png")
    if json_:
        print_json(value)
    return 0


def _steps(text: str) -> list[int | None]:
    parts = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(part == "never" or (part.isdecimal() and int(part) > 0) for part in parts):
        raise UsageError(f"--every {text!r} must be whole numbers from 1, or never, as 1,5,never")
    return [None if part == "never" else int(part) for part in parts]


def _shares(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = [0.0]
    if not all(0 < share <= 1 for share in found):
        raise UsageError(f"--noise {text!r} must be shares above 0 up to 1, as 0.25,0.5")
    return found


def _said(row: RobustnessRow) -> str:
    return f"{row.setting.name}, {'with' if row.gate else 'without'} the gate: {row.gain:+.1%} over the base"


def _print(rows: list[RobustnessRow], json_: bool) -> None:
    from statistics import mean

    from practicum.cli.running import console_for
    from practicum.cli.tables import print_table, table

    numbers = ("base", "score", "gain", "least gain", "dropped", "calls")
    made = table("reflector", "gate", *numbers, numbers=numbers)
    for row in rows:
        cells = [f"{mean(row.base):.1%}", f"{mean(row.scores):.1%}", f"{100 * row.gain:+.1f}"]
        cells += [f"{100 * min(row.gains):+.1f}", f"{mean(row.dropped):.1f}", f"{mean(row.calls):,.0f}"]
        made.add_row(row.setting.name, "yes" if row.gate else "no", *cells)
    print_table(console_for(json_), made)
