"""`practicum space`: what can be done with a space."""

from __future__ import annotations

import typer

from practicum.cli.operations import operation_commands

app = typer.Typer(name="space", help="Look into a space, and change it.", no_args_is_help=True)
for name, (command, summary) in operation_commands().items():
    app.command(name, short_help=f"{summary}.")(command)
