"""Tests for objects that installed packages register."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import packages
import pytest
from refusals import refused

from practicum.core.plugins import Group, implements

GROUP = "practicum.test_objects"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package: its name, the source of its module, and its objects in GROUP."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, source, **registered: packages.install(tmp_path, name, source, GROUP, **registered)


def test_plugins_are_listed_core_first_and_a_failing_import_spares_the_others(install: Any) -> None:
    install("plug_fine", "answer = 42\n", beta="plug_fine:answer", alpha="plug_fine:answer")
    install("plug_exits", "raise SystemExit(3)\n", exits="plug_exits:answer")
    install("plug_lacks", "other = 1\n", lacks="plug_lacks:answer")
    group = Group[Any](GROUP, "number", lambda plugin: [], {"zero": "math:pi", "made": None})
    assert group.names() == ("zero", "made", "alpha", "beta", "exits", "lacks")
    assert (group.load("beta"), group.load("zero")) == (42, math.pi)
    problems = {plugin.name: (plugin.package, plugin.problem) for plugin in group.described()}
    assert (problems["alpha"], problems["beta"]) == (("plug_fine", ""), ("plug_fine", ""))
    for name, reason in (("exits", "SystemExit: 3"), ("lacks", "AttributeError")):
        package, problem = problems[name]
        assert (package, reason in problem) == (f"plug_{name}", True)
        with refused("plugin.broken"):
            group.load(name)


class Shape(Protocol):
    """Protocol of the plug-ins of these tests."""

    sides: int

    def area(self) -> float: ...


def test_a_plugin_without_a_part_of_its_protocol_is_refused_with_the_part(install: Any) -> None:
    install("plug_half", "class square:\n    sides = 4\n", square="plug_half:square")
    group = Group[Any](GROUP, "shape", implements(Shape))
    (plugin,) = group.described()
    assert "area" in plugin.problem
    assert "sides" not in plugin.problem
    with refused("plugin.invalid"):
        group.load("square")


def test_names_that_exist_are_refused_and_the_first_works(install: Any) -> None:
    install("plug_one", "answer = 1\n", shared="plug_one:answer", zero="plug_one:answer")
    install("plug_two", "answer = 2\n", shared="plug_two:answer", two="plug_two:answer", **{"bad name": "plug_two:x"})
    group = Group[Any](GROUP, "number", lambda plugin: [], {"zero": "math:pi"})
    assert group.names() == ("zero", "two")
    assert group.load("zero") == math.pi
    clashes = {(plugin.name, plugin.package) for plugin in group.refused()}
    assert clashes == {
        ("shared", "plug_one"), ("shared", "plug_two"), ("zero", "plug_one"), ("bad name", "plug_two"),
    }  # fmt: skip
    with refused("plugin.duplicate"):
        group.load("shared")
