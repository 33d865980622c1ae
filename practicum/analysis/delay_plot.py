"""Plot of the fit of a batch size controller: measured epoch times by batch size, the fitted law, and the
chosen batch size."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from practicum.analysis.png import BLUE, GREY, INK, RED, new_figure, plain, round_ticks, time_unit, write_png
from practicum.core.formats import seconds
from practicum.methods.blocks.sample import DelayFit


def delay_plot(fit: DelayFit, path: Path) -> None:
    """Draw the measured times, the fitted law and the chosen batch size on log-log axes. Raises StoreError if the file
    cannot be written."""
    figure = new_figure(8.0, 5.5)
    axes = figure.add_subplot(xscale="log", yscale="log", autoscale_on=False)
    measured = (*fit.points, *fit.outliers)
    times = [fit.epoch_seconds(p) for p in measured] or [1.0]
    name, unit = time_unit(max(times))
    axes.axvline(fit.chosen, color=RED, linewidth=1.5, linestyle=":", label=f"chosen: {fit.chosen}")
    if fit.alpha is not None:
        interval = f" (95%: {fit.alpha_ci95[0]:z.2f} to {fit.alpha_ci95[1]:z.2f})" if fit.alpha_ci95 else ""
        label = f"$T(b) = A\\,b^{{-\\alpha}}$ with $\\alpha$ = {fit.alpha:z.2f}{interval}"
        sizes = [p.batch for p in fit.points]
        # The law is dashed outside of the measured range.
        reach = (min(fit.b_min, *sizes), max(fit.chosen, *sizes))
        for ends, style, shown in ((reach, "--", "_"), ((min(sizes), max(sizes)), "-", label)):
            axes.plot(ends, [fit.curve(b) / unit for b in ends], style, color=BLUE, linewidth=2, label=shown)
        axes.plot([fit.chosen], [fit.curve(fit.chosen) / unit], "D", color=RED, markersize=9, zorder=4)
        # Epochs get shorter to the right, so there is space for the legend at the lower left.
        times += [fit.curve(fit.chosen), min(times) / 1.5]
    looks: tuple[dict[str, Any], ...] = (
        {"color": BLUE, "alpha": 0.65, "label": "measured iterations"},
        {"facecolors": "none", "edgecolors": GREY, "label": "outliers, not used"},
    )
    for points, look in zip((fit.points, fit.outliers), looks, strict=True):
        if points:
            heights = [fit.epoch_seconds(p) / unit for p in points]
            axes.scatter([p.batch for p in points], heights, s=55, zorder=3, **look)
    widths = [fit.chosen, fit.b_min, *(p.batch for p in measured)]
    axes.set(xlim=(min(widths) / 1.3, max(widths) * 1.3), ylim=(min(times) / unit / 1.4, max(times) / unit * 1.4))
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        round_ticks(axis, *limits)
        axis.set_major_formatter("{x:,g}")
    axes.set_xlabel("batch size (tasks)", fontsize=12)
    axes.set_ylabel(f"one epoch of {fit.tasks:,} tasks ({name})", fontsize=12)
    axes.set_title(f"Epoch time by batch size: {fit.chosen} is chosen", loc="left", fontsize=14)
    plain(axes, "both")
    axes.legend(fontsize=11, loc="lower left")
    figure.supxlabel(fill(_caption(fit), 90), x=0.02, ha="left", fontsize=11, color=INK)
    write_png(figure, path)


def _caption(fit: DelayFit) -> str:
    """Return the caption, which explains the choice of the batch size with the numbers of the fit."""
    chosen = f"{fit.chosen} is chosen: {fit.why}."
    if fit.alpha is None or fit.chosen == fit.b_min:
        return chosen
    steepest, here = (fit.alpha * fit.curve(b) / b for b in (fit.b_min, fit.chosen))
    return (
        f"{chosen} By the fitted law, one more task per batch shortens an epoch by {seconds(steepest)} at batch size "
        f"{fit.b_min}, and by {seconds(here)} at batch size {fit.chosen} ({here / steepest:.1%} of the gain "
        f"at {fit.b_min}; the threshold τ is {fit.tau:.1%})."
    )
