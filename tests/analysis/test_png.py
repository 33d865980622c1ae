"""Pictures come out as pictures, and the command line draws what a run kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import make_tasks
from PIL import Image

from practicum.analysis.delay_plot import delay_plot
from practicum.blocks.sample.delay import DelayFit, Point, fit_delay
from practicum.cli.app import main
from practicum.core.context import Context
from practicum.core.errors import StoreError
from practicum.engine.loop import Batch, StepReport
from practicum.session.records import create_seed, step_rows
from practicum.store.database import Store

FOUR = [Point(10, 7.7), Point(20, 8.4), Point(40, 11.0), Point(80, 13.5)]
FITS = {
    "four sizes": fit_delay(FOUR, 1_000),
    "hours and an outlier": fit_delay([*FOUR, Point(50, 1.0), *[Point(53, 12.0)] * 9], 500_000),
    "two sizes": fit_delay(FOUR[:2], 80),
    "one size": fit_delay([Point(9, 3.0)], 39, b_min=9),
    "no time": fit_delay([Point(9, 0.0)], 39, b_min=9),
    "nothing gained": fit_delay([Point(b, b * 0.3) for b in (10, 20, 40)], 200),
    "microseconds": fit_delay([Point(b, 1e-6 * b**0.2) for b in (10, 20, 40)], 200),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_a_picture_of_any_fit(tmp_path: Path, fit: DelayFit) -> None:
    file = tmp_path / "new" / "delay.png"
    delay_plot(fit, file)
    with Image.open(file) as image:
        assert (image.format, image.size) == ("PNG", (1_200, 825))
        colours = image.convert("L").histogram()
    # Mostly paper, and something on it.
    assert colours[255] > 0.8 * sum(colours)
    assert sum(colours[:200]) > 5_000
    assert [f.name for f in file.parent.iterdir()] == ["delay.png"]


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*delay\.png"):
        delay_plot(FITS["two sizes"], tmp_path / "file" / "delay.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*folder\.png"):
        delay_plot(FITS["two sizes"], tmp_path / "folder.png")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["file", "folder.png"]


def kept(folder: Path, fits: Sequence[DelayFit | None]) -> Path:
    """A run whose steps kept these fits."""
    create_seed(folder, Context())
    with Store.open(folder) as store:
        for step, fit in enumerate(fits, 1):
            data = {"size": 10, "why": "", "fit": None if fit is None else fit.as_json()}
            batch = Batch(tuple(make_tasks(2)), data=data)
            for table, rows in step_rows(StepReport(step, batch, (), (), Context(), (), (), (), 1.0)).items():
                store.put(table, rows)
    return folder


def typed(*words: object) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return left.value.code


def test_show_draws_the_last_fit_and_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = replace(FITS["four sizes"], left_out=2, outliers=(Point(40, 99.0),))
    run = kept(tmp_path / "run", [None, FITS["two sizes"], last])
    assert typed("show", run, "--view", "delay") == 0
    told = capsys.readouterr().out
    assert (run / "delay.png").is_file()
    for words in ("alpha = 0.71", "95% interval 0.", "R² 0.9", "4 iterations measured", "1 outliers not counted"):
        assert words in told
    assert "2 without a usable time" in told
    assert f"batch size {last.chosen} chosen: {last.why}" in told
    assert typed("show", run, "--view", "delay", "--output", tmp_path / "F.png", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value == {"plot": str(tmp_path / "F.png"), "fit": json.loads(json.dumps(last.as_json()))}
    assert (tmp_path / "F.png").is_file()


def test_show_tells_of_a_single_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("show", kept(tmp_path / "run", [FITS["one size"]]), "--view", "delay") == 0
    assert "batch size 9 chosen: only batches of 9 were measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--view delay", "holds no measured delays: only a run with a batch size controller"),
        ("--view score", "'score' is not one of 'context', 'gate', 'replay', 'delay'"),
        ("--view delay --output F.pdf", "pictures are PNG files"),
        ("--output F.png", "add --view delay"),
        ("--view delay --version 0", "leave out --version and --entry"),
        ("--view delay --entry e1", "leave out --version and --entry"),
    ],
)
def test_what_cannot_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, words: str) -> None:
    assert typed("show", kept(tmp_path / "run", [None]), *arguments.split()) == 2
    assert words in capsys.readouterr().err
