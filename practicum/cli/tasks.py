"""`practicum bench tasks`: converts the file of a public data set into tasks, and prints the options to use."""

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
    file: Path = Argument(
        ..., help="The published file of a data set: JSON, CSV, parquet, gzip; with --server, a file of ids."
    ),
    format: str | None = opt.option(None),
    server: str | None = Option(None, help="The address of the server (AppWorld) that has the tasks with these ids."),
    to: Path | None = opt.output(None, "--out"),
    json_: opt.Json = False,
) -> None:
    """Convert the file of a public data set into tasks.

    Prints the scorer, the choices and the instructions for the tasks, and writes the tasks to the file --out. The
    format is detected from the fields. To list all formats, pass an unknown --format.
    """
    from practicum.tasks.formats import as_json_lines, convert, read_served

    if to is not None and not to.name:
        raise UsageError("file.wrong_kind", f"--out {to} is a folder: pass the path of a file")
    data = convert(file, format) if server is None else read_served(file, server, format)
    options = ["--scorer", data.scorer, *data.options]
    if to is not None:
        instructions_file = to.with_suffix(".instructions.txt")
        choices_file = to.with_suffix(".choices.txt")
        if file.resolve() in (to.resolve(), instructions_file.resolve(), choices_file.resolve()):
            raise UsageError("file.exists", f"--out {to} would overwrite the input file: pass another path")
        write_atomic(to, as_json_lines(data.tasks))
        write_atomic(instructions_file, data.instructions + "\n")
        options += ["--instructions", f"@{instructions_file}"]
        if data.choices:
            write_atomic(choices_file, "\n".join(data.choices) + "\n")
            options += ["--choices", f"@{choices_file}"]
    elif data.choices:
        # An option cannot list a choice with a comma; `auto` takes the choices from the file of tasks.
        options += ["--choices", "auto" if any("," in each for each in data.choices) else ",".join(data.choices)]
    out = Printer(json_)
    out.result({
        "format": data.format, "tasks": len(data.tasks), "left_out": data.left_out, "scorer": data.scorer,
        "choices": list(data.choices), "options": list(data.options), "instructions": data.instructions,
        "out": None if to is None else str(to),
    })  # fmt: skip
    left = f"; {quantity(data.left_out, 'record')} skipped" if data.left_out else ""
    out.print(f"{data.format}: {data.about}; {quantity(len(data.tasks), 'task')}{left}")
    out.print(f"instructions: {data.instructions}")
    out.print(f"learn with: practicum learn {to or 'TASKS'} {shlex.join(options)} --model NAME", soft_wrap=True)
