"""Tests for objects that installed packages register."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import packages
import pytest
from refusals import refused

from practicum.core import plugins

GROUP = "practicum.test_objects"


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package: its name, the source of its module, and what it registers in GROUP."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, source, **registered: packages.install(tmp_path, name, source, GROUP, **registered)


def test_an_object_is_found_by_its_name(install: Install) -> None:
    install("plug_fine", "answer = 42\n", beta="plug_fine:answer", alpha="plug_fine:answer")
    assert list(plugins.registered(GROUP)) == ["alpha", "beta"]
    assert plugins.package_of(plugins.registered(GROUP)["beta"]) == "plug_fine"
    assert plugins.load_registered(GROUP, "beta") == 42


def test_an_unknown_name_is_a_key_error(install: Install) -> None:
    install("plug_known", "answer = 42\n", known="plug_known:answer")
    with pytest.raises(KeyError, match="unknown"):
        plugins.load_registered(GROUP, "unknown")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module_at_all\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("other = 1\n", "AttributeError"),
    ],
)
def test_a_failing_import_names_the_package_and_spares_the_others(install: Install, source: str, reason: str) -> None:
    name = f"plug_broken_{reason.partition(':')[0].lower()}"
    install(name, source, broken=f"{name}:answer")
    install("plug_whole", "answer = 1\n", whole="plug_whole:answer")
    assert set(plugins.registered(GROUP)) == {"broken", "whole"}
    assert plugins.load_registered(GROUP, "whole") == 1
    with refused("plugin.broken"):
        plugins.load_registered(GROUP, "broken")


@pytest.mark.parametrize(
    ("source", "reference", "advice"),
    [
        ("", "plug_absent:answer", "write module:name"),
        ("", "plug_here:answer", "write module:name"),
        ("", ":answer", "write module:name"),
        ("import plug_absent\n", "plug_here:answer", "the error is in that module"),
        ("1 / 0\n", "plug_here:answer", "the error is in that module"),
    ],
)
def test_an_object_that_cannot_be_loaded_says_where_the_fault_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reference: str, advice: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plug_here", raising=False)
    (tmp_path / "plug_here.py").write_text(source)
    with refused("code.cannot_load"):
        plugins.import_object(reference)


def test_a_name_that_two_packages_register_is_refused(install: Install) -> None:
    install("plug_one", "answer = 1\n", shared="plug_one:answer")
    install("plug_two", "answer = 2\n", shared="plug_two:answer")
    with refused("plugin.duplicate"):
        plugins.load_registered(GROUP, "shared")


def test_the_description_names_packages_and_what_is_broken(install: Install) -> None:
    install("plug_good", "answer = 1\n", good="plug_good:answer")
    install("plug_bad", "import no_such_module\n", bad="plug_bad:answer")
    bad, good = plugins.describe(GROUP)
    assert good == "good (of the package plug_good)"
    assert bad.startswith("bad (broken: the package 'plug_bad' registers 'bad'")
    assert "No module named 'no_such_module'" in bad
