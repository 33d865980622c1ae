"""`practicum help`: lists every command, or shows the help of one command."""

from __future__ import annotations

from shutil import get_terminal_size

import typer
from typer import Argument

from practicum.cli.tree import root, sections, write


def help_(
    names: list[str] | None = Argument(None, metavar="[NAME]...", help="The command, such as: space resume."),
) -> None:
    """List every command, or show the help of one."""
    if names:
        root()([*names, "--help"], prog_name="practicum", standalone_mode=False)
        return
    formatter = typer.Context(
        root(), info_name="practicum", terminal_width=min(get_terminal_size().columns, 100)
    ).make_formatter()
    write(formatter, [*sections()])
    typer.echo(formatter.getvalue().strip("\n"))
