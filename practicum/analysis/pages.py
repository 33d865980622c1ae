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

from practicum.analysis.names import slug
from practicum.core.look import asset, environment, shown
from practicum.core.views import count_tokens
from practicum.session.result import SCORE_NAMES

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package, which has the functions of `formats` as filters. HTML templates escape every
    value; an unknown value is an error."""
    return _environment().get_template(template).render(values)


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
    style, script = (_digest(asset(name)) for name in ("style.css", "script.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; form-action 'self'; "
        "base-uri 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")


@cache
def _environment() -> Environment:
    from markupsafe import Markup

    made = environment(TEMPLATES)
    made.filters.update(slug=slug, linked=linked, token_count=count_tokens)
    made.globals.update(
        style=Markup(asset("style.css")), script=Markup(asset("script.js")), policy=policy(), titles=SCORE_NAMES
    )
    return made
