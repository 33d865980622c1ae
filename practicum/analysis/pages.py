"""Reports made from the templates in `templates/`: values are escaped, and pictures stand in the page as data."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 160


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package. HTML templates escape every value; an unknown value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)


def data_url(figure: Figure) -> str:
    """Draw a figure as a PNG inside a URL, so that a page needs no other file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=PIXELS_PER_INCH, backend="agg")
    return "data:image/png;base64," + b64encode(buffer.getvalue()).decode("ascii")
