"""Pictures of numbers: PNG files, drawn without a screen and without pyplot's global state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from practicum.blocks.sample.delay import DelayFit, Point
from practicum.core.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE, DOTS = (8.0, 5.5), 150
"""Inches, and dots an inch."""

BLUE, RED, GREY = "#0072B2", "#D55E00", "#777777"
"""Told apart by people of any colour vision (Okabe and Ito 2008)."""

UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def delay_plot(fit: DelayFit, path: Path) -> None:
    """Epoch time against batch size on log-log axes: what was measured, the law, and the size chosen.

    Written whole or not at all. Raises StoreError where the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    measured = (*fit.points, *fit.outliers)
    times = [fit.epoch_seconds(p) for p in measured] or [1.0]
    name, unit = next((u for u in UNITS if max(times) >= 2 * u[1]), UNITS[-1])
    _draw_law(axes, fit, unit)
    _draw_points(axes, fit, unit)
    _span(axes, "x", [fit.chosen, fit.b_min, *(p.batch for p in measured)], 1.3)
    # Epochs get shorter to the right, so what is below the first point is free for the legend.
    times += [] if fit.alpha is None else [fit.curve(fit.chosen), min(times) / 1.5]
    _span(axes, "y", [t / unit for t in times], 1.4)
    axes.set_xlabel("batch size (tasks)", fontsize=12)
    axes.set_ylabel(f"one epoch of {fit.tasks:,} tasks ({name})", fontsize=12)
    axes.set_title(f"Time of an epoch by batch size: {fit.chosen} is chosen", loc="left", fontsize=14)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, loc="lower left")
    figure.supxlabel(fill(_caption(fit), 100), x=0.02, ha="left", fontsize=11, color="#333333")
    write_png(figure, path)


def _draw_law(axes: Axes, fit: DelayFit, unit: float) -> None:
    """The curve, a line on these axes, dashed where nothing was measured; and the chosen size on it."""
    axes.axvline(fit.chosen, color=RED, linewidth=1.5, linestyle=":", label=f"chosen: {fit.chosen}")
    if fit.alpha is None:
        return
    sure = f" (95%: {fit.alpha_ci95[0]:z.2f} to {fit.alpha_ci95[1]:z.2f})" if fit.alpha_ci95 else ""
    label = f"$T(b) = A\\,b^{{-\\alpha}}$ with $\\alpha$ = {fit.alpha:z.2f}{sure}"
    sizes = [p.batch for p in fit.points]
    inner = (min(sizes), max(sizes))
    outer = (min(fit.b_min, *sizes), max(fit.chosen, *sizes))
    for ends, style, name in ((outer, "--", "_"), (inner, "-", label)):
        axes.plot(ends, [fit.curve(b) / unit for b in ends], style, color=BLUE, linewidth=2, label=name)
    axes.plot([fit.chosen], [fit.curve(fit.chosen) / unit], "D", color=RED, markersize=9, zorder=4)


def _draw_points(axes: Axes, fit: DelayFit, unit: float) -> None:
    _scatter(axes, fit, fit.points, unit, color=BLUE, alpha=0.65, label="measured iterations")
    _scatter(axes, fit, fit.outliers, unit, facecolors="none", edgecolors=GREY, label="outliers, left out")


def _scatter(axes: Axes, fit: DelayFit, points: Sequence[Point], unit: float, **look: Any) -> None:
    if points:
        axes.scatter([p.batch for p in points], [fit.epoch_seconds(p) / unit for p in points], s=55, zorder=3, **look)


def _span(axes: Axes, name: Literal["x", "y"], values: Sequence[float], margin: float) -> None:
    """Limits around the values, with plain numbers as marks also where they span less than a decade."""
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
        f"{chosen} By the curve it shortens an epoch by {steepest:,.3g} s at {fit.b_min}, by {here:,.3g} s at "
        f"{fit.chosen} ({here / steepest:.1%} of that; the threshold τ is {fit.tau:.1%})."
    )


def write_png(figure: Figure, path: Path) -> None:
    """A picture as a file, whole or not at all. Raises StoreError where it cannot be written."""
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
