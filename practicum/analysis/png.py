"""PNG files: the palette and sizes that pictures share, and writing a figure without a screen or pyplot's state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from practicum.core.errors import StoreError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE, DOTS = (8.0, 5.5), 150
"""Inches, and dots per inch."""

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GREY, GRID = "#333333", "#777777", "#E4E4E4"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, INK, GREY)
"""Colours that people of any colour vision can tell apart (Okabe and Ito 2008)."""


def check_png(path: Path, option: str) -> None:
    """Raise UsageError unless the path given with this option ends in .png."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"{option} {path}: pictures are PNG files, so give a name that ends in .png")


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as a file, whole or not at all. Raises StoreError where it cannot be written."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(part, format="png", backend="agg")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
