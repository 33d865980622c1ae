"""Help, choices, defaults and shell completion: what the command line says must agree with what the library takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from helpers import run_command

from practicum.bench.overload import ARMS
from practicum.cli import bench
from practicum.cli.inputs import METHOD_OPTIONS, config_values
from practicum.cli.options import SETTINGS
from practicum.models.refused import Structure
from practicum.session.config import Config

COMMANDS = {
    "demo", "tasks", "advise", "methods", "learn", "resume", "run", "show", "view", "diff", "edit", "review", "monitor",
    "name", "dynamics", "pools", "export", "import", "memory", "forget", "rollback", "eval", "compare", "bench",
    "feedback", "serve", "mcp", "store", "key",
}  # fmt: skip
GROUPS = {
    "store": {"copy", "connect", "list", "remove"},
    "key": {"add", "list", "remove"},
    "memory": {"list", "search", "add", "remove", "reembed"},
    "bench": {"overload", "paper", "retrieval", "robustness"},
}


def help_of(*command: str) -> str:
    done = run_command([*command, "--help"], Path.cwd())
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    return done.out


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("command", sorted(COMMANDS - set(GROUPS)))
def test_every_command_has_help_and_json(command: str) -> None:
    assert "--json" in help_of(command)


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_of_a_group_has_help_and_json(group: str) -> None:
    assert "--json" not in help_of(group)
    for command in GROUPS[group]:
        assert "--json" in help_of(group, command)


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_without_a_command_the_help_is_printed(group: str) -> None:
    done = run_command([group] if group else [], Path.cwd())
    assert (done.code, done.err) == (2, "")
    assert "Usage: practicum" in done.out


@pytest.mark.parametrize("command", ["learn", "compare"])
def test_help_shows_the_defaults_of_new_runs(command: str) -> None:
    found = " ".join(help_of(command).replace("│", " ").split())
    for name in ("agent", "timeout", "structure", "embedder", "concurrency"):
        default = Config.model_fields[name].default
        option = re.search(rf" --{name.replace('_', '-')} [^[]+(\[x[^[]+)?\[default: ([^]]+)\]", found)
        assert option, name
        assert option[2] == str(default)
    assert "default: 4096; profile small: 1024" in found
    assert "Undefined" not in found
    assert f"[default: {Config.model_fields['attempts'].default - 1}]" in found


def test_options_of_a_run_are_fields_of_its_configuration_or_settings_of_its_method() -> None:
    made_of_others = {
        "set_": "settings",
        "role": "roles",
        "retries": "attempts",
        "price": "prices",
        "no_labels": "labels",
    }
    for name in SETTINGS.keys() - set(METHOD_OPTIONS) - {"no_reasoning"}:
        assert made_of_others.get(name, name) in Config.model_fields


def test_options_become_keywords_of_a_configuration() -> None:
    given = {"batch": "4", "set_": ["rounds=2"], "role": ["judge=http://h/v1?a=b#m"], "retries": 0, "seed": 0}
    others = {"no_labels": True, "no_reasoning": True, "choices": "a,b,a", "timeout": None, "online": None}
    assert config_values({**given, **others}) == {
        "settings": {"rounds": "2", "batch": "4"}, "roles": {"judge": "http://h/v1?a=b#m"}, "attempts": 1, "seed": 0,
        "labels": False, "reasoning": False, "choices": ("a", "b"),
    }  # fmt: skip


def test_listed_choices_are_those_of_the_library() -> None:
    structure, _ = get_args(get_args(SETTINGS["structure"])[0])
    assert get_args(structure) == get_args(Structure)
    assert ", ".join(ARMS) == bench.ARMS


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ("practicum mem", {"memory"}),
        ("practicum memory re", {"remove", "reembed"}),
        ("practicum show run --attempt", {"--attempt", "--attempts"}),
        ("practicum learn --method re", {"reasoning_bank", "reflexion"}),
        ("practicum learn --max-", {"--max-turns", "--max-output-tokens", "--max-reply-mb", "--max-calls",
                                    "--max-tokens", "--max-usd", "--max-minutes"}),
    ],
)  # fmt: skip
def test_the_shell_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, completions: set[str]
) -> None:
    monkeypatch.setenv("_PRACTICUM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    assert set(run_command([], tmp_path).out.split()) == completions


def test_completion_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert run_command(["--install-completion"], tmp_path).code == 0
    assert "_PRACTICUM_COMPLETE" in (tmp_path / ".bash_completions" / "practicum.sh").read_text(encoding="utf-8")
