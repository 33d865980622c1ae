"""Reports made from the templates in `templates/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from practicum.analysis.formats import interval, p_value, percent, points, verdict_label


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package, which has the functions of `formats` as filters. HTML templates escape every
    value; an unknown value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    filters = (interval, p_value, percent, points, verdict_label)
    environment.filters.update({function.__name__: function for function in filters})
    return environment.get_template(template).render(values)
