"""Packages whose own names are imported on their first use."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from practicum.core.later import import_later


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The package `big_one.kinds`, which tells here that it was imported, with a light and a heavy module."""
    inner = tmp_path / "big_one" / "kinds"
    inner.mkdir(parents=True)
    (tmp_path / "big_one" / "__init__.py").write_text("", encoding="utf-8")
    init = "import big_one, time\ntime.sleep(0.01)\nbig_one.told.append('kinds')\nfrom .heavy import Heavy as Heavy\n"
    init += "__all__ = ['Heavy']\n"
    (inner / "__init__.py").write_text(init, encoding="utf-8")
    (inner / "light.py").write_text("class Light: ...\n", encoding="utf-8")
    (inner / "heavy.py").write_text("class Heavy: ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import_later("big_one.kinds")
    outer = importlib.import_module("big_one")
    outer.told = []
    yield outer.told
    for name in [name for name in sys.modules if name.startswith("big_one")]:
        del sys.modules[name]


def test_a_module_is_imported_without_its_package(package: list[str]) -> None:
    light = importlib.import_module("big_one.kinds.light")
    assert light.Light.__module__ == "big_one.kinds.light"
    assert package == []
    assert "big_one.kinds.heavy" not in sys.modules


@pytest.mark.parametrize("program", ["import big_one.kinds as k; k.Heavy()", "from big_one.kinds import *; Heavy()"])
def test_the_first_use_of_a_name_imports_the_package_once(package: list[str], program: str) -> None:
    exec(program, {})
    exec(program, {})
    assert package == ["kinds"]


def test_threads_that_use_it_at_once_find_it_whole(package: list[str]) -> None:
    found: list[type] = []
    kinds = importlib.import_module("big_one.kinds")
    threads = [threading.Thread(target=lambda: found.append(kinds.Heavy)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert package == ["kinds"]
    assert len(found) == 8


def test_an_unknown_name_is_an_error_as_ever(package: list[str]) -> None:
    kinds = importlib.import_module("big_one.kinds")
    with pytest.raises(AttributeError):
        _ = kinds.other
    with pytest.raises(ImportError):
        exec("from big_one.kinds import other", {})
    assert package == ["kinds"]


def test_what_is_imported_or_missing_stays_as_it_is() -> None:
    before = sys.modules["json"]
    import_later("json", "no_such_package_here", "no_such_package_here.inner", "json.decoder")
    assert sys.modules["json"] is before
    assert "no_such_package_here" not in sys.modules
