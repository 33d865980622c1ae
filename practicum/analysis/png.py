"""Helpers for all plots: the palette, the style of figures and axes, and the drawing of PNG files without a display."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from practicum.core.errors import PracticumWarning, UsageError
from practicum.core.files import write_atomic
from practicum.core.requirements import pip_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

DOTS = 150
"""Resolution of PNG files (dots per inch)."""

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GREY, GRID = "#333333", "#777777", "#E4E4E4"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, INK, GREY)
"""Colours that are distinct for any colour vision (Okabe and Ito 2008)."""


def check_png(path: Path, option: str) -> None:
    """Raise UsageError if `path`, the value of the command-line option `option`, does not end in .png, or if matplotlib
    is not installed."""
    if path.suffix.lower() != ".png":
        raise UsageError("settings.invalid", f"{option} {path}: plots are PNG files, so pass a name that ends in .png")
    require_package()


def missing_package() -> str:
    """Return a message with the package to install for plots; empty if this package is installed."""
    return (
        ""
        if find_spec("matplotlib") is not None
        else f"plots need a package that is not installed: {pip_install('plots')}"
    )


def require_package() -> None:
    """Raise UsageError if matplotlib is not installed. Commands that draw a plot call this function before they start
    their work."""
    if missing := missing_package():
        raise UsageError("extra.missing", missing)


def can_draw(path: Path) -> bool:
    """Return whether plots can be drawn. If not, warn (PracticumWarning) that `path` is left out because a package is
    missing."""
    if missing := missing_package():
        warnings.warn(PracticumWarning(f"{path}: {missing}"), stacklevel=2)
    return not missing


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure of this size (inches), with a layout that fits all labels. Raises UsageError if matplotlib
    is not installed."""
    require_package()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), dpi=DOTS, layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1))


def plain(axes: Axes, grid: Literal["x", "y", "both"] = "y", labelsize: float = 10) -> None:
    """Style axes: no frame, and a light grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=labelsize)
    axes.grid(axis=grid, color=GRID, lw=0.8)
    axes.set_axisbelow(True)


def time_unit(seconds: float) -> tuple[str, float]:
    """Choose a readable unit for times up to `seconds`. Return the name and the length (s) of the unit."""
    return next((u for u in (("hours", 3600.0), ("minutes", 60.0)) if seconds >= 2 * u[1]), ("seconds", 1.0))


def round_ticks(axis: Axis, low: float, high: float) -> None:
    """Set a few ticks at round values of a logarithmic axis, because matplotlib only labels powers of ten."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    axis.set_minor_locator(NullLocator())
    if high / low < 8:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        return
    for digits in ((1, 2, 5), (1,)):
        marks = [digit * 10.0**power for power in range(-9, 16) for digit in digits]
        within = [mark for mark in marks if low <= mark <= high]
        if len(within) <= 7:
            break
    axis.set_major_locator(FixedLocator(within[:: -(-len(within) // 7)]))


def png(figure: Figure) -> bytes:
    """Render a figure as a PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", backend="agg")
    return buffer.getvalue()


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure to a file, atomically. Raises StoreError if the file cannot be written."""
    write_atomic(path, png(figure))
