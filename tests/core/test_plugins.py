"""Tests for objects that installed packages register."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import packages
import pytest

from practicum.core.errors import UsageError
from practicum.core.plugins import Group, implements

GROUP = "practicum.test_objects"

ANY = Group[Any](GROUP, "thing", lambda plugin: [])


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package: its name, the source of its module, and its objects in GROUP."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, source, **registered: packages.install(tmp_path, name, source, GROUP, **registered)


def test_plugins_are_listed_core_first_and_loaded_by_name(install: Install) -> None:
    install("plug_fine", "answer = 42\n", beta="plug_fine:answer", alpha="plug_fine:answer")
    group = Group[Any](GROUP, "number", lambda plugin: [], {"zero": "math:pi", "made": None})
    assert group.names() == ("zero", "made", "alpha", "beta")
    assert group.load("beta") == 42
    assert group.load("zero") == math.pi
    assert [(plugin.name, plugin.package, plugin.problem) for plugin in group.described()] == [
        ("alpha", "plug_fine", ""), ("beta", "plug_fine", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "reason"), [("raise SystemExit(3)\n", "SystemExit: 3"), ("other = 1\n", "AttributeError")]
)
def test_a_failing_import_names_the_package_and_spares_the_others(install: Install, source: str, reason: str) -> None:
    name = f"plug_broken_{reason.partition(':')[0].lower()}"
    install(name, source, broken=f"{name}:answer")
    install("plug_whole", "answer = 1\n", whole="plug_whole:answer")
    assert ANY.load("whole") == 1
    broken, whole = ANY.described()
    assert (whole.name, whole.problem) == ("whole", "")
    assert broken.package == name
    assert reason in broken.problem
    with pytest.raises(UsageError):
        ANY.load("broken")


class Shape(Protocol):
    """Protocol of the plug-ins of these tests."""

    sides: int

    def area(self) -> float: ...


def test_a_plugin_without_a_part_of_its_protocol_is_refused_with_the_part(install: Install) -> None:
    install("plug_half", "class square:\n    sides = 4\n", square="plug_half:square")
    group = Group[Any](GROUP, "shape", implements(Shape))
    (plugin,) = group.described()
    assert "area" in plugin.problem
    assert "sides" not in plugin.problem
    with pytest.raises(UsageError):
        group.load("square")


def test_names_that_exist_are_refused_and_the_first_works(install: Install) -> None:
    install("plug_one", "answer = 1\n", shared="plug_one:answer", zero="plug_one:answer")
    install("plug_two", "answer = 2\n", shared="plug_two:answer", two="plug_two:answer", **{"bad name": "plug_two:x"})
    group = Group[Any](GROUP, "number", lambda plugin: [], {"zero": "math:pi"})
    assert group.names() == ("zero", "two")
    assert group.load("zero") == math.pi
    refused = {(plugin.name, plugin.package) for plugin in group.refused()}
    assert refused == {
        ("shared", "plug_one"), ("shared", "plug_two"), ("zero", "plug_one"), ("bad name", "plug_two"),
    }  # fmt: skip
    with pytest.raises(UsageError):
        group.load("shared")
