"""`practicum tasks`: a public data set's file as tasks, and what to run them with."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

Opt = typer.Option


def tasks(
    file: Path = typer.Argument(..., help="A data set's JSON lines, or MMLU's CSV, as published; or ids of AppWorld."),
    format: str | None = Opt(None, help="What it is, where its fields do not tell; see docs/tasks.md."),
    out: Path | None = Opt(None, help="Where to write the tasks; instructions go beside it."),
    server: str | None = Opt(None, help="AppWorld: the address of its server, which knows the tasks that FILE lists."),
    json_: opt.Json[bool] = False,
) -> int:
    """Make tasks of a data set's own file, and say with which scorer, choices and instructions they go."""
    from practicum.cli.running import console_for, print_json
    from practicum.core.files import write_atomic
    from practicum.tasks.datasets import as_json_lines, convert

    if out is not None and not out.name:
        raise UsageError(f"--out {out} is a folder: give the name of a file")
    if server is None:
        found = convert(file, format)
    else:
        import asyncio

        from practicum.tasks.appworld import read_task_ids

        if format is not None:
            raise UsageError(f"--server is for ids of AppWorld: leave out --format {format}")
        found = asyncio.run(read_task_ids(file, server))
    beside = out.with_suffix(".instructions.txt") if out is not None else None
    if out is not None and beside is not None:
        for path in (out, beside):
            if path.resolve() == file.resolve():
                raise UsageError(f"--out {out} would overwrite the file it is made of: give another name")
        write_atomic(out, as_json_lines(found.tasks))
        write_atomic(beside, found.instructions + "\n")
    choices = ["--choices", ",".join(found.choices)] if found.choices else []
    options = ["--scorer", found.scorer, *choices, *found.options]
    if beside is not None:
        options += ["--instructions", f"@{beside}"]
    if json_:
        values = {
            "format": found.format,
            "tasks": len(found.tasks),
            "left_out": found.left_out,
            "scorer": found.scorer,
            "choices": list(found.choices),
            "options": list(found.options),
            "instructions": found.instructions,
            "out": None if out is None else str(out),
        }
        print_json(values)
        return 0
    left = f"; {found.left_out} lines left out" if found.left_out else ""
    console = console_for(json_)
    console.print(f"{found.format}: {found.about}; {len(found.tasks)} tasks{left}")
    console.print(f"instructions: {found.instructions}")
    given = shlex.join(options)
    console.print(f"learn with: practicum learn {out or 'TASKS'} {given}", soft_wrap=True)
    return 0
