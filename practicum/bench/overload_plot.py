"""The picture of an overload test: the share of facts still readable against the number of lessons, a line a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.analysis.png import write_png
from practicum.bench.overload import OverloadRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE, DOTS = (8.6, 5.2), 160
"""Inches, and dots an inch."""

LOOKS: Mapping[str, tuple[str, str, str]] = {
    "sequential": ("#333333", "o", "--"),
    "combee": ("#0072B2", "D", "-"),
    "unaccounted": ("#56B4E9", "s", "-"),
    "level-1": ("#009E73", "^", "-."),
    "exact": ("#CC79A7", "v", "-"),
    "naive": ("#D55E00", "X", "-"),
    "summarized": ("#E69F00", "P", ":"),
    "top_k": ("#777777", "d", ":"),
}
"""Colour (of Okabe and Ito 2008, told apart with any colour vision), mark and dash of each method."""

NAMES = {
    "sequential": "one at a time (ACE)",
    "combee": "combee",
    "unaccounted": "combee, no accounting",
    "level-1": "level 1 alone",
    "exact": "combee, paper's way",
    "naive": "naive, one call",
    "summarized": "summarized",
    "top_k": "top-K",
}

GAP = 5.0
"""Percent between two labels, so that neither covers the other."""


def overload_plot(rows: Sequence[OverloadRow], path: Path, model: str) -> None:
    """Draw all rows that are whole into the PNG `path`. Raises StoreError where it cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
    axes = figure.add_subplot(xscale="log")
    by_method: dict[str, list[OverloadRow]] = {}
    for row in rows:
        if not row.stopped:
            by_method.setdefault(row.method, []).append(row)
    for order, (method, line) in enumerate(by_method.items()):
        _line(axes, method, line, order)
    _label(axes, by_method)
    _frame(axes, sorted({row.n for row in rows}))
    axes.set_title("Facts still readable after one update", loc="left", fontsize=14, pad=24)
    # Of a model that is a file, or an address, the last part says enough.
    said = f"each lesson carries one fact of its own; curator: {model.rpartition('/')[2]}"
    axes.text(0, 1.03, said, transform=axes.transAxes, fontsize=10, color="#555555")
    write_png(figure, path)


def _line(axes: Axes, method: str, rows: Sequence[OverloadRow], order: int) -> None:
    colour, mark, dash = LOOKS[method]
    points = sorted((row.n, 100 * row.readable) for row in rows)
    # What combee is measured by lies over the others, and they can be seen in its rings.
    above: dict[str, Any] = (
        {"markerfacecolor": "none", "markersize": 14, "linewidth": 1.5, "zorder": 5} if method == "sequential" else {}
    )
    # Where lines lie on one another the later ones are smaller, so that all can be seen.
    look = {"color": colour, "marker": mark, "linestyle": dash, "linewidth": 2, "markersize": 10 - 0.6 * order, **above}
    axes.plot([n for n, _ in points], [share for _, share in points], **look)


def _label(axes: Axes, by_method: Mapping[str, Sequence[OverloadRow]]) -> None:
    """A name and a number at the end of each line, pushed apart from below."""
    ends = sorted((max(line, key=lambda row: row.n).readable * 100, method) for method, line in by_method.items())
    # Pushed up from the lowest, so the whole column begins low enough for the highest to stay in the picture.
    places: list[float] = []
    for share, _ in ends:
        places.append(max(share, places[-1] + GAP) if places else share)
    for i in range(len(places) - 1, -1, -1):
        most = places[i + 1] - GAP if i + 1 < len(places) else 100.0
        places[i] = min(places[i], most)
    for (share, method), place in zip(ends, places, strict=True):
        axes.annotate(
            f"{NAMES[method]}  {share:.0f}%",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            color=LOOKS[method][0],
            fontsize=10.5,
            va="center",
            annotation_clip=False,
        )


def _frame(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xticks(sizes, labels=[str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlim(sizes[0] / 1.12, sizes[-1] * 1.12)
    axes.set_ylim(-3, 105)
    axes.set_yticks(range(0, 101, 20), labels=[f"{share}%" for share in range(0, 101, 20)])
    axes.set_xlabel("lessons in the update", fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
