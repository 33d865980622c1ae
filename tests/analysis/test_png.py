"""Pictures of fits are PNG files, and are refused without the package that draws them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from refusals import refused

from practicum.analysis.delay_plot import delay_plot
from practicum.analysis.png import can_draw, check_png, new_figure
from practicum.core.errors import PracticumWarning
from practicum.methods.blocks.sample import DelayFit, Point, fit_delay

FOUR = [Point(10, 7.7), Point(20, 8.4), Point(40, 11.0), Point(80, 13.5)]
FITS = {
    "an outlier": fit_delay([*FOUR, Point(50, 1.0), *[Point(53, 12.0)] * 9], 500_000),
    "one size": fit_delay([Point(9, 3.0)], 39, b_min=9),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
@pytest.mark.slow
def test_a_picture_of_any_fit(tmp_path: Path, fit: DelayFit) -> None:
    file = tmp_path / "new" / "delay.png"
    delay_plot(fit, file)
    with Image.open(file) as image:
        assert (image.format, image.size) == ("PNG", (1_200, 825))
        colours = image.convert("L").histogram()
    # Mostly paper, with something drawn on it.
    assert colours[255] > 0.8 * sum(colours)
    assert sum(colours[:200]) > 5_000


def test_without_its_package_a_picture_is_refused_or_left_out_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("practicum.analysis.png.find_spec", lambda name: None)
    for ask in (lambda: check_png(tmp_path / "a.png", "--plot"), lambda: new_figure(1, 1)):
        with refused("extra.missing"):
            ask()
    with pytest.warns(PracticumWarning, match=r"report\.html: .*pip install 'matplotlib>="):
        assert not can_draw(tmp_path / "report.html")
