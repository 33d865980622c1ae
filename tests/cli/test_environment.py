"""Consoles that are not UTF-8, and certificates that do not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import run_command
from refusals import refused

from practicum.core.errors import UsageError
from practicum.models.download import SMOLLM2, download
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


ENCODINGS = [
    {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "cp1252"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]  # fmt: skip
COMMANDS = [
    ("show", "r"), ("export", "r"), ("space", "diff", "r", "0", "1"), ("show", "r", "--json"), ("review", "r"),
    ("show", "r", "--entry", "e1"), ("bench", "methods"), ("eval", "tasks.jsonl", "--agent", "greek:agent", "--json"),
]  # fmt: skip


def printed(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "practicum.cli.app", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENCODINGS, ids=["ascii", "cp1252", "C"])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_any_console_shows_what_it_can(arguments: tuple[str, ...], environment: dict[str, str], run: Path) -> None:
    more = ("--model", "sim", "--scorer", "exact") if arguments[0] == "eval" else ()
    done = printed(run, environment, *arguments, *more)
    assert done.returncode == 0, done.stderr
    assert b"bug in practicum" not in done.stderr
    if "--json" in arguments:
        assert "?" not in json.dumps(json.loads(done.stdout))
    else:
        # What is replaced is counted.
        assert (b"?" in done.stdout) == (b"PYTHONIOENCODING=utf-8" in done.stderr)


@pytest.mark.slow
def test_files_stay_utf_8(run: Path) -> None:
    done = printed(run, ENCODINGS[2], "export", "r", "--format", "markdown", "--output", "book.md")
    assert done.returncode == 0, done.stderr
    assert GREEK in (run / "book.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("model", ["openai:gpt-4.1-mini", "https://127.0.0.1:9/v1#m"])
def test_certificates_that_do_not_exist_are_named_by_their_variable(
    model: str, variable: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/no/such/certificates")
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    done = run_command(("eval", "tasks.jsonl", "--model", model, "--scorer", "exact"), run)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert variable in line
    assert "/no/such/certificates" in line
    with pytest.raises(UsageError, match=variable):
        open_upstream("https://127.0.0.1:9/v1", run, 1.0)


def test_a_bundle_for_downloads_that_does_not_exist_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/certificates")
    with refused("settings.invalid"):
        download(SMOLLM2, tmp_path)
