"""Plot of the training dynamics of a run: tasks solved now, solved recently, and ever solved (RCL, figure 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from practicum.analysis.dynamics.curves import Curves, Window
from practicum.analysis.png import BLUE, GREEN, GREY, INK, ORANGE, RED, new_figure, plain, write_png
from practicum.core.metrics import METRICS

MARKED = 40
"""Maximum number of checkpoints that are drawn with markers."""


def dynamics_plot(
    curves: Curves, path: Path, window: Window, *, steps: Sequence[int] | None = None, title: str = "Training dynamics"
) -> None:
    """Draw the curves of a run for one window as the PNG `path`. `steps`: steps of the checkpoints (default: 0, 1, 2,
    …). Raises StoreError if the file cannot be written."""
    figure = new_figure(8.6, 5.4)
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes = figure.add_subplot()
    plain(axes)
    named = {metric.field: metric.title for metric in METRICS.values() if metric.group == "dynamics"}
    x = list(range(len(curves.current)) if steps is None else steps)
    now, recent, best = (100 * rates for rates in (curves.current, curves.by_window[window].recent, curves.best))
    mark = "o" if len(x) <= MARKED else None
    label = f"{named['current']}: solved at this checkpoint"
    axes.plot(x, now, color=BLUE, lw=2.2, marker=mark, ms=3.5, zorder=4, label=label)
    axes.fill_between(x, now, recent, color=ORANGE, alpha=0.4, lw=0, label=named["active"])
    if window is not None:
        label = f"{named['recent']}: in the last {window} checkpoints"
        axes.plot(x, recent, color=ORANGE, lw=1.6, ls="--", zorder=3, label=label)
        axes.fill_between(x, recent, best, color=GREY, alpha=0.3, lw=0, label=named["stale"])
    axes.plot(x, best, color=INK, lw=1.1, ls=":", label=f"{named['best']}: ever solved")
    axes.plot(x[curves.peak], now[curves.peak], "*", color=RED, ms=16, mec="white", label="peak", zorder=5)
    if curves.covered is not None:
        axes.axvline(x[curves.covered], color=GREEN, lw=1.6, ls="-.", label="every task solved once", zorder=2)
    # The axis may start above 0, because the plot is about gaps, not heights.
    axes.set_ylim(max(0, min(60, 10 * math.ceil(now.min() / 10 - 1))), 102)
    axes.set_xlim(x[0] - 0.5, x[-1] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.set_xlabel("step", fontsize=11)
    axes.set_ylabel("share of the tasks", fontsize=11)
    axes.set_title(title, loc="left", fontsize=13, color=INK, pad=26)
    numbers = axes.text(0, 1.03, _numbers(curves, window, x), transform=axes.transAxes, fontsize=9, color=INK)
    # Exclude the text from the layout, because a long line would make the axes narrower.
    numbers.set_in_layout(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, columnspacing=1.4)
    write_png(figure, path)


def _numbers(curves: Curves, window: Window, steps: Sequence[int]) -> str:
    """Format the four numbers that the RCL paper prints for each run: full coverage, peak, mean instability, and the
    share of lost tasks that were relearned."""
    lost = curves.unlearned
    return "  ·  ".join(
        (
            "all solved once: " + ("never" if curves.covered is None else f"by step {steps[curves.covered]}"),
            f"peak {curves.current[curves.peak]:.1%} at step {steps[curves.peak]}",
            f"mean instability {100 * curves.by_window[window].mean_instability:.1f} pp",
            "nothing to relearn" if curves.relearned is None else f"relearned {curves.relearned:.0%} of {lost:,}",
        )
    )
