"""How pages look: templates, their filters, and the files that a browser loads.

What stands in a page may come from anyone: every value is escaped, and so are characters that could reorder or hide
what is around them (`core.visible`). A page of a site loads its files from the site. A page that stands alone, such as
a file, holds its style and script, and its policy (Content-Security-Policy) allows these two and pictures inside it.
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
"""Characters of a text that are shown at once."""

STATIC: Mapping[str, str] = {
    "pages.css": "text/css", "theme.js": "text/javascript", "pages.js": "text/javascript", "htmx.js": "text/javascript",
}  # fmt: skip
"""The files that pages load, with their media types."""

INTERACTION = re.compile(r"\b(i[0-9a-f]{13}-[0-9a-f]{12})(?:\.(\d+))?\b")
"""The id of an interaction and the revision of its outcome, as the sources of what was learned from it name them."""


@cache
def asset(name: str) -> str:
    """The text of a file in `static`."""
    return (FOLDER / "static" / name).read_text(encoding="utf-8")


@cache
def digests() -> dict[str, str]:
    """The digests of the files that pages load, which are part of their addresses."""
    return {name: sha256(asset(name).encode()).hexdigest()[:12] for name in STATIC}


@cache
def policy() -> str:
    """What a browser may do with a page that stands alone."""
    style, script = (_digest(asset(name)) for name in ("pages.css", "theme.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; form-action 'self'; "
        "base-uri 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")


def render(template: str, **values: Any) -> str:
    """Fill in a template. HTML templates escape every value; an unknown value is an error."""
    return environment().get_template(template).render(values)


def shown(value: Any) -> Any:
    """A text as a page shows it, before its markup is escaped; other values as they are."""
    return visible(plain_breaks(value)) if type(value) is str else value


@cache
def environment() -> Environment:
    """The templates, with the functions of `formats` as filters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=select_autoescape(["html"]), finalize=shown,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, auto_reload=False,
    )  # fmt: skip
    named = (
        formats.interval, formats.p_value, formats.percent, formats.points, formats.verdict_label, formats.count,
        formats.money, formats.seconds, quantity, capitalized, slug, linked, when, ago, learned_from,
    )  # fmt: skip
    made.filters.update({function.__name__: function for function in named})
    made.filters.update(url=partial(quote, safe=""), line=one_line, token_count=count_tokens)
    made.globals.update(
        most=MOST, style=Markup(asset("pages.css")), script=Markup(asset("theme.js")), policy=policy(),
        digests=digests(), titles=SCORE_NAMES, crumbs=[("practicum", "")], alone=False, root=None, grant=None,
        token="", keyed=False, space="", here="", waits=0, said="", failed="", unread=(), acts=False, whole=True,
        with_calls=True,
    )  # fmt: skip
    return made


def load_templates() -> None:
    """Compile the templates of all pages."""
    for name in environment().list_templates(["html"]):
        environment().get_template(name)


def linked(text: str, root: str | None) -> Markup:
    """A text, escaped, in which each "[e12]" leads to the page of that entry; None for a page that stands alone."""
    from markupsafe import Markup, escape

    safe = str(escape(shown(text)))
    if root is not None:
        safe = re.sub(r"\[(e\d{1,9})\]", lambda match: f'[<a href="{root}/entries/{match[1]}">{match[1]}</a>]', safe)
    return Markup(safe)


def when(at: float | None) -> str:
    """A time, in UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def ago(at: float, now: float) -> str:
    """How long ago something was."""
    passed = max(now - at, 0.0)
    for least, size, unit in ((172_800, 86_400, "d"), (5_400, 3_600, "h"), (90, 60, "min")):
        if passed >= least:
            return f"{passed / size:.0f} {unit} ago"
    return f"{passed:.0f} s ago"


def learned_from(sources: Iterable[str]) -> list[tuple[str, str]]:
    """The interactions among sources: their ids, and the revisions of their outcomes."""
    matches = (INTERACTION.search(source) for source in sources)
    return [*dict.fromkeys((each[1], each[2] or "") for each in matches if each)]
