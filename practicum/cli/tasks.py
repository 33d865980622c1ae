"""`practicum bench tasks`: a public data set's file as tasks, and the options to run them with."""

from __future__ import annotations

import shlex
from pathlib import Path

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.words import quantity


def tasks(
    file: Path = Argument(..., help="A data set's file, as published: JSON, CSV, parquet, gzip; or ids for --server."),
    format: str | None = opt.option(None),
    server: str | None = Option(None, help="The address of the server (AppWorld) that knows the tasks of these ids."),
    to: Path | None = opt.output(None, "--out"),
    json_: opt.Json = False,
) -> None:
    """Convert a data set's own file into tasks.

    Prints the scorer, the choices and the instructions that suit them, and writes the tasks into the file --out. The
    format is recognised by the fields; a wrong --format lists all.
    """
    from practicum.tasks.formats import as_json_lines, convert, read_served

    if to is not None and not to.name:
        raise UsageError("file.wrong_kind", f"--out {to} is a folder: give the name of a file")
    data = convert(file, format) if server is None else read_served(file, server, format)
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
