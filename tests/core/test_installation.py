"""The key of an installation, and the marks made with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import refused

from practicum.core import installation
from practicum.core.installation import HOME_VARIABLE, is_marked, mark


def test_a_mark_holds_for_these_values_and_this_key_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "mine"))
    made = mark({"agent": "chat", "roles": {"a": "x", "b": "y"}})
    assert is_marked({"roles": {"b": "y", "a": "x"}, "agent": "chat"}, made)
    assert not is_marked({"agent": "command:sh"}, made)
    assert not is_marked({"agent": "chat"}, None)
    assert not is_marked({"agent": "chat"}, "é\ud800")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "hers"))
    assert not is_marked({"agent": "chat", "roles": {"a": "x", "b": "y"}}, made)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "mine"))
    assert is_marked({"agent": "chat", "roles": {"a": "x", "b": "y"}}, made)


def test_the_key_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    before = os.umask(0)
    try:
        mark({})
    finally:
        os.umask(before)
    (key,) = (tmp_path / "config" / "practicum").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    key.write_bytes(b"short")
    with refused("installation.damaged"):
        mark({})


def test_without_a_folder_for_it_the_key_is_one_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "file" / "home"))
    installation._of_process.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"cannot be stored.*{HOME_VARIABLE}"):
        made = mark({})
    assert is_marked({}, made)
