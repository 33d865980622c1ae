"""The picture of a batch size controller's fit: epoch time against batch size, the fitted law, and the chosen size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from practicum.analysis.png import BLUE, DOTS, GREY, RED, SIZE, write_png
from practicum.blocks.sample.delay import DelayFit, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def delay_plot(fit: DelayFit, path: Path) -> None:
    """Draw what was measured, the law and the chosen size on log-log axes. Raises StoreError where the file cannot be
    written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    measured = (*fit.points, *fit.outliers)
    times = [fit.epoch_seconds(p) for p in measured] or [1.0]
    name, unit = next((u for u in UNITS if max(times) >= 2 * u[1]), UNITS[-1])
    _draw_law(axes, fit, unit)
    _scatter(axes, fit, fit.points, unit, color=BLUE, alpha=0.65, label="measured iterations")
    _scatter(axes, fit, fit.outliers, unit, facecolors="none", edgecolors=GREY, label="outliers, left out")
    _set_limits(axes, "x", [fit.chosen, fit.b_min, *(p.batch for p in measured)], 1.3)
    # Epochs get shorter to the right, so the legend has room below the first point.
    times += [] if fit.alpha is None else [fit.curve(fit.chosen), min(times) / 1.5]
    _set_limits(axes, "y", [t / unit for t in times], 1.4)
    axes.set_xlabel("batch size (tasks)", fontsize=12)
    axes.set_ylabel(f"one epoch of {fit.tasks:,} tasks ({name})", fontsize=12)
    axes.set_title(f"Epoch time by batch size: {fit.chosen} is chosen", loc="left", fontsize=14)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, loc="lower left")
    figure.supxlabel(fill(_caption(fit), 100), x=0.02, ha="left", fontsize=11, color="#333333")
    write_png(figure, path)


def _draw_law(axes: Axes, fit: DelayFit, unit: float) -> None:
    """The chosen size, and the law as a line, which is dashed where nothing was measured."""
    axes.axvline(fit.chosen, color=RED, linewidth=1.5, linestyle=":", label=f"chosen: {fit.chosen}")
    if fit.alpha is None:
        return
    interval = f" (95%: {fit.alpha_ci95[0]:z.2f} to {fit.alpha_ci95[1]:z.2f})" if fit.alpha_ci95 else ""
    label = f"$T(b) = A\\,b^{{-\\alpha}}$ with $\\alpha$ = {fit.alpha:z.2f}{interval}"
    sizes = [p.batch for p in fit.points]
    inner = (min(sizes), max(sizes))
    outer = (min(fit.b_min, *sizes), max(fit.chosen, *sizes))
    for ends, style, name in ((outer, "--", "_"), (inner, "-", label)):
        axes.plot(ends, [fit.curve(b) / unit for b in ends], style, color=BLUE, linewidth=2, label=name)
    axes.plot([fit.chosen], [fit.curve(fit.chosen) / unit], "D", color=RED, markersize=9, zorder=4)


def _scatter(axes: Axes, fit: DelayFit, points: Sequence[Point], unit: float, **style: Any) -> None:
    if points:
        axes.scatter([p.batch for p in points], [fit.epoch_seconds(p) / unit for p in points], s=55, zorder=3, **style)


def _set_limits(axes: Axes, name: Literal["x", "y"], values: Sequence[float], margin: float) -> None:
    """Limits around the values, with plain numbers as ticks even where they span less than a decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    low, high = min(values) / margin, max(values) * margin
    axes.set(**{f"{name}lim": (low, high)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high / low > 8 else MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _caption(fit: DelayFit) -> str:
    """How the size was chosen, in the numbers of this fit."""
    chosen = f"{fit.chosen} is chosen: {fit.why}."
    if fit.alpha is None or fit.chosen == fit.b_min:
        return chosen
    steepest, here = (fit.alpha * fit.curve(b) / b for b in (fit.b_min, fit.chosen))
    return (
        f"{chosen} By the law, one more task per batch shortens an epoch by {steepest:,.3g} s at {fit.b_min}, and by "
        f"{here:,.3g} s at {fit.chosen} ({here / steepest:.1%} of that; the threshold τ is {fit.tau:.1%})."
    )
