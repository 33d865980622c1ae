"""Tables as commands draw them: as wide as a terminal, and as wide as they need be where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def table(*names: str, numbers: Sequence[str] = ()) -> Table:
    """An empty table with these columns; those of `numbers` are set to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD)
    for name in names:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return made


def print_table(console: Console, made: Table) -> None:
    """Print a table. Where nobody draws, each row is one line, whatever its length, and no line is drawn."""
    if console.is_terminal:
        console.print(made)
        return
    made.box, made.padding = None, (0, 2, 0, 0)
    wide = console.measure(made, options=console.options.update(max_width=WIDE)).maximum
    for line in console.render_lines(made, console.options.update(width=min(wide, WIDE)), pad=False):
        console.print("".join(segment.text for segment in line).rstrip())
    console.print()


WIDE = 4_000
"""Characters of the longest line."""
