"""`practicum tasks`: a public data set's file as tasks, and the options to run them with."""

from __future__ import annotations

import shlex
from pathlib import Path

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.words import quantity

FORMATS = "humaneval, gsm8k, commongen, mmlu, finer, formula, rewardbench2, ddxplus, hotpotqa, classification or srdd"


def tasks(
    file: Path = Argument(..., help="A data set's file, as published: JSON, CSV, parquet, gzip; or ids of AppWorld."),
    format: str | None = Option(None, help=f"{FORMATS} (default: told from the fields)."),
    server: str | None = Option(None, help="AppWorld: the address of the server that knows the tasks of these ids."),
    to: Path | None = opt.output(None, "--out", help="Where to write the tasks; instructions and choices beside it."),
    json_: opt.Json = False,
) -> None:
    """Make tasks from a data set's own file, and print the scorer, choices and instructions that suit them."""
    from practicum.tasks.datasets import as_json_lines, convert

    if to is not None and not to.name:
        raise UsageError("file.wrong_kind", f"--out {to} is a folder: give the name of a file")
    if server is None:
        data = convert(file, format)
    else:
        import asyncio

        from practicum.tasks.appworld import read_task_ids

        if format is not None:
            raise UsageError("settings.conflict", f"--server is for ids of AppWorld: leave out --format {format}")
        data = asyncio.run(read_task_ids(file, server))
    options = ["--scorer", data.scorer, *data.options]
    if to is not None:
        beside = to.with_suffix(".instructions.txt")
        listed = to.with_suffix(".choices.txt")
        if file.resolve() in (to.resolve(), beside.resolve(), listed.resolve()):
            raise UsageError(
                "file.exists", f"--out {to} would overwrite the file that it is made from: give another name"
            )
        write_atomic(to, as_json_lines(data.tasks))
        write_atomic(beside, data.instructions + "\n")
        options += ["--instructions", f"@{beside}"]
        if data.choices:
            write_atomic(listed, "\n".join(data.choices) + "\n")
            options += ["--choices", f"@{listed}"]
    elif data.choices:
        # A choice with a comma cannot be listed in an option; `auto` takes the choices from the file.
        options += ["--choices", "auto" if any("," in each for each in data.choices) else ",".join(data.choices)]
    out = Printer(json_)
    out.result({
        "format": data.format, "tasks": len(data.tasks), "left_out": data.left_out, "scorer": data.scorer,
        "choices": list(data.choices), "options": list(data.options), "instructions": data.instructions,
        "out": None if to is None else str(to),
    })  # fmt: skip
    left = f"; {quantity(data.left_out, 'record')} left out" if data.left_out else ""
    out.print(f"{data.format}: {data.about}; {quantity(len(data.tasks), 'task')}{left}")
    out.print(f"instructions: {data.instructions}")
    out.print(f"learn with: practicum learn {to or 'TASKS'} {shlex.join(options)} --model NAME", soft_wrap=True)
