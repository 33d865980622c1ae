"""How pages look, wherever they are made: one style, one script, one frame, and how templates show values.

What stands in a page may come from anyone: every value is escaped, and so are characters that could reorder or hide
what is around them (`core.visible`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.core import formats
from practicum.core.visible import plain_breaks, visible
from practicum.core.words import quantity

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent

MOST = 20_000
"""Characters of a text that are shown at once."""


@cache
def asset(name: str) -> str:
    """The text of a file of this package: style.css or script.js."""
    return (FOLDER / name).read_text(encoding="utf-8")


def shown(value: Any) -> Any:
    """A text as a page shows it, before its markup is escaped; other values as they are."""
    return visible(plain_breaks(value)) if type(value) is str else value


def environment(folder: Path) -> Environment:
    """Templates of a folder and of this package, with the functions of `formats` as filters. HTML templates escape
    every value; an unknown value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=FileSystemLoader([folder, FOLDER]), autoescape=select_autoescape(["html"]), finalize=shown,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    named = (
        formats.interval, formats.p_value, formats.percent, formats.points, formats.verdict_label, formats.count,
        formats.money, formats.seconds,
    )  # fmt: skip
    made.filters.update({function.__name__: function for function in named})
    made.filters.update(quantity=quantity)
    made.globals.update(most=MOST, crumbs=[("practicum", "")])
    return made
