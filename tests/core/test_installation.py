"""The key of an installation, and its marks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import refused

from practicum.core import installation
from practicum.core.installation import HOME_VARIABLE, is_marked, mark


def test_the_key_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    before = os.umask(0)
    try:
        mark({})
    finally:
        os.umask(before)
    assert is_marked({"a": [1, 2], "b": 0}, mark({"b": 0, "a": [1, 2]}))
    assert not any(is_marked({"a": 1}, each) for each in (None, "é\ud800", mark({"a": 2})))
    (key,) = (tmp_path / "config" / "practicum").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    key.write_bytes(b"short")
    with refused("installation.damaged"):
        mark({})


def test_without_a_writable_folder_the_key_is_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "file" / "home"))
    installation._of_process.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"cannot be stored.*{HOME_VARIABLE}"):
        marked = mark({})
    assert is_marked({}, marked)
