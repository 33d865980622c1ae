"""Rendering of pages: the Jinja environment, its filters, and the static files.

Values in a page are untrusted. Every value is HTML-escaped, and characters that could hide or reorder nearby text are
made visible (`core.visible`). A page of a site loads the static files from the site. A self-contained page, such as a
page written as a file, contains the style and the script. The Content-Security-Policy of a self-contained page allows
only this style, this script and inline images.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from practicum.core import formats
from practicum.core.views import count_tokens
from practicum.core.visible import plain_breaks, visible
from practicum.core.words import capitalized, one_line, quantity
from practicum.session.result import SCORE_NAMES
from practicum.view.names import slug

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = Path(__file__).parent

MOST = 20_000
"""Maximum number of characters of a text that a page shows unfolded. The visitor can unfold the rest of a longer
text."""

STATIC: Mapping[str, str] = {
    "pages.css": "text/css", "theme.js": "text/javascript", "pages.js": "text/javascript", "htmx.js": "text/javascript",
}  # fmt: skip
"""Static file that pages load → its media type."""

INTERACTION = re.compile(r"\b(i[0-9a-f]{13}-[0-9a-f]{12})(?:\.(\d+))?\b")
"""Pattern of the id of an interaction in a source of an entry, an edit or a lesson. The revision of the interaction's
outcome may follow the id."""


@cache
def asset(name: str) -> str:
    """Read a file in `static`."""
    return (FOLDER / "static" / name).read_text(encoding="utf-8")


@cache
def digests() -> dict[str, str]:
    """Return the digests of the static files. The URL of a file contains the file's digest, so that
    browsers can cache the file."""
    return {name: sha256(asset(name).encode()).hexdigest()[:12] for name in STATIC}


@cache
def policy() -> str:
    """Return the Content-Security-Policy of a self-contained page."""
    style, script = (_digest(asset(name)) for name in ("pages.css", "theme.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; form-action 'self'; "
        "base-uri 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")


def render(template: str, **values: Any) -> str:
    """Render a template. HTML templates escape every value; an undefined value is an error."""
    return environment().get_template(template).render(values)


def shown(value: Any) -> Any:
    """Make hidden characters of a text visible; other values are returned unchanged."""
    return visible(plain_breaks(value)) if type(value) is str else value


@cache
def environment() -> Environment:
    """Return the Jinja environment, with functions of `formats` as filters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    templates = Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=select_autoescape(["html"]), finalize=shown,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, auto_reload=False,
    )  # fmt: skip
    filters = (
        formats.interval, formats.p_value, formats.percent, formats.points, formats.verdict_label, formats.count,
        formats.money, formats.seconds, quantity, capitalized, slug, linked, when, ago, learned_from,
    )  # fmt: skip
    templates.filters.update({function.__name__: function for function in filters})
    templates.filters.update(url=partial(quote, safe=""), line=one_line, token_count=count_tokens)
    templates.globals.update(
        most=MOST, style=Markup(asset("pages.css")), script=Markup(asset("theme.js")), policy=policy(),
        digests=digests(), titles=SCORE_NAMES, crumbs=[("practicum", "")], standalone=False, root=None, grant=None,
        token="", keyed=False, space="", here="", waits=0, notice="", failed="", unread=(), acts=False, whole=True,
        with_calls=True,
    )  # fmt: skip
    return templates


def load_templates() -> None:
    """Compile all HTML templates."""
    for name in environment().list_templates(["html"]):
        environment().get_template(name)


def linked(text: str, root: str | None) -> Markup:
    """Escape a text. Link each entry id in brackets, such as "[e12]", to the page of the entry. `root`: the URL path of
    the space; None (in a self-contained page): no links."""
    from markupsafe import Markup, escape

    safe = str(escape(shown(text)))
    if root is not None:
        safe = re.sub(r"\[(e\d{1,9})\]", lambda match: f'[<a href="{root}/entries/{match[1]}">{match[1]}</a>]', safe)
    return Markup(safe)


def when(at: float | None) -> str:
    """Format a Unix time as UTC; None gives an empty text."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def ago(at: float, now: float) -> str:
    """Format the time between `at` and `now` (Unix times), such as "5 min ago"."""
    elapsed = max(now - at, 0.0)
    for least, size, unit in ((172_800, 86_400, "d"), (5_400, 3_600, "h"), (90, 60, "min")):
        if elapsed >= least:
            return f"{elapsed / size:.0f} {unit} ago"
    return f"{elapsed:.0f} s ago"


def learned_from(sources: Iterable[str]) -> list[tuple[str, str]]:
    """Return the ids of the interactions that `sources` name, each with the revision of the interaction's outcome ("":
    no revision is recorded)."""
    matches = (INTERACTION.search(source) for source in sources)
    return [*dict.fromkeys((match[1], match[2] or "") for match in matches if match)]
