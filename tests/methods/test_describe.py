"""What `practicum methods` tells is read off the methods, and true of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import Launcher

from practicum import methods
from practicum.blocks.update.append import append, within_budget
from practicum.blocks.update.dedupe import deduplicated
from practicum.methods.describe import SEAMS, anatomy, composed


@pytest.mark.parametrize("name", methods.METHODS.names())
def test_every_method_has_a_line_its_seams_and_a_cost(name: str) -> None:
    found = anatomy(name, {})
    assert found.about.endswith(".")
    assert "METHODS" not in found.about + found.paper
    assert [*found.seams][:6] == [*SEAMS]
    assert all(block and "<" not in block and " at 0x" not in block for block in found.seams.values())
    assert found.costs


def test_wrappers_are_told_from_the_outside_in() -> None:
    block = within_budget(deduplicated(append("rules"), 0.85, "proactive", 100), 100)
    assert composed(block) == "within_budget(deduplicated(append))"
    assert "scan" in anatomy("combee", {}).seams["update"]
    assert "scan" not in anatomy("ace", {}).seams["update"]
    assert "grouped" in anatomy("ace", {"group": 3}).seams["attempt"]


def test_the_paper_is_separate_from_the_summary() -> None:
    found = anatomy("ace", {})
    assert found.paper == "Zhang et al., sections 3.1 and 3.2"
    assert found.about.startswith("ACE, Agentic Context Engineering: a playbook")
    assert anatomy("none", {}).paper == ""


@pytest.mark.slow
def test_the_command(launcher: Launcher, tmp_path: Path) -> None:
    done = launcher.run(("methods",), tmp_path)
    assert done.code == 0
    assert all(f"{name}  " in done.out for name in methods.METHODS.names())
    found = launcher.run(("methods", "ace", "--set", "rounds=5", "--json"), tmp_path).json["ace"]
    assert found["costs"] == "reflections, retries, one curation a step"
    assert set(found["settings"]) == set(methods.setting_docs("ace"))
    for arguments, match in (
        (("methods", "--set", "rounds=5"), "name it"),
        (("methods", "ace", "--set", "rond=5"), "has no setting 'rond'"),
        (("methods", "acme"), "unknown method 'acme'"),
    ):
        refused = launcher.run(arguments, tmp_path)
        assert (refused.code, match in refused.line) == (2, True)
