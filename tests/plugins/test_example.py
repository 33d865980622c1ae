"""The example of a package with plug-ins, installed with pip and used by its names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.mark.slow
def test_an_installed_package_adds_a_method_a_scorer_and_a_command(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(EXAMPLE)]
    subprocess.run(install, check=True, capture_output=True)
    (tmp_path / "tasks.jsonl").write_text('{"input": "Name two colours.", "target": "red blue"}\n')
    (tmp_path / "model").write_text(json.dumps({"answer": "blue red"}))

    def practicum(*arguments: str) -> str:
        command = [sys.executable, "-m", "practicum.cli.app", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    learn = ["learn", "tasks.jsonl", "--test", "tasks.jsonl", "--method", "keep_failures", "--scorer", "same_words"]
    result = json.loads(practicum(*learn, "--model", "scripted:model", "--out", "run", "--json"))
    assert result["scores"]["test"] == 1.0
    assert practicum("count-entries", "run").strip() == "0"
    listed = json.loads(practicum("bench", "plugins", "--json"))["plugins"]
    mine = {(each["kind"], each["name"], each["problem"]) for each in listed if each["package"] != "practicum"}
    assert mine >= {("method", "keep_failures", ""), ("scorer", "same_words", ""), ("command", "count-entries", "")}
