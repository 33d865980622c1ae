"""What `practicum methods` tells is read off the methods, and true of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import Launcher
from scripts import learned, scripted, wrong

from practicum import methods
from practicum.blocks.update.append import append, within_budget
from practicum.blocks.update.dedupe import deduplicated
from practicum.methods.describe import SEAMS, anatomy, composed, learning_cost


@pytest.mark.parametrize("name", methods.NAMES)
def test_every_method_has_a_line_its_seams_and_a_cost(name: str) -> None:
    found = anatomy(name, {})
    assert found.about.endswith(".")
    assert "METHODS" not in found.about + found.paper
    assert [*found.seams][:6] == [*SEAMS]
    assert all(block and "<" not in block and " at 0x" not in block for block in found.seams.values())
    assert "call" in found.learning
    assert "call" in found.testing


def test_wrappers_are_told_from_the_outside_in() -> None:
    block = within_budget(deduplicated(append("rules"), 0.85, "proactive", 100), 100)
    assert composed(block) == "within_budget(deduplicated(append))"
    assert "scan" in anatomy("combee", {}).seams["update"]
    assert "scan" not in anatomy("ace", {}).seams["update"]
    assert "grouped" in anatomy("ace", {"group": 3}).seams["attempt"]


def test_the_paper_stands_apart_from_the_line() -> None:
    found = anatomy("ace", {})
    assert found.paper == "Zhang et al., sections 3.1 and 3.2"
    assert found.about.startswith("ACE, Agentic Context Engineering: a playbook")
    assert anatomy("none", {}).paper == ""


@pytest.mark.parametrize(
    ("name", "settings", "cost"),
    [
        ("none", {}, "0 calls"),
        ("episodes", {}, "1 call"),
        ("ace", {}, "2 to 7 + 1/n calls, n = 1 tasks a step"),
        ("ace", {"rounds": 5, "batch": 4}, "2 to 11 + 1/n calls, n = 4 tasks a step"),
        ("ace", {"reflector": False, "curator": "append"}, "1 call"),
    ],
)
def test_the_formula_follows_the_settings(name: str, settings: dict[str, Any], cost: str) -> None:
    assert learning_cost(methods.build(name, settings)) == cost


def test_the_most_it_tells_is_what_a_run_of_failures_takes(tmp_path: Path) -> None:
    model = scripted(agent=wrong)
    run = learned(tmp_path, model, tasks=6, settings={"batch": 3, "rounds": 2})
    assert learning_cost(methods.build("ace", {"batch": 3, "rounds": 2})).startswith("2 to 5 + 1/n calls")
    assert run.result.usage.calls == 6 * 5 + 2


def test_the_command(launcher: Launcher, tmp_path: Path) -> None:
    done = launcher.run(("methods",), tmp_path)
    assert done.code == 0
    assert all(f"{name}  " in done.out for name in methods.NAMES)
    found = launcher.run(("methods", "ace", "--set", "rounds=5", "--json"), tmp_path).json["ace"]
    assert found["cost"]["training_task"].startswith("2 to 11 + 1/n calls")
    assert set(found["settings"]) == set(methods.described("ace"))
    for arguments, match in (
        (("methods", "--set", "rounds=5"), "name it"),
        (("methods", "ace", "--set", "rond=5"), "has no setting 'rond'"),
        (("methods", "acme"), "unknown method 'acme'"),
    ):
        refused = launcher.run(arguments, tmp_path)
        assert (refused.code, match in refused.line) == (2, True)
