"""HTML snippets for notebooks, without colors, so that they fit light and dark pages. Texts are escaped, and hidden
characters in texts are made visible (see `core.visible`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_markup

from practicum.core.visible import visible

CELL = ' style="text-align:left;vertical-align:top;white-space:pre-wrap"'


def escape(text: str) -> str:
    """Return a text as HTML, with hidden characters made visible."""
    return escape_markup(visible(text))


def card(title: str, facts: Mapping[str, object], *tables: str) -> str:
    """Return a title, a table of facts by name, and further tables. A fact without a value is left out."""
    rows = "".join(
        f"<tr><th{CELL}>{escape(name)}</th><td{CELL}>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    return f"<div><b>{escape(title)}</b>{f'<table>{rows}</table>' if rows else ''}{''.join(tables)}</div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """Return a table with a line of text below it."""
    head = "".join(f"<th{CELL}>{escape(name)}</th>" for name in columns)
    cells = [[f"<td{CELL}>{escape('' if value is None else str(value))}</td>" for value in row] for row in rows]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" + (
        f"<div>{escape(below)}</div>" if below else ""
    )
