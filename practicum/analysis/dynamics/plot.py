"""The picture of a run's training dynamics: what it does now, did a short while ago, and ever did (RCL, figure 2).

Colours are those of Okabe and Ito (2008), which people of any colour vision tell apart; each line has a dash of its
own besides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from practicum.analysis.dynamics.curves import Curves, Window
from practicum.analysis.png import write_png
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, VERMILION, GREY, INK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#9A9A9A", "#333333"
SIZE, DPI = (8.6, 5.4), 160
"""Inches, and dots in one of them."""

MARKED = 40
"""Checkpoints up to which each has a mark of its own."""


def check_plot(path: Path) -> None:
    """Raise UsageError where no picture can be made: better before an evaluation than after it."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot {path}: pictures are PNG files, so give a name that ends in .png")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install matplotlib")


def dynamics_plot(
    found: Curves, path: Path, window: Window, *, steps: Sequence[int] | None = None, title: str = "Training dynamics"
) -> None:
    """Draw one window of a run into the PNG `path`. `steps` says where the checkpoints stand on the axis (default:
    0, 1, 2 …). Raises UsageError as `check_plot` does, and StoreError where the file cannot be written."""
    check_plot(path)
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=SIZE, dpi=DPI, layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1))
    axes = figure.add_subplot()
    at = list(range(len(found.current))) if steps is None else list(steps)
    _rates(axes, found, window, at)
    _marks(axes, found, at)
    _frame(axes, found, at)
    axes.set_title(title, loc="left", fontsize=13, color=INK, pad=26)
    said = axes.text(0, 1.03, _summary(found, window, at), transform=axes.transAxes, fontsize=9, color=INK)
    # A long line must not make the picture under it narrower.
    said.set_in_layout(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, columnspacing=1.4)
    write_png(figure, path)


def _rates(axes: Axes, found: Curves, window: Window, at: Sequence[int]) -> None:
    """The rates as lines, and what lies between them as areas. With all checkpoints in the window, recently solved is
    ever solved, and nothing is stale."""
    recency = found.by_window[window]
    now, recent, best = (100 * rates for rates in (found.current, recency.recent, found.best))
    mark = "o" if len(at) <= MARKED else None
    axes.plot(at, now, color=BLUE, lw=2.2, marker=mark, ms=3.5, zorder=4, label="current: solved at this checkpoint")
    if window is not None:
        words = f"recently solved: in the last {window} checkpoints"
        axes.plot(at, recent, color=ORANGE, lw=1.6, ls="--", zorder=3, label=words)
    axes.plot(at, best, color=INK, lw=1.1, ls=":", label="best so far: ever solved")
    axes.fill_between(at, now, recent, color=ORANGE, alpha=0.4, lw=0, label="active instability")
    if window is not None:
        axes.fill_between(at, recent, best, color=GREY, alpha=0.35, lw=0, label="stale regressions")


def _marks(axes: Axes, found: Curves, at: Sequence[int]) -> None:
    """Where the run was at its best, and by when it had solved everything once."""
    peak = [at[found.peak]], [100 * found.current[found.peak]]
    axes.plot(*peak, color=VERMILION, marker="*", ms=16, mec="white", ls="none", label="peak", zorder=5)
    if found.covered is not None:
        axes.axvline(at[found.covered], color=GREEN, lw=1.6, ls="-.", label="every task solved once", zorder=2)


def _frame(axes: Axes, found: Curves, at: Sequence[int]) -> None:
    """Axes that need not begin at 0: what is read off are gaps, and no area is measured from the ground."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_ylim(max(0, min(60, 10 * math.ceil(10 * found.current.min() - 1))), 102)
    axes.set_xlim(at[0] - 0.5, at[-1] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.set_xlabel("step", fontsize=11)
    axes.set_ylabel("share of the tasks", fontsize=11)
    axes.grid(axis="y", color="#E4E4E4", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _summary(found: Curves, window: Window, at: Sequence[int]) -> str:
    """The four numbers that the paper prints under each run."""
    covered = "never" if found.covered is None else f"by step {at[found.covered]}"
    peak = f"{found.current[found.peak]:.1%} at step {at[found.peak]}"
    mean = 100 * found.by_window[window].mean_instability
    again = (
        "nothing to relearn" if found.relearned is None else f"relearned {found.relearned:.0%} of {found.unlearned:,}"
    )
    return f"all solved once: {covered}  ·  peak {peak}  ·  mean instability {mean:.1f} pp  ·  {again}"
