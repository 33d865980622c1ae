"""The benches about safety and about the path of a request run with their smallest size, as users run them. All others
start."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"

SIZES = {
    "canary": "--rollouts 2", "content": "--disguises none,Greek,tags", "kills": "--times 1", "path": "",
    "poison": "--attacks 3 --seeds 1 --defences all",
}  # fmt: skip
TIMELESS = ("content", "poison")
"""Benches whose targets hold at any size, on any machine."""
OTHERS = sorted({path.stem.removesuffix("_bench") for path in BENCH.glob("*_bench.py")} - {*SIZES})


def printed(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, f"{BENCH / script}_bench.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: a target was missed
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("script", SIZES)
def test_a_bench_measures_and_ends_with_json(script: str) -> None:
    if script == "poison":
        pytest.importorskip("agentdojo", reason="pip install --no-deps agentdojo==0.1.35", exc_type=ImportError)
    report = json.loads(printed(script, *shlex.split(SIZES[script]), "--json")[-1])
    assert report["bench"] == script
    assert report["result"]
    assert len(report["load"]) == 2
    if script in TIMELESS:
        assert [target for target in report["targets"] if not target["met"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("script", OTHERS)
def test_a_bench_starts_and_describes_itself(script: str) -> None:
    assert printed(script, "--help")
