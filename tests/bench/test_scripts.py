"""The scripts of the folder `bench` run with small sizes, and end with one line of JSON."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("help", "--times 1"),
        ("ace", "--tasks 1 --rounds 0"),
        ("ace", "--curve 20 --steps 2"),
        ("calls", "--calls 20 --at-once 4 --repeat 1"),
        ("compare", "--pairs 1"),
        ("threshold", ""),
    ],
)
def test_a_script_measures_and_ends_with_json(
    script: str, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, *arguments.split(), "--json"])
    runpy.run_path(str(BENCH / f"{script}_bench.py"), run_name="__main__")
    value = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert value["bench"].startswith(script)
    assert value["result"]
    assert len(value["load"]) == 2
