"""`connect` changes the settings of four programs, and `disconnect` gives every byte back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, run_command
from hypothesis import given
from hypothesis import strategies as st

from practicum.core.installation import HOME_VARIABLE
from practicum.plugins.coding.programs import PROGRAMS
from practicum.plugins.coding.settings_files import (
    Change,
    add_json,
    add_toml,
    parse_json,
    parse_toml,
    remove_json,
    remove_toml,
)

JSON_SETTINGS = (
    '{\r\n\t"permissions": {"allow": ["Bash(ls)", "Read"]},\r\n'
    '\t"env": {"A": 1.50, "K": "secret"},\r\n\t"hooks": {"SessionEnd": [ ]}\r\n}'
)
PREPARED = {
    ".mcp.json": '{"mcpServers": {"other": {"command": "x"}}}\n',
    ".claude/settings.local.json": JSON_SETTINGS,
    "opencode.json": '{\n    "model": "a/b",\n    "provider": {"openai": {"options": {"timeout": 5}}}\n}\n',
    ".gemini/settings.json": "\ufeff" + JSON_SETTINGS,
    "codex/config.toml": '# mine\nmodel = "m" # fast\nnotify = [\n  "say", "don\'t",\n]\n\n[tui]\ntheme = "x"',
}


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.project, self.store = folder, folder / "project", folder / "store"
        self.project.mkdir()

    def prepare(self) -> None:
        for name, text in PREPARED.items():
            path = self.folder / name if name.startswith("codex") else self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            path.chmod(0o600)

    def tree(self) -> dict[str, tuple[bytes, int]]:
        files = (path for top in (self.project, self.folder / "codex") for path in top.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): (path.read_bytes(), path.stat().st_mode) for path in files}

    def __call__(self, *arguments: object, code: int = 0) -> Done:
        done = run_command([*arguments, "--json"], self.project)
        assert done.code == code, done.err
        return done

    def connect(self, program: str, *options: object, code: int = 0) -> dict[str, Any]:
        return dict(self("connect", program, "--store", self.store, "--yes", *options, code=code).json)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return Place(tmp_path)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_disconnect_gives_back_every_byte(place: Place, program: str, prepared: bool) -> None:
    if prepared:
        place.prepare()
    before = place.tree()
    shown = place("connect", program, "--store", place.store, "--print").json["files"]
    assert len(shown) == 1 if program in ("codex", "gemini-cli") else 2
    assert place.tree() == before
    place.connect(program)
    connected = place.tree()
    assert connected != before
    assert all(mode & 0o077 == 0 for name, (_, mode) in connected.items() if name in before)
    assert [f"{name}.practicum-backup" in connected for name in before if connected[name] != before[name]] == [
        True for name in before if connected[name] != before[name]
    ]
    assert place.connect(program)["files"] == []
    assert place.tree() == connected
    place("disconnect", program, "--yes")
    assert place.tree() == before
    assert b"secret" not in (place.folder / "home" / "connected.json").read_bytes()
    assert place("disconnect", program, "--yes", code=2).json["error"]["code"] == "program.not_connected"


@pytest.mark.parametrize("program", PROGRAMS)
def test_changes_of_the_user_stay(place: Place, program: str) -> None:
    place.prepare()
    before = place.tree()
    place.connect(program)
    for name, (content, _) in place.tree().items():
        path = place.folder / name
        if path.suffix == ".json":
            settings = parse_json(content.decode("utf-8-sig"))
            path.write_text(json.dumps({**settings, "mine": [1]}, indent=2))
        elif path.suffix == ".toml":
            path.write_bytes(content + b'\n[mine]\na = "b"\n')
    place("disconnect", program, "--yes")
    for name, (content, _) in before.items():
        path = place.folder / name
        if path.suffix == ".toml":
            assert tomllib.loads(path.read_text()) == {**tomllib.loads(content.decode()), "mine": {"a": "b"}}
        else:
            assert parse_json(path.read_text()) == {**parse_json(content.decode("utf-8-sig")), "mine": [1]}
    assert {*place.tree()} == {*before}


def test_the_proxy_takes_the_place_of_the_memory(place: Place) -> None:
    place.prepare()
    before = place.tree()
    place.connect("claude-code")
    assert (
        place.connect("claude-code", "--proxy", "http://me:secret@127.0.0.1", code=2)["error"]["code"]
        == "settings.invalid"
    )
    place.connect("claude-code", "--proxy", "http://127.0.0.1:8700/v1/")
    assert place.tree()["project/.mcp.json"] == before["project/.mcp.json"]
    settings = json.loads((place.project / ".claude/settings.local.json").read_text())
    assert settings["env"] == {"A": 1.5, "K": "secret", "ANTHROPIC_BASE_URL": "http://127.0.0.1:8700"}
    for program, code in (("codex", 0), ("opencode", 0), ("gemini-cli", 2)):
        place("connect", program, "--store", place.store, "--yes", "--proxy", "http://127.0.0.1:8700", code=code)
    assert tomllib.loads((place.folder / "codex/config.toml").read_text())["openai_base_url"].endswith(":8700/v1")
    opencode = json.loads((place.project / "opencode.json").read_text())["provider"]
    assert opencode["openai"]["options"] == {"timeout": 5, "baseURL": "http://127.0.0.1:8700/v1"}
    for program in ("claude-code", "codex", "opencode"):
        place("disconnect", program, "--yes")
    assert place.tree() == before


@pytest.mark.parametrize("text", ["{\n  // mine\n}", "{", '{"mcpServers": []}', '{"a": 1, "a": 2}', "[" * 9000,
                                  '{"mcpServers": {"practicum": {"command": "mine"}}}', "\udcff"])  # fmt: skip
def test_a_file_that_cannot_be_changed_stays(place: Place, text: str) -> None:
    (place.project / ".mcp.json").write_bytes(text.encode(errors="surrogateescape"))
    before = place.tree()
    done = place.connect("claude-code", code=1)
    assert len(done["left"]) == 1
    assert place.tree()["project/.mcp.json"] == before["project/.mcp.json"]
    place("disconnect", "claude-code", "--yes")
    assert place.tree() == before


def test_nothing_is_written_without_a_confirmation(place: Place) -> None:
    done = place("connect", "codex", "--store", place.store, code=2)
    assert done.json["error"]["code"] == "confirmation.missing"
    assert place.tree() == {}


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(["a", "b"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12,
)  # fmt: skip
SETTINGS = st.dictionaries(KEYS, VALUES, max_size=4)


@given(SETTINGS, st.sampled_from([None, 1, 2, "\t"]), st.booleans(), st.booleans())
def test_any_settings_come_back(settings: dict[str, Any], indent: Any, ascii: bool, append: bool) -> None:
    text = json.dumps(settings, indent=indent, ensure_ascii=ascii)
    change = Change(("hooks", "SessionEnd"), {"command": "c"}, append)
    if "hooks" in settings:
        return
    new, change = add_json(text, change)
    value: Any = [change.value] if append else change.value
    assert json.loads(new) == {**settings, "hooks": {"SessionEnd": value}}
    assert remove_json(new, change) == text


def toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@given(st.dictionaries(KEYS, KEYS, max_size=3), st.lists(KEYS, max_size=3), st.booleans())
def test_any_toml_comes_back(settings: dict[str, str], earlier: list[str], notified: bool) -> None:
    lines = [f"{toml('k' + key)} = {toml(text)}" for key, text in settings.items()]
    lines += [f"notify = {toml(earlier)}"] if notified else []
    text = "".join(f"{line}\n" for line in [*lines, "[a]", "b = 1"])
    before = parse_toml(text)
    new, table = add_toml(text, Change(("mcp_servers", "practicum"), {"command": "c", "args": ["-m"]}))
    new, line = add_toml(new, Change(("notify",), ["x"]))
    assert parse_toml(new)["notify"] == ["x"]
    assert parse_toml(remove_toml(remove_toml(new, line), table)) == before


def capture(place: Place, *arguments: str, event: str = "", **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "practicum.cli.app", "capture", *arguments], input=event, text=True, cwd=place.project,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **env}, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def lines(place: Place) -> list[dict[str, str]]:
    path = place.store / "captured.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_the_hooks_note_a_session_and_never_fail(place: Place) -> None:
    event = json.dumps({"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/p", "prompt": "private"})
    to_store = ("--store", str(place.store))
    assert capture(place, "claude-code", *to_store, event=event) == (0, "")
    assert capture(place, "claude-code", *to_store, event=event, PRACTICUM_CAPTURE="off") == (0, "")
    for broken in ("", "{", "[]", '{"session_id": "a"}', "\0"):
        assert capture(place, "gemini-cli", *to_store, event=broken) == (0, "")
    assert capture(place, "claude-code", "--store", "/dev/null/x", event=event) == (0, "")
    (one,) = lines(place)
    assert (one["program"], one["session"], one["transcript"], one["folder"]) == ("claude-code", "s1", "/t.jsonl", "/p")
    assert len((place.store / "capture.log").read_text().splitlines()) == 5
    assert b"private" not in (place.store / "captured.jsonl").read_bytes()


@pytest.mark.slow
def test_a_hook_imports_no_module_of_the_project(place: Place) -> None:
    (place.project / "typer.py").write_text("open('executed', 'w')")
    place.connect("claude-code")
    settings = json.loads((place.project / ".claude/settings.local.json").read_text())
    command = settings["hooks"]["SessionEnd"][0]["hooks"][0]["command"]
    event = json.dumps({"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/p"})
    assert subprocess.run(command, shell=True, input=event, text=True, cwd=place.project, check=False).returncode == 0
    assert len(lines(place)) == 1
    assert not (place.project / "executed").exists()


@pytest.mark.slow
def test_an_earlier_notify_of_codex_still_runs(place: Place) -> None:
    rollout = place.folder / "codex/sessions/2026/11/30/rollout-2026-11-30T10-00-00-t1.jsonl"
    rollout.parent.mkdir(parents=True)
    rollout.touch()
    script = "import sys; open('got', 'w').write(sys.argv[1])"
    (place.folder / "codex/config.toml").write_text(f"notify = {json.dumps([sys.executable, '-c', script])}\n")
    place.connect("codex")
    notify = tomllib.loads((place.folder / "codex/config.toml").read_text())["notify"]
    event = json.dumps({"type": "agent-turn-complete", "thread-id": "t1", "cwd": "/p", "input-messages": ["private"]})
    assert subprocess.run([*notify, event], cwd=place.project, timeout=60, check=False).returncode == 0
    assert (place.project / "got").read_text() == event
    assert [(one["session"], one["transcript"]) for one in lines(place)] == [("t1", str(rollout))]
