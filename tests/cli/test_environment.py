"""Consoles that are not UTF-8, and certificates that do not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import run_command

from practicum.core.errors import UsageError
from practicum.serve.upstream import open_upstream

GREEK = "Πάντα ρεῖ – “café” 漢字"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `r`, which learned Greek."""
    folder = tmp_path_factory.mktemp("greek")
    tasks = [{"id": f"τ{n}", "input": f"ερώτηση {n}", "target": GREEK} for n in range(3)]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    (folder / "greek.py").write_text(f"def agent(text, context):\n    return {GREEK!r}\n", encoding="utf-8")
    typed = ("learn", "tasks.jsonl", "--model", "sim", "--agent", "greek:agent", "--scorer", "exact")
    sys.path.insert(0, str(folder))
    try:
        assert run_command((*typed, "--method", "episodes", "--out", "r"), folder).code == 0
    finally:
        sys.path.remove(str(folder))
    return folder


PLAIN = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
CASES = [
    ({"PYTHONIOENCODING": "ascii"}, "show r"), ({"PYTHONIOENCODING": "cp1252"}, "export r"),
    ({"PYTHONIOENCODING": "cp1252"}, "bench methods"), (PLAIN, "show r --json"),
    (PLAIN, "eval tasks.jsonl --agent greek:agent --json --model sim --scorer exact"),
]  # fmt: skip


def printed(folder: Path, environment: dict[str, str], typed: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "practicum.cli.app", *typed.split()]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "typed"), CASES, ids=[typed for _, typed in CASES])
def test_any_console_replaces_and_counts_characters(environment: dict[str, str], typed: str, run: Path) -> None:
    done = printed(run, environment, typed)
    assert done.returncode == 0, done.stderr
    assert b"bug in practicum" not in done.stderr
    if "--json" in typed:
        assert "?" not in json.dumps(json.loads(done.stdout))
    else:
        assert (b"?" in done.stdout) == (b"PYTHONIOENCODING=utf-8" in done.stderr)


@pytest.mark.slow
def test_files_stay_utf_8(run: Path) -> None:
    assert printed(run, PLAIN, "export r --format markdown --output book.md").returncode == 0
    assert GREEK in (run / "book.md").read_text(encoding="utf-8")


def test_missing_certificates_are_reported_by_their_variable(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(variable, "/no/such/certificates")
        done = run_command(("eval", "tasks.jsonl", "--model", "https://127.0.0.1:9/v1#m", "--scorer", "exact"), run)
        assert done.code == 2
        (line,) = done.err.splitlines()
        assert variable in line
        assert "/no/such/certificates" in line
        with pytest.raises(UsageError, match=variable):
            open_upstream("https://127.0.0.1:9/v1", run, 1.0)
        monkeypatch.delenv(variable)
