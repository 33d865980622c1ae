"""Each bench runs with its smallest size, as users run it, and ends with one line of JSON."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from helpers import write_tasks

from practicum.core.types import Task
from practicum.testing import pseudo_words, start_process

BENCH = Path(__file__).parents[2] / "bench"

SIZES: dict[str, str] = {
    "ace": "--tasks 1 --rounds 0", "calls": "--calls 8 --at-once 4 --repeat 1", "canary": "--rollouts 2",
    "compare": "--pairs 1 --tasks 11", "content": "--disguises none,Greek,tags", "context": "--entries 2000",
    "help": "--times 1", "kills": "--times 1", "languages": "", "path": "", "threshold": "",
    "outcomes": "--entries 10 --corrections 2 --reports 2", "pages": "--interactions 50 --entries 20 --spaces 2",
    "poison": "--attacks 3 --seeds 1 --defences all", "serve": "--runs 1 --seconds 1 --entries 50",
    "shingles": "{tasks}:input --texts 4", "space": "--sizes 20", "spaces": "2 --requests 6", "start": "--times 1",
    "speed": "--tasks 2 --only sequential,in-flight --at-once 4 --output-tokens 2", "store": "--memories 1500",
    "traces": "{folder} --traces 400 --kinds jsonl",
}  # fmt: skip
TIMELESS = ("content", "poison")
"""Benches whose targets hold at any size, on any machine."""
OTHERS: dict[str, str] = {
    "critiques": "{tasks} --model {model} --train 1 --test 1 --rounds 1 --out {folder}/runs",
    "flood": "nothing",
    "keys": "--calls 8",
    "mcp": "--model {model} --seeds 1 --each 1",
    "proxies": "",
    "routing": "--batches 1 --steps 2",
    "similarity": "{tasks} --others {others}",
    "stream": "{tasks} --upstream {model} --system Route. --count 4 --out {folder}/stream.png",
}
"""Benches that only print tables."""


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The values of the names in braces in arguments."""
    folder = tmp_path_factory.mktemp("bench")
    texts = [f"Case {n}: {' '.join(pseudo_words(Random(f'{n} {part}')) for part in range(4))}" for n in range(12)]
    examples = [Task(f"t{n}", text, "K7", {"topic": n % 2, "concepts": ["card"]}) for n, text in enumerate(texts)]
    tasks = write_tasks(folder / "tasks.jsonl", examples)
    others = write_tasks(folder / "others.jsonl", examples[:3])
    with start_process() as server:
        yield {"others": str(others), "folder": str(folder), "tasks": str(tasks), "model": f"{server.url}#sim"}


def printed(script: str, arguments: str, values: dict[str, str], *more: str) -> list[str]:
    command = [sys.executable, f"{BENCH / script}_bench.py", *shlex.split(arguments.format(**values)), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: a target was missed
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("script", SIZES)
def test_a_bench_measures_and_ends_with_json(script: str, values: dict[str, str]) -> None:
    if script == "poison":
        pytest.importorskip("agentdojo", reason="pip install --no-deps agentdojo==0.1.35", exc_type=ImportError)
    report = json.loads(printed(script, SIZES[script], values, "--json")[-1])
    assert report["bench"] == script
    assert report["result"]
    assert len(report["load"]) == 2
    if script in TIMELESS:
        assert [target for target in report["targets"] if not target["met"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("script", OTHERS)
def test_a_bench_prints_its_measurements(script: str, values: dict[str, str]) -> None:
    assert printed(script, OTHERS[script], values)
