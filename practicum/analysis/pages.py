"""Pages and reports made from the templates in `templates/`.

A page needs no other file: it holds its style and its script, and its policy (Content-Security-Policy) lets a browser
use these two and pictures inside the page, and nothing else. What stands in a page may come from anyone: every value is
escaped, and so are characters that could reorder or hide what is around them (`core.visible`).
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.analysis import formats
from practicum.analysis.view.names import slug
from practicum.core.views import count_tokens
from practicum.core.visible import plain_breaks, visible
from practicum.core.words import quantity
from practicum.session.result import SCORE_NAMES

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"

MOST = 20_000
"""Characters of a text that are shown at once."""


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package, which has the functions of `formats` as filters. HTML templates escape every
    value; an unknown value is an error."""
    return _environment().get_template(template).render(values)


def shown(value: Any) -> Any:
    """A text as a page shows it, before its markup is escaped; other values as they are."""
    return visible(plain_breaks(value)) if type(value) is str else value


def linked(text: str, root: str | None) -> Markup:
    """A text, escaped, in which each "[e12]" leads to the page of that entry; None for a page that stands alone."""
    from markupsafe import Markup, escape

    safe = str(escape(shown(text)))
    if root is not None:
        safe = re.sub(r"\[(e\d{1,9})\]", lambda found: f'[<a href="{root}entry/{found[1]}.html">{found[1]}</a>]', safe)
    return Markup(safe)


@cache
def policy() -> str:
    """What a browser may do with a page: use the style and the script that stand in it, and pictures in it."""
    style, script = (_digest(_asset(name)) for name in ("style.css", "script.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; form-action 'self'; "
        "base-uri 'none'"
    )


@cache
def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(["html"]), finalize=shown,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    named = (
        formats.interval, formats.p_value, formats.percent, formats.points, formats.verdict_label, formats.count,
        formats.money, formats.seconds,
    )  # fmt: skip
    environment.filters.update({function.__name__: function for function in named})
    environment.filters.update(slug=slug, linked=linked, token_count=count_tokens, quantity=quantity)
    environment.globals.update(
        style=Markup(_asset("style.css")), script=Markup(_asset("script.js")), policy=policy(),
        crumbs=[("practicum", "")], most=MOST, titles=SCORE_NAMES,
    )  # fmt: skip
    return environment
